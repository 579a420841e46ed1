"""Reads an ONNX file as a Model of `onnx` ops, unchanged; weights are memory-mapped."""

from __future__ import annotations

from onnx import ModelProto

from onnxtfl.errors import InvalidModelError
from onnxtfl.formats.onnx.definitions import model_opsets
from onnxtfl.formats.onnx.external import ExternalFiles
from onnxtfl.formats.onnx.graphs import GraphReader
from onnxtfl.formats.onnx.metadata import read_metadata
from onnxtfl.formats.onnx.tensors import Tensors
from onnxtfl.formats.onnx.wire import reduced_model
from onnxtfl.formats.source import Content, format_of, named, open_source
from onnxtfl.ir.data import PathLike
from onnxtfl.ir.model import Model


def read(source: PathLike | Content | ModelProto) -> Model:
    """The model in `source` (a path, the bytes of a file, or a message), with graphs of `onnx` ops.

    Nodes are `foreign("onnx", op_type, since_version, domain)` with the since-version for the model's opset; the opset
    itself where ONNX does not define the op, 1 in domains that are not imported. Attributes are int, float, str
    (bytes where not UTF-8), TensorData, Type, Graph, and tuples of these; flags are 0 or 1. A subgraph uses no value of
    the outer graph: its captured values are operands of the node, after the node's own, and inputs of each subgraph of
    the node, after its own; the attribute `captures` counts them. Captured constants are constants of the subgraph
    instead. Initializers are constants, also those that are listed as inputs with a default. Calls of the model's own
    functions are nodes of their domain, an overload after a colon (`passes.canonical.inline` inlines them). Values
    have the types that the file declares: inputs and outputs always, others may have none.

    Weights of more than a kilobyte stay in the file (or in the bytes) and are read on access: the file must not change
    until the model is written.

    Raises InvalidModelError for invalid models, UnsupportedError for element types and kinds of values that the IR
    lacks. Source: onnx.proto and IR.md of the ONNX specification.
    """
    with named(source):
        if isinstance(source, ModelProto):
            return _model(source, Tensors(None, ExternalFiles(None)))
        opened = open_source(source)
        format_of(opened, "onnx")
        model, detached = reduced_model(opened)
        return _model(model, Tensors(detached, ExternalFiles(None if isinstance(source, Content) else opened.path)))


def _model(model: ModelProto, tensors: Tensors) -> Model:
    if not model.HasField("graph") or not model.graph.output:
        raise InvalidModelError("not an ONNX model: it has no graph with outputs", code="E-FILE-004")
    versions = model_opsets(model.opset_import)
    if not versions and model.ir_version < 3:
        versions = {"": 1}  # files older than opset_import
    reader = GraphReader(model, tensors)
    graph = reader.graph(model.graph, versions)
    for value in graph.inputs:
        if value.type is None:
            raise InvalidModelError(f"the input {value.name!r} has no type")
    return Model(
        graph,
        "onnx",
        functions=reader.functions,
        metadata=read_metadata(model),
        opsets=versions,
        dim_names={symbol: name for name, symbol in reader.types.names.items()},
        map_columns=reader.columns,
        data_files=tensors.external.paths(),
    )
