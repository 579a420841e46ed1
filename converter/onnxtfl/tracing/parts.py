"""Parts of a model, cut at tensors, as separate files, with the ops of the source file; weights are streamed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from onnxtfl.formats import files
from onnxtfl.ir.data import Array
from onnxtfl.ir.graph import Graph
from onnxtfl.ir.types import DType, SequenceType, TensorType, TupleType, Type
from onnxtfl.passes.boundary.parts import cut, set_input_shapes
from onnxtfl.passes.canonical.inline import inline_functions
from onnxtfl.pipeline import lifted_where_possible
from onnxtfl.runtimes import RunOptions, Worker
from onnxtfl.temporary import Folder

if TYPE_CHECKING:
    from onnx import ModelProto

Shapes = Mapping[str, Sequence[int | str]]


def prepare_source(
    source: Path,
    stack: ExitStack,
    inputs: Sequence[str] | None,
    outputs: Sequence[str] | None,
    shapes: Shapes,
    signature: str | None = None,
) -> Path:
    """Return a model file with the inputs and outputs of the converted model: ``source`` if nothing was cut, and its
    runtime loads it.

    ``inputs``, ``outputs``: names of the tensors at which it was cut, None for all. ``shapes``: sizes by input name.
    ``signature``: the entry point, None for the first subgraph. A part is in a temporary directory that exists while
    ``stack`` is open.
    """
    if inputs is None and outputs is None and signature is None and not _changes_sizes(source, shapes):
        return loadable(source, stack)
    target = temporary_directory(stack) / f"part.{files.sniff(source)}"
    write_part(source, target, inputs, outputs, shapes, signature)
    return target


def loadable(model: Path, stack: ExitStack) -> Path:
    """The path of a model file that its runtime loads: of a .litertlm, a .tflite in a temporary directory."""
    if not files.is_container(model):
        return model
    return files.write(files.read(model), temporary_directory(stack) / f"{model.stem}.tflite")


def _changes_sizes(source: Path, shapes: Shapes) -> bool:
    """Whether ``shapes`` has another size than a static one of the file, which its runtime would refuse."""
    if not shapes or files.sniff(source) != "onnx":
        return False
    graph = files.read(source).main
    tensors = {value.name for value in graph.inputs if isinstance(value.type, TensorType)}
    return set_input_shapes(graph, {name: shape for name, shape in shapes.items() if name in tensors})


def write_part(
    source: Path,
    target: Path,
    inputs: Sequence[str] | None,
    outputs: Sequence[str] | None,
    shapes: Shapes,
    signature: str | None = None,
) -> None:
    """Write the part of the main graph, or of the graph of ``signature``, from the tensors ``inputs`` to ``outputs``
    (None: the model's own).

    Its ops are those of the file, calls of functions inlined. Raises `UsageError` for names that do not exist.
    """
    model = files.read(source)
    if signature is not None:
        model.enter(signature)
    inline_functions(model)
    if set_input_shapes(model.main, shapes, inputs):
        _forget_shapes(model.main)
    results = [value for node in model.main.nodes for value in node.results]
    unknown = [v for v in results if v.name in (inputs or ()) and not isinstance(v.type, TensorType)]
    unknown += [v for v in results if v.name in (outputs or ()) and v.type is None]
    if unknown:
        known = {v.name for v in model.main.inputs}
        types = types_of(source, {name: shape for name, shape in shapes.items() if name in known})
        for value in unknown:
            value.type = types.get(value.name or "")
    names = cut(model.main, inputs, outputs)
    model.main.output_names = names or model.main.output_names
    model.signatures, model.subgraphs = [], []
    files.write(model, target)


def _forget_shapes(graph: Graph) -> None:
    """Remove the shapes of results, which are invalid for another size of an input."""
    for node in graph.walk():
        for value in node.results:
            if isinstance(value.type, TensorType) and value.type.quantization is None:
                value.type = value.type.with_shape(None)


def tensor_inside(source: Path, name: str, worker: Worker, values: list[Any], options: RunOptions) -> Array:
    """Return the value of the inner tensor ``name`` of a model for the inputs ``values``. Raises `OnnxtflError`."""
    with ExitStack() as stack:
        return np.asarray(worker.run(prepare_source(source, stack, None, [name], {}), values, options)[0])


def save(model: ModelProto, target: Path) -> Path:
    """Write a model in memory to ``target``, calls of functions inlined; returns ``target``."""
    read = files.read(model)
    inline_functions(read)
    return files.write(read, target)


def temporary_directory(stack: ExitStack) -> Path:
    """Return a directory that exists while ``stack`` is open."""
    return stack.enter_context(Folder())


def types_of(source: Path, shapes: Shapes) -> dict[str, Type]:
    """Return the types of the tensors of a file, as far as its ops can be lifted."""
    model = files.read(source)
    set_input_shapes(model.main, shapes)
    types: dict[str, Type] = {}
    for node in lifted_where_possible(model).nodes:
        for value in (*node.operands, *node.results):
            if value is not None and value.origin is not None and value.type is not None:
                types[value.origin.tensor] = _type_in_file(value.type)
    return types


def _type_in_file(type_: Type) -> Type:
    """The type in the file of a value with `type_` in the lifted graph."""
    if not isinstance(type_, TupleType):
        return type_
    elements = [t for t in type_.elements if isinstance(t, TensorType)]
    return SequenceType(elements[0].with_shape(None)) if elements else SequenceType(TensorType(DType.FLOAT32, None))
