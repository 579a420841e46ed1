"""Compare an ONNX and a TFLite model op by op: each TFLite op reads the values that ONNX Runtime computes.

Where models are deep and quantized, a difference of one step is amplified, and even the kernel sets of one runtime
disagree about the outputs. Op by op they have to agree::

    %b = CONV_2D(%a)            %b = CONV_2D(%a')         a', b': inputs, with the values that ONNX Runtime computes
    %c = ADD(%b, %a)     ->     %c = ADD(%b', %a')        outputs: %b and %c, compared with b' and c'
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from onnxtfl.checking.metrics.comparison import Expectation, compare
from onnxtfl.checking.models.parts import temporary_directory, write_part
from onnxtfl.checking.pairing.interface import permutations
from onnxtfl.checking.report import OutputCheck
from onnxtfl.formats import files
from onnxtfl.ir.data import Array
from onnxtfl.ir.graph import Graph, Value
from onnxtfl.ir.model import Model
from onnxtfl.ir.permutations import inverse
from onnxtfl.ir.quantization import UINT8_OFFSET, Quantization, quantize
from onnxtfl.ir.quantized import is_real, quantization_of
from onnxtfl.ir.record import TensorEntry
from onnxtfl.passes.cleanup import remove_unreached
from onnxtfl.passes.inline import inline_functions
from onnxtfl.runtimes import RunOptions, Worker
from onnxtfl.targets.target import as_form
from onnxtfl.targets.tflite import TfliteTarget

_MEASURED = TfliteTarget()


@dataclass(frozen=True)
class OpCheck:
    """A tensor that the op `op` makes of ONNX Runtime's values, compared with ONNX Runtime's."""

    op: str
    check: OutputCheck


@dataclass(frozen=True)
class RunnableModel:
    """A model file, the process that runs it, and the values of its inputs."""

    path: Path
    worker: Worker
    values: Sequence[Any]


class _Tensors:
    """How tensors of the TFLite model are made of those of the ONNX model.

    `entries`: the record of a conversion, in the direction that `from_onnx` says; without it, names are the same.
    """

    def __init__(self, entries: Sequence[TensorEntry], from_onnx: bool) -> None:
        self._from_onnx = from_onnx
        self._entries: dict[str, list[TensorEntry]] = {}
        for entry in entries:
            self._entries.setdefault(entry.target if from_onnx else entry.source, []).append(entry)

    def entry(self, name: str, known: Iterable[str]) -> TensorEntry | None:
        """The entry of the tensor `name` of the TFLite model and one of `known`, tensors of the ONNX model."""
        if not self._entries:
            return TensorEntry(name, name) if name in known else None
        found = self._entries.get(name, [])
        return next((e for e in found if (e.source if self._from_onnx else e.target) in known), None)

    def onnx_name(self, entry: TensorEntry) -> str:
        """The tensor of the ONNX model."""
        return entry.source if self._from_onnx or not self._entries else entry.target

    def moved(self, entry: TensorEntry, value: Array, shape: tuple[Any, ...]) -> Array | None:
        """The ONNX model's `value` in the axis order of the TFLite model; `shape`: that of its tensor."""
        if not self._entries:
            ways = permutations(tuple(value.shape), tuple(d if isinstance(d, int) else None for d in shape), "auto")
            return value.transpose(ways[-1] if len(shape) == 4 else ways[0]) if ways else None
        if not self._from_onnx:
            value = value if entry.permutation is None else value.transpose(inverse(entry.permutation))
            return value if entry.shape is None else _shaped(value, shape)
        shaped = value if entry.shape is None else _shaped(value, entry.shape)
        return shaped if entry.permutation is None or shaped is None else shaped.transpose(entry.permutation)


def _shaped(value: Array, shape: Sequence[Any]) -> Array | None:
    """`value` with the known sizes of `shape`; None where several are open and its own sizes, but for ones, do not say
    which they are.
    """
    if sum(not isinstance(d, int) for d in shape) <= 1:
        return value.reshape([d if isinstance(d, int) else -1 for d in shape])
    own, ones = [d for d in value.shape if d != 1], len(shape) - sum(d != 1 for d in shape)
    if len(own) + ones != len(shape):
        return None
    left = iter(own)
    sizes = [1 if d == 1 else next(left) for d in shape]
    fits = all(d in (size, 1) or not isinstance(d, int) for d, size in zip(shape, sizes, strict=True))
    return value.reshape(sizes) if fits else None


def compare_ops(
    onnx: RunnableModel,
    tflite: RunnableModel,
    entries: Sequence[TensorEntry],
    from_onnx: bool,
    options: RunOptions,
    expect: Expectation,
) -> list[OpCheck] | None:
    """Run all ops of the main graph of `tflite` on the values that `onnx` has without graph optimizations.

    Returns None where not all outputs are covered. Raises `OnnxtflError` for models that cannot be read or run.
    """
    tensors, model = _Tensors(entries, from_onnx), files.read(tflite.path)
    chosen = _common(model.main, tensors, _results(files.read(onnx.path)))
    if not set(model.main.outputs) <= set(chosen):
        return None
    with ExitStack() as stack:
        folder = temporary_directory(stack)
        names = list(dict.fromkeys(tensors.onnx_name(entry) for entry in chosen.values()))
        write_part(onnx.path, folder / "all.onnx", None, names, {})
        emulated = RunOptions("builtin", options.time_limit)
        found = dict(zip(names, onnx.worker.run(folder / "all.onnx", onnx.values, emulated), strict=True))
        values = {
            value: stored
            for value, entry in chosen.items()
            if (stored := _stored(value, tensors, entry, found[tensors.onnx_name(entry)])) is not None
        }
        del found  # one copy of each tensor is enough
        if not set(model.main.outputs) <= set(values):
            return None
        judged = {v: (v.producer, _expectation(v, values, expect)) for v in values if v.producer is not None}
        fed = _isolate(model, values)
        files.write(model, folder / "ops.tflite")
        got = tflite.worker.run(folder / "ops.tflite", [*tflite.values, *fed], options)
    return [
        OpCheck(node.op.name.partition(".")[2], compare(value.name or "", values[value], array, expected))
        for (value, (node, expected)), array in zip(judged.items(), got, strict=True)
    ]


def _results(model: Model) -> set[str]:
    """The names of the tensors that the nodes of the main graph compute."""
    inline_functions(model)
    return {result.name for node in model.main.nodes for result in node.results if result.name}


def _common(graph: Graph, tensors: _Tensors, known: set[str]) -> dict[Value, TensorEntry]:
    """The outputs, real and quantized tensors of the TFLite `graph` that the ONNX model has too.

    Without results of constants only: XNNPACK computes these once, and does not write them to outputs.
    """
    outputs = set(graph.outputs)
    computed = [node for node in graph.nodes if not all(v is None or v.is_constant for v in node.operands)]
    results = [r for node in computed for r in node.results if is_real(r.type) or r.is_quantized or r in outputs]
    names = Counter(result.name for result in results)
    entries = {r: _entry(r, tensors, known) for r in results if r.name and names[r.name] == 1}
    return {result: entry for result, entry in entries.items() if entry is not None}


def _entry(value: Value, tensors: _Tensors, known: set[str]) -> TensorEntry | None:
    """The entry of `value` by its name, or by that in the file: outputs have the names of the signature.

    A real tensor that only exists as a quantized one in the ONNX model has none: it is rounded there.
    """
    names = dict.fromkeys((value.name or "", *(origin.tensor for origin in value.origins)))
    found = next((entry for name in names if (entry := tensors.entry(name, known)) is not None), None)
    rounded = found is not None and found.quantization is not None and quantization_of(value) is None
    return None if rounded else found


def _stored(value: Value, tensors: _Tensors, entry: TensorEntry, found: Any) -> Array | None:
    """What ONNX Runtime computes, as `value` is stored; None for other types and shapes."""
    if not isinstance(found, np.ndarray):
        return None
    moved = tensors.moved(entry, found, value.shape)
    quantization = quantization_of(value)
    if moved is not None and moved.dtype.kind in "iu" and quantization is None:
        return moved.astype(value.dtype.numpy)  # positions, int64 on one side and int32 on the other
    return moved if quantization is None or moved is None else _as_stored(moved, quantization)


def _as_stored(array: Array, quantization: Quantization) -> Array | None:
    storage = quantization.dtype.numpy
    if array.dtype.kind == "f":
        return quantize(array, quantization)
    if {array.dtype.name, storage.name} == {"int8", "uint8"}:
        return (array.astype(np.int16) + (UINT8_OFFSET if storage.name == "uint8" else -UINT8_OFFSET)).astype(storage)
    return array if array.dtype == storage else None


def _isolate(model: Model, values: Mapping[Value, Array]) -> list[Array]:
    """Let all nodes read inputs instead of `values`, which become the outputs; return what to feed these inputs."""
    graph, fed = model.main, list[Array]()
    for k, (value, array) in enumerate(values.items()):
        if value.uses:
            value.replace_uses(graph.add_input(value.type, f"value_{k}"))
            fed.append(array)
    graph.outputs, graph.states = list(values), [state for state in graph.states if state.input.uses]
    graph.output_names = [f"result_{k}" for k in range(len(values))]
    remove_unreached(graph, set())
    model.signatures, model.subgraphs = [], []
    return fed


def _expectation(value: Value, values: Mapping[Value, Array], expect: Expectation) -> Expectation:
    """How close `value` has to be: one step of its own (more where its kernel was measured to be coarser), and one of
    what it is requantized from, also rounded here. A real value has the steps of what it is dequantized from.
    """
    quantization, node = quantization_of(value), value.producer
    source = node.operands[0] if node is not None and len(node.operands) == 1 else None
    inner = None if source in values else quantization_of(source)
    roundings = max(1.0, 0.0 if node is None else _MEASURED.steps_off(as_form(node), node.results))
    if quantization is not None and inner is not None and quantization.per_tensor and inner.per_tensor:
        roundings += inner.scales[0] / quantization.scales[0]
    step = inner.scales[0] if quantization is None and inner is not None and inner.per_tensor else None
    return Expectation(expect.rtol, expect.atol, step, False, quantization, quantization, roundings)


def in_words(checks: Sequence[OpCheck]) -> str:
    """What the comparison found, in one line; the worst op, if one disagrees."""
    steps = [c.check.steps for c in checks if c.check.steps is not None]
    found = f"op by op on ONNX Runtime's values: {len(checks)} ops"
    found += f", largest difference {max(steps):.3g} steps" if steps else ""
    wrong = [c for c in checks if not c.check.ok]
    if not wrong:
        return found
    worst = max(wrong, key=lambda c: c.check.steps or 0.0)
    return f"{found}; {len(wrong)} disagree, worst {worst.op} {worst.check.name!r}: {worst.check.in_steps}".rstrip(": ")
