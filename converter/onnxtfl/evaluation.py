"""Evaluation of a model by the neutral ops alone, in NumPy: an executable specification, slow and without a runtime."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from onnxtfl.errors import OnnxtflError, UnsupportedError, UsageError, one_line, suggestion
from onnxtfl.formats import files
from onnxtfl.formats.bodies import body
from onnxtfl.formats.source import Content
from onnxtfl.inputs.data_files import read_arrays
from onnxtfl.ir.data import Array, PathLike
from onnxtfl.ir.dims import size_or
from onnxtfl.ir.float16_evaluation import Float16Evaluation
from onnxtfl.ir.graph import Graph, Node, State, Value
from onnxtfl.ir.half import Excess, as_float16, simulation_scope
from onnxtfl.ir.interpret import values_of
from onnxtfl.ir.op import Effect
from onnxtfl.ir.types import DType, TensorType
from onnxtfl.passes.canonical.inline import inline_functions
from onnxtfl.pipeline_run import explicit_states
from onnxtfl.rewriting.lift import lift

Precision = Literal["float16", "float16-sums"]
"""A simulated arithmetic: "float16" stores each float value in float16 and accumulates sums in float32, "float16-sums"
accumulates them in float16 too (:mod:`onnxtfl.ir.half`).
"""


class EvaluationError(OnnxtflError):
    """An op could not be evaluated on these inputs."""

    default_code = "E-RUN-002"


class Evaluator:
    """A model as neutral ops. States keep their values from one call of `run` to the next, and random numbers of a seed
    are drawn by the first one: later ones draw others, as runtimes do.

    ``precision``: the arithmetic to simulate, by default that of the model's types. ``beyond``: the values that left
    the range of float16 in the last run, in its order; () without a simulation.

    Raises `InvalidModelError`, and `UnsupportedError` for ops without a meaning in neutral ops.
    """

    def __init__(self, model: PathLike | Content, precision: Precision | None = None) -> None:
        if precision not in (None, *get_args(Precision)):
            raise UsageError(f"precision {precision!r}", hint="one of " + ", ".join(get_args(Precision)))
        source = files.read(model)
        inline_functions(source)
        explicit_states(source)
        self._names = dict(_named(source.main)) if precision is not None else {}
        self._precision, self.beyond = precision, tuple[Excess, ...]()
        lift(source.main, body)
        self.graph: Graph = source.main
        self._states = {state.input: _initial(state) for state in self.graph.states}
        refused = next(
            (v for v in (*self.graph.inputs, *self.graph.outputs) if not isinstance(v.type, TensorType)), None
        )
        if refused is not None:
            raise UnsupportedError("inputs and outputs that are no tensors", type_=refused.type, code="E-TYPE-002")

    @property
    def inputs(self) -> list[str]:
        """The names of the inputs, in order."""
        return [value.name or f"input_{i}" for i, value in enumerate(self.graph.inputs)]

    @property
    def outputs(self) -> list[str]:
        """The names of the outputs, in order."""
        return [name or f"output_{i}" for i, name in enumerate(self.graph.names_of_outputs)]

    def run(self, inputs: Sequence[Any], time_limit: float | None = None) -> list[Array]:
        """Return the outputs for `inputs` in order; stored integers where they are quantized.

        Raises `EvaluationError` that names the op, and TimeoutError after `time_limit` seconds.
        """
        values = {v: _stored(v, array) for v, array in zip(self.graph.inputs, inputs, strict=True)}
        values |= self._states
        watch = _Watch(time_limit)
        wanted = [*self.graph.outputs, *(state.output for state in self.graph.states)]
        simulation = None
        if self._precision is not None:
            simulation = Float16Evaluation(self._names, sums=self._precision == "float16-sums")
            values = {v: as_float16(array) for v, array in values.items()}
        try:
            with simulation_scope(simulation):
                found = values_of(self.graph, values, wanted, watch.observe)
        except (OnnxtflError, MemoryError, TimeoutError):
            raise
        except Exception as error:  # of NumPy, for values that the op is not defined for
            raise EvaluationError(one_line(str(error), 300), node=watch.node, op=watch.op) from error
        if simulation is not None:
            found, self.beyond = [as_float16(array) for array in found], tuple(simulation.beyond)
        for node in self.graph.walk():
            if node.op.effect is Effect.RANDOM:
                node.attributes["seed"] = 0
        count = len(self.graph.outputs)
        self._states = {state.input: array for state, array in zip(self.graph.states, found[count:], strict=True)}
        return found[:count]


class _Watch:
    """The node that is evaluated, and the time."""

    def __init__(self, time_limit: float | None) -> None:
        self.until = None if time_limit is None else time.monotonic() + time_limit
        self.node, self.op = "", ""

    def observe(self, node: Node) -> None:
        """Remember the node; TimeoutError if it is too late."""
        self.node, self.op = ", ".join(node.sources) or node.name or "", node.op.name
        if self.until is not None and time.monotonic() > self.until:
            raise TimeoutError(f"evaluating the neutral ops takes too long (at {self.op})")


def _named(graph: Graph) -> Iterator[tuple[str, tuple[str, str]]]:
    """The first result and the op of each node of a file, by the name that lifting gives as its source."""
    for node in graph.walk():
        op = node.op.name_in_file or node.op.name
        tensor = next((r.name for r in node.results if r.name), "")
        yield node.name or tensor or op, (tensor or node.name or op, op)


def _initial(state: State) -> Array:
    """The value of a state before the first run; dynamic sizes are those of the initial value, else 1."""
    type_ = state.input.tensor_type
    initial = np.zeros((), type_.storage.numpy) if state.initial is None else state.initial.numpy()
    shape = initial.shape or [size_or(d, 1) for d in type_.shape or ()]
    return np.array(np.broadcast_to(initial, shape))


def _stored(value: Value, array: Any) -> Array:
    """Return an input as an array of the element type of `value`; bits become the type that NumPy lacks, and bytes,
    which are UTF-8, text.
    """
    dtype = value.tensor_type.storage
    found = np.asarray(array)
    if dtype is DType.STRING:
        return np.asarray([_text(v) for v in found.reshape(-1).tolist()], object).reshape(found.shape)
    wanted = np.dtype(dtype.numpy)
    is_bits = wanted.kind == "V" and found.dtype.kind == "u" and found.dtype.itemsize == wanted.itemsize
    return found.view(wanted) if is_bits else found.astype(wanted)


def _text(element: Any) -> str:
    return element.decode("utf-8", "surrogateescape") if isinstance(element, bytes) else str(element)


def run(
    model: PathLike | Content,
    inputs: PathLike | Mapping[str, Any] | Sequence[Any],
    precision: Precision | None = None,
    on_excess: Callable[[Excess], object] | None = None,
) -> dict[str, Array]:
    """Return the outputs of a model (.onnx, .tflite or .ir) by name, evaluated by the neutral ops alone.

    ``inputs``: arrays by name, or in order, or the path of an .npz file of them. Quantized inputs and outputs are
    stored integers. No runtime is used, so that this also runs models for which none has a kernel; it is slow.

    ``precision``: see `Precision`; the types of the outputs stay as they are. ``on_excess`` is called with each value
    that leaves float16's range, in the order of evaluation.

    Raises `InvalidModelError`, `UnsupportedError` for ops without a meaning in neutral ops, `UsageError` for missing or
    unknown inputs, `OnnxtflError` where an op is not defined for the values.
    """
    evaluator = Evaluator(model, precision)
    names = evaluator.inputs
    if isinstance(inputs, str | os.PathLike):
        inputs = read_arrays(Path(inputs))
    if isinstance(inputs, Mapping):
        given = {names[int(k[4:])] if _is_position(k, names) else k: v for k, v in inputs.items()}
        _check_names(names, given)
        values = [given[name] for name in names]
    else:
        values = list(inputs)
    if len(values) != len(names):
        raise UsageError(f"the model has {len(names)} inputs, {len(values)} were given", hint=", ".join(names))
    found = dict(zip(evaluator.outputs, evaluator.run(values), strict=True))
    if on_excess is not None:
        for excess in evaluator.beyond:
            on_excess(excess)
    return found


def _is_position(name: str, names: Sequence[str]) -> bool:
    """Whether `name` is the name that NumPy gives an array by its position, "arr_0"."""
    return name not in names and name.startswith("arr_") and name[4:].isdigit() and int(name[4:]) < len(names)


def _check_names(names: Sequence[str], given: Mapping[str, Any]) -> None:
    unknown = next((name for name in given if name not in names), None)
    if unknown is not None:
        hint = suggestion(unknown, names, "the inputs")
        raise UsageError(f"the model has no input {unknown!r}", hint=hint, code="E-USE-003")
    missing = [name for name in names if name not in given]
    if missing:
        raise UsageError(f"no array for the input {missing[0]!r}", hint="write one for each input, with numpy.savez")
