"""Products of integers with zero points, and of operands that are quantized at run time.

=====================  ==========================================================
ONNX                   ConvInteger 10, MatMulInteger 10
com.microsoft          DynamicQuantizeMatMul, MatMulIntegerToFloat, MatMulInteger16
=====================  ==========================================================
"""

from __future__ import annotations

from onnxtfl.mappings.math.contraction import matmul
from onnxtfl.mappings.nn.convolution import convolved

from onnxtfl.build.operands import shifted
from onnxtfl.build.qlinear import (
    MICROSOFT,
    Quantized,
    dequantized,
    quantized_over_range,
)
from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.graph import Node, Value
from onnxtfl.rewriting.registry import lift_onnx


@lift_onnx("MatMulInteger16", since=(1,), domain=MICROSOFT)
@lift_onnx("MatMulInteger", since=(10,))
def _matmul_integer(b: Builder, node: Node) -> Value:
    lhs = shifted(b, node.operand(0), node.optional(2), -2)
    return matmul(b, lhs, shifted(b, node.operand(1), node.optional(3), -1))


@lift_onnx("MatMulIntegerToFloat", since=(1,), domain=MICROSOFT)
def _integer_matmul_to_float(b: Builder, node: Node) -> Value:
    if node.operand(2).is_constant:
        a, w = (dequantized(b, node, o) for o in (Quantized(0, 2, 4, -2), Quantized(1, 3, 5, -1)))
        product = matmul(b, a, w)
    else:
        product = _scaled_product(b, node, (node.operand(0), node.operand(2), node.optional(4)), (1, 3, 5))
    bias = node.optional(6)
    return product if bias is None else b(ops.Add, product, bias)


@lift_onnx("DynamicQuantizeMatMul", since=(1,), domain=MICROSOFT)
def _dynamic_matmul(b: Builder, node: Node) -> Value:
    """Quantize A to uint8 over its range, and multiply integers."""
    product, bias = _scaled_product(b, node, quantized_over_range(b, node.operand(0)), (1, 2, 3)), node.optional(4)
    return product if bias is None else b(ops.Add, product, bias)


def _scaled_product(
    b: Builder, node: Node, x: tuple[Value, Value, Value | None], weights: tuple[int, int, int]
) -> Value:
    """The integer product of `x` (integers, scale, zero point) and weights (places of these) times both scales."""
    stored, scale, zero = x
    w, w_scale, w_zero = node.operand(weights[0]), node.operand(weights[1]), node.optional(weights[2])
    product = matmul(b, shifted(b, stored, zero, -2), shifted(b, w, w_zero, -1))
    return b(ops.Mul, b(ops.Convert, product, dtype=scale.dtype), b(ops.Mul, scale, w_scale))


@lift_onnx("ConvInteger", since=(10,))
def _conv_integer(b: Builder, node: Node) -> Value:
    """Return Conv(x - x_zero, kernel - kernel_zero) in int32; the padding is 0 after the subtraction."""
    x, kernel = (shifted(b, node.operand(i), node.optional(i + 2), axis) for i, axis in ((0, 1), (1, 0)))
    return convolved(b, node, x, kernel, None)
