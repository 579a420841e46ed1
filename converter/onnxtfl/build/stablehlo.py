"""Helpers for StableHLO rules: lists of integers, index vectors, and the op in the body of a reduction."""

from __future__ import annotations

from onnxtfl.ir.builder import Builder
from onnxtfl.ir.graph import Graph, Node, Value
from onnxtfl.ir.op import Op
from onnxtfl.ir.reshape import transposed, unsqueezed


def int_list(node: Node, name: str) -> list[int]:
    """The integers of attribute `name`; an empty list if it is absent."""
    return [int(n) for n in node.attr(name) or ()]


def index_vectors(b: Builder, node: Node, indices: Value) -> Value:
    """`indices` with the axis of index vectors (`index_vector_dim`) last."""
    axis = int(node.attr("index_vector_dim"))
    if axis == indices.rank:
        return unsqueezed(b, indices, [axis])
    return transposed(b, indices, [*(a for a in range(indices.rank) if a != axis), axis])


def combining_op(body: object) -> type[Op] | None:
    """The op of a lifted body that consists of one binary op on its two inputs; None for other bodies."""
    nodes = list(body.nodes) if isinstance(body, Graph) else []
    if len(nodes) != 1 or not isinstance(body, Graph) or set(nodes[0].operands) != set(body.inputs):
        return None
    return nodes[0].op
