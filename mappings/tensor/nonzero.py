"""The indices of nonzero elements: ONNX NonZero 9 13, TFLite WHERE (without operands to choose from)."""

from __future__ import annotations

from onnxtfl.build.operands import formula
from onnxtfl.build.rows import row
from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.graph import Node, Value
from onnxtfl.ir.reshape import reshape
from onnxtfl.ir.types import DType
from onnxtfl.rewriting.registry import Form, decompose, lift_onnx, lift_tfl, lower_tfl


@lift_onnx("NonZero", since=(9, 13))
def _nonzero(b: Builder, node: Node) -> Value:
    return b(ops.NonZero, is_nonzero(b, node.operand(0)))


def is_nonzero(b: Builder, x: Value) -> Value:
    """Return x != 0."""
    return x if x.dtype is DType.BOOL else b(ops.Compare, x, b.scalar(0, x), comparison_direction="NE")


@lower_tfl(ops.NonZero)
def _to_tfl_where(node: Node) -> Form | None:
    """WHERE has bool operands of one axis or more and returns the transposed indices."""
    x, columns = node.operand(0), node.result.tensor_type
    if x.dtype is not DType.BOOL or x.tensor_type.rank == 0:
        return None
    rows = columns.with_shape(None if columns.shape is None else columns.shape[::-1])
    return Form("WHERE", (x,), types=(rows,), finish=lambda b, found: [b(ops.Transpose, *found, permutation=(1, 0))])


row(ops.NonZero, onnx="NonZero", lifts=False)
formula(ops.NonZero, "tfl")(lambda x: None if x.dtype is DType.BOOL else x.differs(0).apply(ops.NonZero))


@decompose(ops.NonZero, "tfl", when=lambda node: node.operand(0).tensor_type.rank == 0, benefit=1)
def _of_scalar(b: Builder, node: Node) -> Value:
    return b(ops.NonZero, reshape(b, node.operand(0), (1,)))


@lift_tfl("WHERE")
def _where(b: Builder, node: Node) -> Value:
    return b(ops.Transpose, b(ops.NonZero, is_nonzero(b, node.operand(0))), permutation=(1, 0))
