"""Helpers for StableHLO rules: lists of integers, index vectors, bodies of reductions."""

from __future__ import annotations

from onnxtfl.ir.graph import Graph, Node
from onnxtfl.ir.op import Op
from onnxtfl.ir.types import DType


def int_list(node: Node, name: str) -> list[int]:
    """The integers of attribute `name`; an empty list if it is absent."""
    return [int(n) for n in node.attr(name) or ()]


def body_as_it_is(node: Node) -> None:
    """Convert the body of an op as a region: the file has the types of its inputs."""


def combining_op(body: object) -> type[Op] | None:
    """The op of a lifted body that consists of one binary op on its two inputs; None for other bodies."""
    nodes = list(body.nodes) if isinstance(body, Graph) else []
    if len(nodes) != 1 or not isinstance(body, Graph) or set(nodes[0].operands) != set(body.inputs):
        return None
    return nodes[0].op


def summing_type(dtype: DType) -> DType:
    """The type in which ONNX Runtime multiplies matrices with a result of type `dtype`: integers have 32 or 64 bits."""
    return DType.INT32 if dtype is DType.BOOL or (dtype.is_integer and dtype.bits < 32) else dtype
