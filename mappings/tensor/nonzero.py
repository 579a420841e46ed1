"""The indices of nonzero elements: ONNX NonZero 9 13, TFLite WHERE (without operands to choose from)."""

from __future__ import annotations

from onnxtfl.build.operands import formula
from onnxtfl.build.rows import row
from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.graph import Node, Value
from onnxtfl.ir.reshape import reshape
from onnxtfl.ir.types import DType
from onnxtfl.rewriting.registry import Form, lift_onnx, lift_tfl, lower_tfl


@lift_onnx("NonZero", since=(9, 13))
def _nonzero(b: Builder, node: Node) -> Value:
    """A scalar is treated as a vector of one element (measured in ONNX Runtime)."""
    x = truth(b, node.operand(0))
    return b(ops.NonZero, reshape(b, x, (1,)) if x.tensor_type.rank == 0 else x)


def truth(b: Builder, x: Value) -> Value:
    """Return x != 0."""
    return x if x.dtype is DType.BOOL else b(ops.Compare, x, b.scalar(0, x), comparison_direction="NE")


@lower_tfl(ops.NonZero)
def _to_tfl_where(node: Node) -> Form | None:
    """WHERE has bool operands and returns the transposed indices."""
    x, columns = node.operand(0), node.result.tensor_type
    if x.dtype is not DType.BOOL:
        return None
    rows = columns.with_shape(None if columns.shape is None else columns.shape[::-1])
    return Form("WHERE", (x,), types=(rows,), finish=lambda b, found: [b(ops.Transpose, *found, permutation=(1, 0))])


row(ops.NonZero, onnx="NonZero", lifts=False)
formula(ops.NonZero, "tfl")(lambda x: None if x.dtype is DType.BOOL else x.differs(0).apply(ops.NonZero))


@lift_tfl("WHERE")
def _where(b: Builder, node: Node) -> Value:
    return b(ops.Transpose, b(ops.NonZero, truth(b, node.operand(0))), permutation=(1, 0))
