"""The function bodies of ONNX ops, as graphs.

Source: onnx.defs, both fixed bodies and context-dependent ones (by attributes and operand types).
"""

from __future__ import annotations

import functools
import io
from typing import Any

from onnx import AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto, TypeProto, defs

from onnxtfl.errors import UnsupportedError
from onnxtfl.formats.onnx.definitions import schema
from onnxtfl.formats.onnx.encode import ValueWriter
from onnxtfl.formats.onnx.external import ExternalFiles
from onnxtfl.formats.onnx.graphs import GraphReader
from onnxtfl.formats.onnx.tensors import Tensors
from onnxtfl.ir.cloning import clone
from onnxtfl.ir.graph import Graph, Node
from onnxtfl.ir.types import Type

_DOMAIN = "onnxtfl.functions"


def body(node: Node) -> Graph | None:
    """The graph of `onnx` ops that defines `node`, with its operands as inputs; None if ONNX has none.

    Absent operands have an unused input. Context-dependent bodies need the types of the operands.
    """
    name = node.op.name_in_file
    if not defined(name, node.op.version, node.op.domain):
        return None
    if node.regions:
        return _body_with_regions(node, name)
    return _plain_body(node, name)


def _plain_body(node: Node, name: str) -> Graph | None:
    function = _function(node, name)
    if function is None:
        return None
    function.domain, function.name = _DOMAIN, name
    model = ModelProto(functions=[function])
    if all(entry.domain for entry in function.opset_import):
        model.opset_import.add(version=defs.onnx_opset_version())
    (local,) = GraphReader(model, Tensors(None, ExternalFiles(None))).functions.values()
    return local.body(node)


def _body_with_regions(node: Node, name: str) -> Graph | None:
    """The body of an op whose attributes are graphs.

    ONNX builds the body with placeholders, graphs of one op each, which are then replaced by the nodes of the graphs.
    """
    captures = int(node.attributes["captures"])
    own, attributes = len(node.operands) - captures, dict(node.attributes)
    del attributes["captures"]
    for key, value in node.attributes.items():
        if isinstance(value, Graph):
            attributes[key] = _stand_in(key, value, len(value.inputs) - captures)
    call = Node(node.op, node.operands[:own], attributes)
    for result in node.results:
        call.add_result(result.type)
    graph = _plain_body(call, name)
    for i in range(own):
        call.set_operand(i, None)
    if graph is None:
        return None
    captured = [graph.add_input(None if v is None else v.type) for v in node.operands[own:]]
    for inner in graph.nodes:
        if inner.op.domain == _DOMAIN:
            region = clone(node.attributes[inner.op.name_in_file])
            graph.splice(region, [*inner.operands, *captured], inner)
            graph.replace(inner, region.outputs, retyped=True)
    return graph


def _stand_in(name: str, region: Graph, inputs: int) -> GraphProto:
    """A placeholder: a graph of one op `name` with the inputs and outputs of `region`."""
    proto = GraphProto(name=name)
    for values, infos, letter in ((region.inputs[:inputs], proto.input, "i"), (region.outputs, proto.output, "o")):
        for i, value in enumerate(values):
            info = infos.add(name=f"{letter}{i}")
            if value.type is not None:
                ValueWriter({}).fill(info.type, value.type, "")
    names = [[info.name for info in infos] for infos in (proto.input, proto.output)]
    proto.node.add(op_type=name, domain=_DOMAIN, input=names[0], output=names[1])
    return proto


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
        if isinstance(value, GraphProto):
            call.attribute.add(name=key, type=AttributeProto.GRAPH, g=value)
            continue
        message = writer.attribute((name, node.op.version, node.op.domain), key, value, _no_graph)
        content = io.BytesIO()
        message.write(content)
        call.attribute.add().ParseFromString(content.getvalue())
    return call


def _no_graph(graph: Graph) -> Any:
    raise UnsupportedError("a function whose call has lists of subgraphs cannot be expanded", code="E-OP-005")


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
