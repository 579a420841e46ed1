"""Helpers for StableHLO rules: lists of integers, index vectors, bodies of reductions and comparators."""

from __future__ import annotations

from collections.abc import Sequence

from onnxtfl.ir.builder import Builder
from onnxtfl.ir.graph import Graph, Node, Value
from onnxtfl.ir.op import Elementwise, Op
from onnxtfl.ir.ops.casts import BitcastConvert
from onnxtfl.ir.reshape import transposed, unsqueezed
from onnxtfl.ir.types import DType
from onnxtfl.rewriting.regions import copy_region


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


def is_elementwise(body: Graph) -> bool:
    """Whether a lifted body of scalars consists of ops that are computed element by element on tensors too."""
    return all(issubclass(node.op, Elementwise) or _keeps_width(node) for node in body.nodes)


def _keeps_width(node: Node) -> bool:
    return node.op is BitcastConvert and node.operand(0).dtype.bits == node.result.dtype.bits


def applied(b: Builder, body: Graph, operands: Sequence[Value], outputs: Sequence[Value] | None = None) -> list[Value]:
    """The outputs (or `outputs`, values in it) of an elementwise body on tensors, which broadcast."""
    if outputs is not None:
        body.outputs = list(outputs)
    return copy_region(b, body, operands)


def shown_ops(body: Graph) -> str:
    """The ops of a body, for messages."""
    return ", ".join(dict.fromkeys(node.op.name for node in body.nodes)) or "no op"


def summing_type(dtype: DType) -> DType:
    """The type in which ONNX Runtime multiplies matrices with a result of type `dtype`: integers have 32 or 64 bits."""
    return DType.INT32 if dtype is DType.BOOL or (dtype.is_integer and dtype.bits < 32) else dtype
