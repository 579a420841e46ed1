"""A part of a .tflite file, or the same with other input sizes, as a file (see `part`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from onnxtfl.errors import UsageError


def write_tflite_part(
    source: Path,
    target: Path,
    inputs: Sequence[str] | None,
    outputs: Sequence[str] | None,
    shapes: Mapping[str, Sequence[int]],
) -> None:
    """Write what lies between the tensors ``inputs`` and ``outputs`` (None: the model's own) of the main subgraph.

    The tensors keep the names that were asked for; signatures go. ``shapes``: sizes by input name. The weights are
    held in memory.
    """
    import flatbuffers
    from ai_edge_litert import schema_py_generated as schema

    model = schema.ModelT.InitFromPackedBuf(source.read_bytes(), 0)
    graph = model.subgraphs[0]
    names = _names(model, graph)
    graph.inputs = [_find(names, name) for name in inputs] if inputs is not None else list(graph.inputs)
    graph.outputs = [_find(names, name) for name in outputs] if outputs is not None else list(graph.outputs)
    graph.operators = _needed(graph.operators, graph.outputs, set(graph.inputs))
    for name, index in names.items():
        if index in (*graph.inputs, *graph.outputs):
            graph.tensors[index].name = name
    for name, shape in shapes.items():
        tensor = graph.tensors[_find(names, name)]
        tensor.shape = [size if size > 0 else old for size, old in zip(shape, tensor.shape, strict=True)]
        tensor.shapeSignature = None
    model.signatureDefs = []
    builder = flatbuffers.Builder(1 << 16)
    builder.Finish(model.Pack(builder), b"TFL3")
    target.write_bytes(builder.Output())


def _names(model: Any, graph: Any) -> dict[str, int]:
    """Return the tensors of the main subgraph by name; the signature's names count for more than the tensors'."""
    names = {_text(tensor.name): index for index, tensor in reversed(list(enumerate(graph.tensors)))}
    for signature in model.signatureDefs or ():
        if signature.subgraphIndex == 0:
            names |= {_text(m.name): m.tensorIndex for m in (*signature.inputs, *signature.outputs)}
    return names


def _find(names: Mapping[str, int], name: str) -> int:
    if name not in names:
        raise UsageError(f"the model has no tensor {name!r}")
    return names[name]


def _needed(operators: Sequence[Any], outputs: Iterable[int], stops: set[int]) -> list[Any]:
    """Return the operators that ``outputs`` depend on, not looking behind ``stops``, in their order."""
    wanted, kept = set(outputs) - stops, []
    for operator in reversed(operators):
        if wanted & set(operator.outputs):
            wanted |= {int(index) for index in operator.inputs} - stops
            kept.append(operator)
    return kept[::-1]


def _text(name: Any) -> str:
    return name.decode("utf-8", "replace") if isinstance(name, bytes) else str(name or "")
