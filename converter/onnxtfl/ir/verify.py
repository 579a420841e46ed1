"""The verifier: what must hold of every graph between two passes."""

from __future__ import annotations

from onnxtfl.errors import OnnxtflError
from onnxtfl.ir.builder import infer
from onnxtfl.ir.dims import Shape
from onnxtfl.ir.graph import Graph, Node, Value
from onnxtfl.ir.types import TensorType, Type


class VerifyError(OnnxtflError):
    """A pass broke the graph; a bug of ours, never of the user's file."""


def verify(graph: Graph, where: str = "") -> None:
    """Check order, uses, owners and types of `graph` and its subgraphs; VerifyError names the first node at fault."""
    visible: set[Value] = set(graph.inputs) | {s.input for s in graph.states}
    for node in graph.nodes:
        _verify_node(graph, node, visible, where)
        visible.update(node.results)
        for inner in node.regions:
            verify(inner, where)
    for value in graph.outputs:
        if value not in visible and not value.is_constant:
            raise VerifyError(f"{where}: output {value!r} is made by nobody")


def _verify_node(graph: Graph, node: Node, visible: set[Value], where: str) -> None:
    def fail(message: str) -> VerifyError:
        return VerifyError(f"{where}: {message}", node=node.name, op=node.op.name)

    if node.graph is not graph:
        raise fail("stands in a graph that does not own it")
    for i, value in enumerate(node.operands):
        if value is None:
            continue
        if (node, i) not in value.uses:
            raise fail(f"operand {i} does not know this use")
        if not value.is_constant and value not in visible:
            raise fail(f"operand {i} ({value!r}) is not made before")
    for i, result in enumerate(node.results):
        if result.producer is not node or result.index != i:
            raise fail(f"result {i} has another producer")
    if node.op.dialect == "neutral":
        _verify_types(node, where)


def _verify_types(node: Node, where: str) -> None:
    try:
        types = infer(node)
    except OnnxtflError as error:
        raise VerifyError(f"{where}: {error.message}", node=node.name, op=node.op.name, type_=error.type_) from error
    if len(types) != len(node.results):
        raise VerifyError(f"{where}: {len(node.results)} results, {len(types)} expected", op=node.op.name)
    for inferred, result in zip(types, node.results, strict=True):
        if not _compatible(inferred, result.type):
            message = f"{where}: result is {result.type}, inferred {inferred}"
            raise VerifyError(message, op=node.op.name, node=node.name)


def _compatible(a: Type | None, b: Type | None) -> bool:
    if isinstance(a, TensorType) and isinstance(b, TensorType):
        return a.dtype is b.dtype and shapes_compatible(a.shape, b.shape)
    return a == b


def shapes_compatible(a: Shape | None, b: Shape | None) -> bool:
    """Whether two shapes can be the same at run time."""
    if a is None or b is None:
        return True
    return len(a) == len(b) and all(
        x == y or not (isinstance(x, int) and isinstance(y, int)) for x, y in zip(a, b, strict=True)
    )
