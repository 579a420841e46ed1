"""The source model as the conversion saw it: the part that was cut out, with the shapes that were asked for."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from onnxtfl.checking.part_tflite import write_tflite_part
from onnxtfl.runtimes.describe import load_onnx, sniff

LARGEST_PROTO = 2**31 - 2**20


def prepare_source(
    source: Path,
    stack: ExitStack,
    inputs: Sequence[str] | None,
    outputs: Sequence[str] | None,
    shapes: Mapping[str, Sequence[int]],
) -> Path:
    """Return a model file that takes and gives what the converted one does: ``source`` itself where nothing changed.

    ``inputs``, ``outputs``: names of the tensors at which it was cut, None for all. ``shapes``: sizes by input name.
    A changed model lies in a temporary directory for as long as ``stack`` is open.
    """
    if inputs is None and outputs is None and not shapes:
        return source
    if sniff(source) == "tflite":
        target = _temporary(stack) / "part.tflite"
        write_tflite_part(source, target, inputs, outputs, shapes)
        return target
    model = load_onnx(source)
    if inputs is None and outputs is None and not _conflict(model.graph, shapes):
        return source
    _cut(model, inputs, outputs or [value.name for value in model.graph.output])
    _reshape(model.graph, shapes)
    _load_external(model, source.parent)
    return save_onnx(model, _temporary(stack) / "part.onnx")


def _temporary(stack: ExitStack) -> Path:
    return Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="onnxtfl-", ignore_cleanup_errors=True)))


def save_onnx(model: Any, path: Path) -> Path:
    """Write an ``onnx.ModelProto``, past 2 GB with its weights in a file beside it; returns ``path``."""
    import onnx

    beside = model.ByteSize() > LARGEST_PROTO
    onnx.save(model, os.fspath(path), save_as_external_data=beside, location=path.name + ".data" if beside else None)
    return path


def _conflict(graph: Any, shapes: Mapping[str, Sequence[int]]) -> bool:
    """Tell whether an input has a fixed size where another one is asked for."""
    for value in graph.input:
        dims = value.type.tensor_type.shape.dim
        for dim, size in zip(dims, shapes.get(value.name, ()), strict=False):
            if dim.dim_value not in (0, size):
                return True
    return False


def _cut(model: Any, inputs: Sequence[str] | None, outputs: Sequence[str]) -> None:
    """Keep the nodes between ``inputs`` (None: the model's own) and ``outputs``."""
    graph = model.graph
    typed = _typed_values(model, {*(inputs or ()), *outputs})
    stops = set(inputs or ())
    kept = _needed(graph.node, outputs, stops)
    used = {name for node in kept for name in _operands(node)} | set(outputs)
    _replace(graph.node, kept)
    _replace(graph.initializer, [tensor for tensor in graph.initializer if tensor.name in used - stops])
    own = [value for value in graph.input if value.name not in stops and (inputs is None or value.name in used)]
    if inputs is not None:
        own = [typed[name] for name in inputs]
    _replace(graph.input, own)
    _replace(graph.output, [typed[name] for name in outputs])
    del graph.value_info[:]


def _typed_values(model: Any, names: Collection[str]) -> dict[str, Any]:
    """Return a ValueInfoProto for each name, with its type as far as the file or shape inference knows it."""
    from onnx import ValueInfoProto, shape_inference

    def known(graph: Any) -> dict[str, Any]:
        return {value.name: value for value in (*graph.value_info, *graph.input, *graph.output)}

    found = known(model.graph)
    if not all(name in found for name in names):
        with suppress(RuntimeError, ValueError):  # where it cannot infer, the runtime will say what it needs
            found = {**known(shape_inference.infer_shapes(model).graph), **found}
    return {name: found.get(name) or ValueInfoProto(name=name) for name in names}


def _needed(nodes: Sequence[Any], outputs: Iterable[str], stops: Collection[str]) -> list[Any]:
    """Return the nodes that ``outputs`` depend on, not looking behind ``stops``, in their order."""
    producers = {name: k for k, node in enumerate(nodes) for name in node.output if name}
    pending, wanted = [name for name in outputs if name not in stops], set()
    while pending:
        k = producers.get(pending.pop())
        if k is not None and k not in wanted:
            wanted.add(k)
            pending.extend(name for name in _operands(nodes[k]) if name not in stops)
    return [nodes[k] for k in sorted(wanted)]


def _operands(node: Any) -> list[str]:
    """Return the names that a node and its subgraphs use."""
    names = [name for name in node.input if name]
    for attribute in node.attribute:
        for body in (*attribute.graphs, *([attribute.g] if attribute.HasField("g") else [])):
            names += [name for inner in body.node for name in _operands(inner)]
            names += [value.name for value in body.output]
    return names


def _reshape(graph: Any, shapes: Mapping[str, Sequence[int]]) -> None:
    """Give inputs the sizes asked for; what the file says about other values may no longer hold."""
    for value in graph.input:
        for dim, size in zip(value.type.tensor_type.shape.dim, shapes.get(value.name, ()), strict=False):
            if size > 0:
                dim.dim_value = size
    for value in graph.output if shapes else ():
        value.type.tensor_type.ClearField("shape")
    del graph.value_info[:]


def _load_external(model: Any, directory: Path) -> None:
    from onnx import external_data_helper

    external_data_helper.load_external_data_for_model(model, os.fspath(directory))


def _replace(field: Any, values: Sequence[Any]) -> None:
    """Set a repeated protobuf field."""
    copies = [type(value).FromString(value.SerializeToString()) for value in values]
    del field[:]
    field.extend(copies)
