"""Products of matrices that ONNX stores as integers: with zero points, quantized, or weights of few bits.

=====================  ==========================================================================================
ONNX                   MatMulInteger 10, QLinearMatMul 10 21
com.microsoft          DynamicQuantizeMatMul, MatMulIntegerToFloat, MatMulNBits, MatMulBnb4, QGemm,
                       MatMulInteger16
=====================  =========================================================================================="""

from __future__ import annotations

import numpy as np
from onnxtfl.mappings.contraction import contracted, matmul

from onnxtfl.rules import *


@lift_onnx("MatMulInteger16", since=(1,), domain=MICROSOFT)
@lift_onnx("MatMulInteger", since=(10,))
def _matmul_integer(b: Builder, node: Node) -> Value:
    lhs = shifted(b, node.operand(0), node.optional(2), -2)
    return matmul(b, lhs, shifted(b, node.operand(1), node.optional(3), -1))


_INTEGER_MATMUL = QLinearRow("MatMul", 13, (Quantized(0, 1, 2, -2), Quantized(3, 4, 5, -1)), result=(6, 7))
qlinear("QLinearMatMul", (10, 21), _INTEGER_MATMUL)
qoperator("QLinearMatMul", _INTEGER_MATMUL)


@lower_quantized("Gemm", "QGemm", MICROSOFT)
def _quantized_gemm(node: Node, form: Form) -> Form | None:
    """The bias is an int32 in steps of both scales; weights may have a scale for each column."""
    lhs, rhs, bias, y = form.operands[0], form.operands[1], (*form.operands, None)[2], quantization_of(node.result)
    flags = {k: form.attributes[k] for k in ("alpha", "transA", "transB")}
    if y is None or not y.per_tensor:
        return None
    a, w = quantized_operand(lhs, y.storage), quantized_operand(rhs, y.storage, 1 - flags["transB"])
    if a is None or w is None or not bias_in_steps(bias, a, w):
        return None
    return Form("QGemm", (lhs, *parameters(a), rhs, *parameters(w), bias, *parameters(y)), flags, domain=MICROSOFT)


@lift_onnx("QGemm", since=(1,), domain=MICROSOFT)
def _integer_gemm(b: Builder, node: Node) -> Value:
    """alpha * A @ B + C in steps of alpha * (scale of A) * (scale of B)."""
    columns = 0 if node.attr("transB", 0) else 1
    a, w = (dequantized(b, node, o) for o in (Quantized(0, 1, 2), Quantized(3, 4, 5, columns)))
    alpha, bias = float(node.attr("alpha", 1.0)), node.optional(6)
    c = None
    if bias is not None:
        c = dequantized_bias(b, bias, node.operand(1), node.operand(4))
        c = c if alpha == 1 else b(ops.Mul, c, b.scalar(alpha, c))
    flags = {k: v for k, v in node.attributes.items() if k in ("transA", "transB", "alpha")}
    real = lifted(b, "Gemm", 13, [a, w, c], flags)
    scale = node.optional(7)
    return real if scale is None else quantized(b, real, scale, node.optional(8), node.operand(0).dtype)


@lift_onnx("MatMulIntegerToFloat", since=(1,), domain=MICROSOFT)
def _integer_matmul_to_float(b: Builder, node: Node) -> Value:
    a, w = (dequantized(b, node, o) for o in (Quantized(0, 2, 4, -2), Quantized(1, 3, 5, -1)))
    product, bias = matmul(b, a, w), node.optional(6)
    return product if bias is None else b(ops.Add, product, bias)


@lift_onnx("DynamicQuantizeMatMul", since=(1,), domain=MICROSOFT)
def _dynamic_matmul(b: Builder, node: Node) -> Value:
    """A is quantized to uint8 over its range, and then dequantized."""
    stored, scale, zero = quantized_over_range(b, node.operand(0))
    a = b(ops.DequantizeLinear, stored, scale, zero, axis=0)
    product, bias = matmul(b, a, dequantized(b, node, Quantized(1, 2, 3, -1))), node.optional(4)
    return product if bias is None else b(ops.Add, product, bias)


# --- weights of few bits ----------------------------------------------------------------------------------------------


@lift_onnx("MatMulNBits", since=(1,), domain=MICROSOFT)
def _matmul_of_blocks(b: Builder, node: Node) -> Value:
    """A @ W.T with W [n, k] of 2, 4 or 8 bits, quantized in blocks along k; the zero point is half of the range."""
    if node.optional(4) is not None:
        raise UnsupportedError("the operand g_idx, which reorders the blocks")
    k, n, bits, block = (int(node.attributes[name]) for name in ("K", "N", "bits", "block_size"))
    packed, count = node.operand(1).data, -(-k // block)
    if packed is None or bits not in _OF_BITS:
        raise UnsupportedError(f"weights of {bits} bits that are not constants of 2, 4 or 8 bits")
    weights = constant(FieldData(packed, _OF_BITS[bits], (n, count * block)))
    scale = reshape(b, node.operand(2), [n, count])
    zero = _zero_points(node.optional(3), _OF_BITS[bits], (n, count))
    real = b(ops.DequantizeLinear, weights, scale, zero, axis=1, block_size=block)
    real = sliced(b, real, {1: slice(0, k)})
    product = contracted(b, node.operand(0), real, node.operand(0).rank - 1, 1)
    bias = node.optional(5)
    return product if bias is None else b(ops.Add, product, bias)


_OF_BITS = {2: DType.UINT2, 4: DType.UINT4, 8: DType.UINT8}


@lift_onnx("MatMulBnb4", since=(1,), domain=MICROSOFT)
def _matmul_of_bitsandbytes(b: Builder, node: Node) -> Value:
    """A @ W.T with W [n, k] of 4-bit floats, the first one in the high bits, times the largest size in their block.

    The weights are written as float32. Source: ONNX Runtime, contrib_ops MatMulBnb4.
    """
    k, n, block, kind = (int(node.attributes[name]) for name in ("K", "N", "block_size", "quant_type"))
    packed, largest = node.operand(1), node.operand(2)
    if not packed.is_constant or not largest.is_constant:
        raise UnsupportedError("weights of 4 bits that are not constants")
    if kind not in _FOUR_BITS or not node.attr("transB", 1) or k * n % 2:
        raise UnsupportedError(f"quant_type {kind}, transB {node.attr('transB', 1)} and weights [{n}, {k}]")
    fields = packed.numpy().reshape(-1)
    codes = np.stack([fields >> 4, fields & 15], axis=1).reshape(-1)
    if block < 1:
        raise ValueError(f"block_size is {block}")
    scales = np.repeat(np.asarray(largest.numpy().reshape(-1), np.float32), min(block, k * n))[: k * n]
    weights = (np.asarray(_FOUR_BITS[kind], np.float32)[codes] * scales).reshape(n, k)
    a = node.operand(0)
    return contracted(b, a, constant(weights.astype(a.dtype.numpy)), a.rank - 1, 1)


_SIZES = (0, 1 / 192, 2 / 3, 1, 1 / 3, 1 / 2, 1 / 6, 1 / 4)
_NORMAL_BELOW = (1, 0.6961928, 0.52507305, 0.3949175, 0.28444138, 0.18477343, 0.09105004)
_NORMAL_ABOVE = (0.0795803, 0.1609302, 0.2461123, 0.33791524, 0.44070983, 0.562617, 0.72295684, 1)
_FOUR_BITS = {0: (*_SIZES, *(-x for x in _SIZES)), 1: (*(-x for x in _NORMAL_BELOW), 0, *_NORMAL_ABOVE)}
"""The values of the 16 codes by `quant_type`: FP4 and NF4 of bitsandbytes."""


def _zero_points(zero: Value | None, dtype: DType, shape: tuple[int, int]) -> Value:
    """One for each block; the fields of a row fill whole bytes. Source: ONNX Runtime, contrib_ops MatMulNBits."""
    rows, count = shape
    if zero is None:
        return constant(ArrayData(np.full(shape, 1 << (dtype.bits - 1)).astype(dtype.numpy), dtype))
    if zero.dtype is not DType.UINT8 or zero.data is None:
        raise UnsupportedError(f"zero points of {zero.dtype.value} that are not constants of uint8")
    per = 8 // dtype.bits
    fields = FieldData(zero.data, dtype, (rows, -(-count // per) * per)).numpy()
    return constant(ArrayData(np.ascontiguousarray(fields[:, :count]), dtype))
