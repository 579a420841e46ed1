"""The verifier of the invariants of a graph between two passes."""

from __future__ import annotations

from onnxtfl.errors import OnnxtflError
from onnxtfl.ir.builder import infer
from onnxtfl.ir.graph import Graph, Node, Value
from onnxtfl.ir.quantized import may_declare
from onnxtfl.ir.types import TensorType, compatible


class VerifyError(OnnxtflError):
    """An invalid graph after a pass: a bug in the converter, not an error in the user's file."""

    default_code = "E-INT-002"


def verify(graph: Graph, where: str = "") -> None:
    """Check order, uses, owners and types of `graph` and its regions; VerifyError names the first invalid node."""
    visible: set[Value] = set(graph.inputs) | {s.input for s in graph.states}
    for node in graph.nodes:
        _verify_node(graph, node, visible, where)
        visible.update(node.results)
        for inner in node.regions:
            verify(inner, where)
    for value in graph.outputs:
        if value not in visible and not value.is_constant:
            raise VerifyError(f"{where}: the output {value!r} is not defined")


def _verify_node(graph: Graph, node: Node, visible: set[Value], where: str) -> None:
    def fail(message: str) -> VerifyError:
        return VerifyError(f"{where}: {message}", node=node.name, op=node.op.name)

    if node.graph is not graph:
        raise fail("the node is owned by another graph")
    for i, value in enumerate(node.operands):
        if value is None:
            continue
        if (node, i) not in value.uses:
            raise fail(f"this use is missing among the uses of operand {i}")
        if not value.is_constant and value not in visible:
            raise fail(f"operand {i} ({value!r}) is not defined before its use")
        if not _is_consistent(value):
            raise fail(f"the data or scales of operand {i} ({value!r}) do not fit its type")
    for i, result in enumerate(node.results):
        if result.producer is not node or result.index != i:
            raise fail(f"result {i} has a different producer")
        if not _is_consistent(result):
            raise fail(f"the scales of result {i} ({result!r}) do not fit its type")
    if node.op.dialect == "neutral":
        _verify_types(node, where)


def _is_consistent(value: Value) -> bool:
    """Whether the scales of a quantized type fit its shape, and the data of a constant fits its type."""
    type_, data = value.type, value.data
    if not isinstance(type_, TensorType):
        return data is None
    if type_.quantization is not None and not (type_.dtype.is_float and type_.quantization.fits(type_.shape)):
        return False
    return data is None or (data.dtype is type_.storage and data.shape == type_.shape)


def _verify_types(node: Node, where: str) -> None:
    try:
        types = infer(node)
    except OnnxtflError as error:
        raise VerifyError(f"{where}: {error.message}", node=node.name, op=node.op.name, type_=error.type_) from error
    if len(types) != len(node.results):
        raise VerifyError(f"{where}: {len(node.results)} results, {len(types)} expected", op=node.op.name)
    for inferred, result in zip(types, node.results, strict=True):
        wanted, declared = inferred, result.type
        if isinstance(inferred, TensorType) and isinstance(declared, TensorType) and may_declare(node, inferred):
            wanted = inferred.stored_as(declared.quantization)
        if not compatible(wanted, declared):
            message = f"{where}: result is {declared}, inferred {inferred}"
            raise VerifyError(message, op=node.op.name, node=node.name)
