"""The parts of complex numbers, and their absolute value.

ONNX Runtime has no complex kernels: :mod:`onnxtfl.passes.types.complex_numbers` splits them into real tensors.
"""

from __future__ import annotations

from onnxtfl.build.operands import formula
from onnxtfl.build.rows import row
from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.graph import Node, Value
from onnxtfl.ir.ops.complex_numbers import REAL_OF
from onnxtfl.rewriting.registry import lift_tfl

row(ops.Real, tfl="REAL")
row(ops.Imag, tfl="IMAG")
formula(ops.Real)(lambda x: None if x.dtype in REAL_OF else x)
formula(ops.Imag)(lambda x: None if x.dtype in REAL_OF else x * 0)


@lift_tfl("COMPLEX_ABS")
def _complex_abs(b: Builder, node: Node) -> Value:
    return b(ops.Abs, node.operand(0))
