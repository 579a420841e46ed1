"""Complex numbers of two parts, the parts, and the absolute value.

ONNX Runtime has no complex kernels: :mod:`onnxtfl.passes.types.complex_numbers` splits them into real tensors.
"""

from __future__ import annotations

from onnxtfl.build.operands import formula
from onnxtfl.build.rows import row
from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.formula import Term
from onnxtfl.ir.graph import Node, Value
from onnxtfl.ir.ops.complex_numbers import REAL_OF
from onnxtfl.ir.reshape import broadcast, stacked_along
from onnxtfl.ir.types import DType
from onnxtfl.rewriting.registry import decompose, lift_tfl

row(ops.Real, tfl="REAL")
row(ops.Imag, tfl="IMAG")
formula(ops.Real)(lambda x: None if x.dtype in REAL_OF else x)
formula(ops.Imag)(lambda x: None if x.dtype in REAL_OF else _zeros_like(x))


def _zeros_like(x: Term) -> Term:
    return x.constant(0).apply(ops.BroadcastTo, Term(x.b, x.b(ops.Shape, x.value)))


@lift_tfl("COMPLEX_ABS")
def _complex_abs(b: Builder, node: Node) -> Value:
    return b(ops.Abs, node.operand(0))


@decompose(ops.Complex, "tfl", when=lambda node: node.operand(0).dtype is DType.FLOAT32)
def bits_of_pairs(b: Builder, node: Node) -> Value:
    """Join the parts along a new last axis, whose bits are those of the complex numbers."""
    parts = [broadcast(b, node.operand(i), node.result.shape, node.operand(1 - i)) for i in (0, 1)]
    return b(ops.BitcastConvert, stacked_along(b, parts, node.result.rank), dtype=DType.COMPLEX64)
