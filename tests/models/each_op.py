"""Each op of a converted quantized model fed with the source's own operands, and compared with the source's result.

The converted model is cut at every tensor that the conversion's record finds in the source: these become inputs, and
what computed them outputs, so that one run of LiteRT computes every op (or the few that replace one) separately.
"""

from __future__ import annotations

import io
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tests.harness.litert import Array, run_tflite
from tests.models.corpus import samples

_FED = " fed"


@dataclass(frozen=True)
class Difference:
    """The largest difference of a target tensor from the source's, in steps of its quantization, and the target ops
    that computed it from tensors of the source. `share`: of the elements that differ by more than a step."""

    tensor: str
    ops: tuple[str, ...]
    steps: float
    share: float


@dataclass(frozen=True)
class Job:
    """A model to convert, and the kernels to run the result with (see `run_tflite`)."""

    path: Path
    kernels: str = "builtin"


def differences(job: Job) -> list[Difference]:
    """The differences of all quantized results that can be compared, in the worker process."""
    return compare_each(job.path.read_bytes(), samples(job.path)[0], job.kernels)


def compare_each(source: bytes, inputs: Mapping[str, Array], kernels: str = "builtin") -> list[Difference]:
    """Convert an ONNX model and compare each of its quantized ops; the differences of all results that can be."""
    import onnxtfl
    from onnxtfl.formats.tflite import reader, writer
    from onnxtfl.ir.model import Model

    tensors = source_tensors(source, inputs)
    conversion = onnxtfl.onnx_to_tflite(source, check=False)
    assert conversion.data is not None
    graph = reader.read(conversion.data).main
    wanted = dict(_stored(graph, conversion.record, tensors))
    parts = _cut(graph, wanted)
    units = {v.name: _unit(wanted[v.name], _before(v)) for v in graph.outputs}
    out = io.BytesIO()
    writer.write(Model(graph), out)
    operands = {v.name: wanted[v.name.removesuffix(_FED)] for v in graph.inputs}
    results = run_tflite(out.getvalue(), operands, kernels=kernels)
    return [
        _difference(name, parts[name], array, wanted[name], units[name]) for name, array in results if name in parts
    ]


def source_tensors(source: bytes, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """Every tensor of an ONNX model's main graph, as ONNX Runtime computes it without optimization.

    With exact sums of products, also on processors on which those of uint8 and int8 saturate.
    """
    import onnx
    import onnxruntime

    from onnxtfl.checking.models.copies import exact_copy

    with tempfile.TemporaryDirectory() as folder:
        exact = exact_copy(source, Path(folder))
        model = onnx.load_from_string(source if exact is None else exact.read_bytes())
    outputs = {v.name for v in model.graph.output}
    made = [name for node in model.graph.node for name in node.output if name and name not in outputs]
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in made)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return {**inputs, **dict(zip(names, session.run(names, dict(inputs)), strict=True))}


def _stored(graph: Any, record: Any, tensors: Mapping[str, Array]) -> Iterator[tuple[str, Array]]:
    """The name of each target tensor, and its elements according to the source; stored integers are preferred."""
    values = {v.name: v for node in graph.nodes for v in node.results} | {v.name: v for v in graph.inputs}
    entries = [e for e in record.tensors if e.source in tensors and e.target in values]
    for entry in sorted(entries, key=lambda e: tensors[e.source].dtype.kind in "iub"):
        array = _arranged(tensors[entry.source], entry)
        if array is not None:
            yield entry.target, _as_target(array, values[entry.target].tensor_type)


def _arranged(array: Array, entry: Any) -> Array | None:
    """The source tensor in the shape and axis order of the target; None if the shape is not static."""
    if entry.shape is not None:
        if not all(isinstance(d, int) for d in entry.shape):
            return None
        array = array.reshape(entry.shape)
    return array if entry.permutation is None else array.transpose(entry.permutation).copy()


def _as_target(array: Array, type_: Any) -> Array:
    """The elements as the target stores them."""
    from onnxtfl.ir.quantization import quantize

    storage = type_.storage.numpy
    if array.dtype.kind == "f":
        return array.astype(storage) if type_.quantization is None else quantize(array, type_.quantization)
    offset = 128 if (array.dtype, storage) == (np.uint8, np.int8) else 0
    return (array.astype(np.int64) - offset).astype(storage)


def _cut(graph: Any, wanted: Mapping[str, Array]) -> dict[str, tuple[str, ...]]:
    """Make every tensor of `wanted` an input and what computes it an output; the ops that compute each output.

    Without those that read NaN, which becomes an integer that is not defined, and those that read only constants.
    """
    parts = {}
    made = [v for node in graph.nodes for v in node.results if v.name in wanted]
    graph.outputs, graph.output_names = [], []
    for value in made:
        fed = graph.add_input(value.type, f"{value.name}{_FED}")
        value.replace_uses(fed)
        graph.outputs.append(value)
    for value in made:
        nodes = _before(value)
        values = [v for n in nodes for v in (*n.results, *n.operands) if v is not None]
        given = [wanted[v.name.removesuffix(_FED)] for v in values if v in graph.inputs]
        has_nan = any(np.isnan(a).any() for a in given if a.dtype.kind == "f")
        if given and not has_nan and any(v.is_quantized for v in values):
            parts[value.name] = tuple(node.op.name.removeprefix("tfl.") for node in nodes)
    graph.inputs = [v for v in graph.inputs if v.uses]
    return parts


def _before(value: Any) -> list[Any]:
    """The nodes that compute `value`, the last one first."""
    found = [value.producer]
    for node in found:
        found += [v.producer for v in node.present_operands if v.producer is not None]
    return list(dict.fromkeys(found))


def _unit(want: Array, nodes: Sequence[Any]) -> float:
    """What counts as a step: the largest one of what the part dequantizes, at least 1/1000 of the largest float."""
    if want.dtype.kind != "f":
        return 1.0
    made = [v.tensor_type.quantization for node in nodes for v in node.results if v.is_quantized]
    steps = [max(quantization.scales) for quantization in made if quantization is not None]
    return max([float(np.abs(want).max(initial=0)) / 1000, *steps]) or 1.0


def _difference(name: str, ops: Sequence[str], got: Array, want: Array, unit: float) -> Difference:
    """The difference in units."""
    if got.shape != want.shape:
        return Difference(name, tuple(ops), float("inf"), 1.0)
    steps = np.abs(got.astype(np.float64) - want.astype(np.float64)) / unit
    return Difference(name, tuple(ops), float(steps.max(initial=0)), float((steps > 1).mean()) if steps.size else 0.0)
