"""States that a model keeps between runs, or that a converted ONNX model has as inputs and outputs.

The other model of a check does not have these inputs and outputs. They are not compared, but fed back in the next run.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from onnxtfl.errors import InvalidModelError
from onnxtfl.formats.onnx.state_metadata import KEY, StateEntry, decode
from onnxtfl.inputs.description import ModelInfo, TensorInfo
from onnxtfl.inputs.generation import numpy_type
from onnxtfl.ir.dims import size_or
from onnxtfl.ir.model import Model


@dataclass(frozen=True)
class Hidden:
    """The inputs and outputs of a model file that are states.

    ``inputs``, ``outputs``: the indices of the other inputs and outputs, in the model's order. ``initial``: by the
    index of an input, its value in the first run. ``feedback``: pairs of an output and the input that it is in the next
    run. ``unwritten``: the names of states that have no value until another entry point writes one.
    """

    inputs: tuple[int, ...] = ()
    outputs: tuple[int, ...] = ()
    initial: dict[int, Any] = field(default_factory=dict)
    feedback: tuple[tuple[int, int], ...] = ()
    unwritten: tuple[str, ...] = ()

    @classmethod
    def of(cls, info: ModelInfo, states: Sequence[StateEntry]) -> Hidden:
        """The inputs and outputs of a model that are ``states``. Raises `InvalidModelError` for an unknown name."""
        inputs, outputs = ({spec.name: i for i, spec in enumerate(specs)} for specs in (info.inputs, info.outputs))
        try:
            named = [(inputs[s.input] if s.input else None, outputs[s.output] if s.output else None, s) for s in states]
        except KeyError as error:
            raise InvalidModelError(
                f"the metadata name the state {error}, which is no input or output", code="E-FILE-009"
            ) from error
        fed = {i: _filled(info.inputs[i], s) for i, _, s in named if i is not None}
        written = {o for _, o, _ in named if o is not None}
        return cls(
            tuple(i for i in range(len(info.inputs)) if i not in fed),
            tuple(o for o in range(len(info.outputs)) if o not in written),
            fed,
            tuple((o, i) for i, o, _ in named if i is not None and o is not None),
            tuple(s.input for _, _, s in named if s.input and s.initial is None),
        )

    def given(self, values: Sequence[Any]) -> list[Any]:
        """Return the values of all inputs in the first run; ``values``: those of inputs that are not states."""
        found = dict(zip(self.inputs, values, strict=True)) | self.initial
        return [found[i] for i in range(len(found))]

    def visible(self, info: ModelInfo) -> ModelInfo:
        """The model without the inputs and outputs that are states."""
        inputs, outputs = (tuple(specs[i] for i in kept) for specs, kept in self._sides(info))
        return replace(info, inputs=inputs, outputs=outputs)

    def _sides(self, info: ModelInfo) -> tuple[tuple[tuple[TensorInfo, ...], tuple[int, ...]], ...]:
        return (info.inputs, self.inputs), (info.outputs, self.outputs)


def states_of(model: Model, info: ModelInfo) -> list[StateEntry]:
    """The states that the metadata of a model describe."""
    if KEY not in model.metadata.properties:
        return []
    types = {spec.name: numpy_type(spec.dtype) for spec in info.inputs if spec.dtype != "string"}
    return decode(model.metadata.properties, types)


def hidden(info: ModelInfo, states: Sequence[StateEntry], others: Collection[str]) -> Hidden:
    """The states that are no inputs of the other model, whose inputs have the names ``others``."""
    return Hidden.of(info, [s for s in states if s.input not in others])


def _filled(spec: TensorInfo, state: StateEntry) -> Any:
    """The initial value in the shape of the input; unknown sizes are 1, as those of TFLite's variable tensors, unless
    the initial value has others.
    """
    initial = np.zeros((), numpy_type(spec.dtype)) if state.initial is None else state.initial
    shape = tuple(size_or(size, 1) for size in spec.shape or ())
    return initial if initial.ndim or spec.shape is None else np.broadcast_to(initial, shape)
