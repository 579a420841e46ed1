"""The function bodies of ONNX ops, as graphs.

Source: onnx.defs, both fixed bodies and context-dependent ones (by attributes and operand types).
"""

from __future__ import annotations

import functools
import io
from typing import Any

from onnx import FunctionProto, ModelProto, NodeProto, TypeProto, defs

from onnxtfl.errors import UnsupportedError
from onnxtfl.formats.onnx.definitions import schema
from onnxtfl.formats.onnx.encode import ValueWriter
from onnxtfl.formats.onnx.external import ExternalFiles
from onnxtfl.formats.onnx.graphs import GraphReader
from onnxtfl.formats.onnx.tensors import Tensors
from onnxtfl.ir.graph import Graph, Node
from onnxtfl.ir.types import Type

_DOMAIN = "onnxtfl.functions"


def body(node: Node) -> Graph | None:
    """The graph of `onnx` ops that defines `node`, with its operands as inputs; None where ONNX has none.

    Absent operands have an unused input. Context-dependent bodies need the types of the operands.
    """
    name = node.op.name.partition(".")[2]
    function = _function(node, name) if defined(name, node.op.version, node.op.domain) else None
    if function is None:
        return None
    function.domain, function.name = _DOMAIN, name
    model = ModelProto(functions=[function])
    if all(entry.domain for entry in function.opset_import):
        model.opset_import.add(version=defs.onnx_opset_version())
    (local,) = GraphReader(model, Tensors(None, ExternalFiles(None))).functions.values()
    return local.body(node)


def _function(node: Node, name: str) -> FunctionProto | None:
    function, definition = FunctionProto(), schema(name, node.op.version, node.op.domain)
    if definition.has_context_dependent_function:
        types = [_type(v.type if v is not None else None) for v in node.operands]
        versions = definition.context_dependent_function_opset_versions
        made = definition.get_context_dependent_function_with_opset_version(
            max(versions), _call(node, name).SerializeToString(), [t.SerializeToString() for t in types]
        )
        function.ParseFromString(made)
        return function if function.node else None
    function.CopyFrom(definition.function_body)
    return function


def _call(node: Node, name: str) -> NodeProto:
    call = NodeProto(op_type=name, domain=node.op.domain)
    call.input.extend("" if v is None else f"i{k}" for k, v in enumerate(node.operands))
    call.output.extend(f"o{k}" for k in range(len(node.results)))
    writer = ValueWriter({})
    for key, value in node.attributes.items():
        message = writer.attribute((name, node.op.version, node.op.domain), key, value, _no_graph)
        content = io.BytesIO()
        message.write(content)
        call.attribute.add().ParseFromString(content.getvalue())
    return call


def _no_graph(graph: Graph) -> Any:
    raise UnsupportedError("a function whose call has subgraphs cannot be expanded")


def _type(type_: Type | None) -> TypeProto:
    proto = TypeProto()
    if type_ is not None:
        ValueWriter({}).fill(proto, type_, "")
    return proto


@functools.cache
def defined(name: str, version: int, domain: str) -> bool:
    """Whether ONNX defines the op by a function body."""
    known = schema(name, version, domain)
    return known is not None and bool(known.has_function or known.has_context_dependent_function)
