"""The states of a graph as inputs and outputs, for a format without state.

::

    (%x) state %h = 0, next %h1 -> (%y)     ->     (%x, %h) -> (%y, %h1 as "h_next")         "io"
                                            ->     (%x) -> (%y), where %h is the constant 0  "reset"
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from onnxtfl.dataclass import dataclass
from onnxtfl.errors import InvalidModelError, UnsupportedError
from onnxtfl.ir.data import ArrayData, TensorData
from onnxtfl.ir.dims import size_or
from onnxtfl.ir.graph import Graph, State, Value, constant
from onnxtfl.ir.quantization import Quantization
from onnxtfl.ir.quantized import quantization_of
from onnxtfl.ir.types import TensorType

StateMode = Literal["io", "reset"]
NEXT = "_next"
"""The suffix of the output's name after the name of its state."""


@dataclass(frozen=True, slots=True)
class ExposedState:
    """A state that is an input and an output: their indices (None if absent) and the initial value.

    Without an input the model only writes the state, without an output it only reads it; both occur if several entry
    points share the state. `initial`: stored values, a scalar for all elements; None if unknown.
    """

    input: int | None
    output: int | None
    initial: TensorData | None
    quantization: Quantization | None


def expose_states(graph: Graph, mode: StateMode) -> list[ExposedState]:
    """Replace states by inputs and outputs, or ("reset") by their initial values; return the exposed ones.

    `graph.output_names` is extended. UnsupportedError for "reset" with an unknown initial value, InvalidModelError if
    the result would have no outputs.
    """
    states, graph.states = graph.states, []
    if mode == "reset":
        for state in states:
            graph.substitute(state.input, _initial(state), retyped=True)
        states = []
    taken = {v.name for v in graph.inputs} | set(graph.output_names)
    exposed = [_exposed(graph, state, taken) for state in states]
    if not graph.outputs:
        raise InvalidModelError("the model has no outputs", code="E-FILE-009")
    return exposed


def _exposed(graph: Graph, state: State, taken: set[str | None]) -> ExposedState:
    name = state.input.name = _unique(state.input.name or "state", taken)
    reads = bool(state.input.uses) or state.output is state.input or state.input in graph.outputs
    writes = state.output is not state.input
    if reads:
        graph.inputs.append(state.input)
    if writes:
        graph.outputs.append(state.output)
        graph.output_names.append(_unique(name + NEXT, taken))
    inputs, outputs = len(graph.inputs) - 1 if reads else None, len(graph.outputs) - 1 if writes else None
    return ExposedState(inputs, outputs, state.initial, quantization_of(state.input))


def _unique(name: str, taken: set[str | None]) -> str:
    found, number = name, 1
    while found in taken:
        found, number = f"{name}_{number}", number + 1
    taken.add(found)
    return found


def _initial(state: State) -> Value:
    """Return the initial value of a state as a constant."""
    type_ = state.input.type
    if state.initial is None or not isinstance(type_, TensorType):
        raise UnsupportedError(
            "the file has no initial value of a variable", node=state.input.name, hint=_HINT, code="E-OP-007"
        )
    unit_sizes = tuple(size_or(d, 1) for d in type_.shape or ())  # TFLite's value for unknown ones
    shape = state.initial.shape or unit_sizes
    data = ArrayData(np.array(np.broadcast_to(state.initial.numpy(), shape)), state.initial.dtype)
    return constant(data, type_=type_.with_shape(data.shape))


_HINT = "use `state=io`"
