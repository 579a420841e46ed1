"""ONNX's ops on quantized operands with explicit parameters (the QOperator format), lifted and written.

Most are rows: the float op, which operands are (elements, scale, zero point), and the parameters of the result.

=============  ====================================================================================================
ONNX           QLinearConv 10, QLinearMatMul 10 21
com.microsoft  QLinearConv, QLinearAdd, QLinearMul, QLinearWhere, QLinearSigmoid, QLinearLeakyRelu, QLinearSoftmax,
               QLinearAveragePool, QLinearGlobalAveragePool, QLinearReduceMean, QLinearConcat, QGemm
=============  ====================================================================================================
"""

from __future__ import annotations

import math

import numpy as np

from onnxtfl.build.qlinear import (
    MICROSOFT,
    QLinearRow,
    Quantized,
    dequantized,
    dequantized_bias,
    lift_op,
    qlinear,
    quantized,
)
from onnxtfl.build.qoperator import bias_in_steps, qoperator, quantized_operand
from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.graph import Node, Value, constant
from onnxtfl.ir.quantized import quantization_of, scale_and_zero_point
from onnxtfl.ir.types import DType
from onnxtfl.rewriting.registry import Form, lift_onnx, lower_quantized

_X, _XY = (Quantized(0, 1, 2),), (Quantized(0, 1, 2), Quantized(3, 4, 5))
_CONV = QLinearRow("Conv", 22, _XY, result=(6, 7), bias=8)
_MATMUL = QLinearRow("MatMul", 13, (Quantized(0, 1, 2, -2), Quantized(3, 4, 5, -1)), result=(6, 7))
_MICROSOFT_ROWS = (
    QLinearRow("Add", 14, _XY, result=(6, 7)),
    QLinearRow("Mul", 14, _XY, result=(6, 7)),
    QLinearRow("Where", 16, (0, Quantized(1, 2, 3), Quantized(4, 5, 6)), result=(7, 8)),
    QLinearRow("Sigmoid", 13, _X, result=(3, 4)),
    QLinearRow("LeakyRelu", 16, _X, result=(3, 4)),
    QLinearRow("AveragePool", 22, _X, result=(3, 4)),
    QLinearRow("GlobalAveragePool", 22, _X, result=(3, 4)),
)

qlinear("QLinearConv", (10,), _CONV)
qlinear("QLinearConv", (1,), _CONV, MICROSOFT)
qoperator("QLinearConv", _CONV)
qlinear("QLinearMatMul", (10, 21), _MATMUL)
qoperator("QLinearMatMul", _MATMUL)
qlinear("QLinearReduceMean", (1,), QLinearRow("ReduceMean", 13, _X, result=(3, 4)), MICROSOFT)
for _row in _MICROSOFT_ROWS:
    qlinear(f"QLinear{_row.of}", (1,), _row, MICROSOFT)
    qoperator(f"QLinear{_row.of}", _row, MICROSOFT)


@lift_onnx("QLinearSoftmax", since=(1,), domain=MICROSOFT)
def _quantized_softmax(b: Builder, node: Node) -> Value:
    """QLinearSoftmax; `opset` is that of the original Softmax."""
    version = 13 if node.attr("opset", 13) >= 13 else 11
    real = lift_op(b, "Softmax", version, [dequantized(b, node, Quantized(0, 1, 2))], {"axis": node.attr("axis", -1)})
    scale, zero, dtype = node.operand(3), node.optional(4), node.operand(0).dtype
    return quantized(b, _in_whole_steps(b, real, scale, dtype), scale, zero, dtype)


def _in_whole_steps(b: Builder, x: Value, scale: Value, dtype: DType) -> Value:
    """Multiply by `scale` * floor(1 / `scale`) where that is below 1 by more than rounding.

    ONNX Runtime's kernel multiplies by floor(1 / scale), which is 254 for the 1 / 255 of most quantizers in float32:
    results are half a step lower on average. Source: core/providers/cpu/quantization qlinear_softmax.cc (`c_y_scale`).
    The product is one of integers, which rescales the kernel's steps of 1 / 256 as a QUANTIZE does.
    """
    step = float(scale.numpy().item()) if scale.data is not None and scale.data.size == 1 else 0.0
    steps = float(np.float32(1) / np.float32(step)) if step > 0 else 0.0
    if steps < 1 or steps - math.floor(steps) < _LEAST_LOSS:
        return x
    lowest, most = constant(np.asarray(np.iinfo(dtype.numpy).min, dtype.numpy)), np.iinfo(dtype.numpy).max
    fine = b.scalar(2.0**-8, x)
    grid = b(ops.DequantizeLinear, quantized(b, x, fine, lowest, dtype), fine, lowest)
    factor = np.float32(step * math.floor(steps) / most)
    whole = b(ops.DequantizeLinear, constant(np.asarray(most, dtype.numpy)), constant(np.asarray(factor)))
    return b(ops.Mul, grid, whole)


_LEAST_LOSS = 0.05
"""The part of a step that a result of 1 has to lose."""


@lower_quantized("Softmax", "QLinearSoftmax", MICROSOFT)
def _softmax_on_quantized(node: Node, form: Form) -> Form | None:
    y = quantization_of(node.result)
    x = None if y is None else quantized_operand(form.operands[0], y.storage)
    if x is None or y is None or not y.per_tensor:
        return None
    attributes = {**form.attributes, "opset": 13}
    return Form(
        "QLinearSoftmax",
        (form.operands[0], *scale_and_zero_point(x), *scale_and_zero_point(y)),
        attributes,
        domain=MICROSOFT,
    )


@lift_onnx("QLinearConcat", since=(1,), domain=MICROSOFT)
def _quantized_concat(b: Builder, node: Node) -> Value:
    """Operands: scale and zero point of the result, then elements, scale and zero point of each part."""
    parts = [dequantized(b, node, Quantized(i, i + 1, i + 2)) for i in range(2, len(node.operands), 3)]
    joined = lift_op(b, "Concat", 13, parts, {"axis": node.attr("axis")})
    return quantized(b, joined, node.operand(0), node.operand(1), node.operand(2).dtype)


@lower_quantized("Concat", "QLinearConcat", MICROSOFT)
def _concat_on_quantized(node: Node, form: Form) -> Form | None:
    y = quantization_of(node.result)
    found = [None if y is None else quantized_operand(v, y.storage) for v in form.operands]
    if y is None or not y.per_tensor or None in found:
        return None
    parts = [each for v, q in zip(form.operands, found, strict=True) if q for each in (v, *scale_and_zero_point(q))]
    return Form("QLinearConcat", (*scale_and_zero_point(y), *parts), form.attributes, domain=MICROSOFT)


@lower_quantized("Gemm", "QGemm", MICROSOFT)
def _quantized_gemm(node: Node, form: Form) -> Form | None:
    """QGemm: the bias is int32 with scale a_scale * b_scale; weights may have a scale per column."""
    lhs, rhs, bias, y = form.operands[0], form.operands[1], (*form.operands, None)[2], quantization_of(node.result)
    flags = {k: form.attributes[k] for k in ("alpha", "transA", "transB")}
    if y is None or not y.per_tensor:
        return None
    a, w = quantized_operand(lhs, y.storage), quantized_operand(rhs, y.storage, 1 - flags["transB"])
    if a is None or w is None or not bias_in_steps(bias, a, w):
        return None
    return Form(
        "QGemm",
        (lhs, *scale_and_zero_point(a), rhs, *scale_and_zero_point(w), bias, *scale_and_zero_point(y)),
        flags,
        domain=MICROSOFT,
    )


@lift_onnx("QGemm", since=(1,), domain=MICROSOFT)
def _integer_gemm(b: Builder, node: Node) -> Value:
    """Return alpha * A @ B + C as integers with scale alpha * a_scale * b_scale."""
    columns = 0 if node.attr("transB", 0) else 1
    a, w = (dequantized(b, node, o) for o in (Quantized(0, 1, 2), Quantized(3, 4, 5, columns)))
    alpha, bias = float(node.attr("alpha", 1.0)), node.optional(6)
    c = None
    if bias is not None:
        c = dequantized_bias(b, bias, node.operand(1), node.operand(4))
        c = c if alpha == 1 else b(ops.Mul, c, b.scalar(alpha, c))
    flags = {k: v for k, v in node.attributes.items() if k in ("transA", "transB", "alpha")}
    real = lift_op(b, "Gemm", 13, [a, w, c], flags)
    scale = node.optional(7)
    return real if scale is None else quantized(b, real, scale, node.optional(8), node.operand(0).dtype)
