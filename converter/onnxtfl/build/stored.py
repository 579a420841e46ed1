"""Quantized constants without a dequantize kernel stay compressed: arithmetic on the stored integers."""

from __future__ import annotations

from dataclasses import replace

from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.formula import Term
from onnxtfl.ir.graph import Node, Value, constant
from onnxtfl.ir.packed import is_packed, packed_bytes, zero_offset
from onnxtfl.ir.quantized import scale_and_zero_point
from onnxtfl.ir.reshape import reshape
from onnxtfl.ir.types import DType, TensorType
from onnxtfl.ir.unpacking import fields_of


def stored_dequantized(b: Builder, x: Value) -> Value:
    """Return the real values of a quantized constant from its stored integers and explicit parameters."""
    quantization, type_ = x.tensor_type.quantization, x.tensor_type
    assert quantization is not None and x.data is not None
    stored = constant(x.data, type_=TensorType(quantization.dtype, type_.shape))
    blocks = None if quantization.block is None else quantization.blocked(x.data.shape)
    scale, zeros = scale_and_zero_point(quantization, blocks)
    zero = zeros if any(quantization.zero_points) else None
    axis, block = quantization.axis or 0, quantization.block or 0
    return b(ops.DequantizeLinear, stored, scale, zero, axis=axis, block_size=block, dtype=type_.dtype)


def unpack_constant(b: Builder, x: Value) -> tuple[Term, int] | None:
    """A constant of fewer than 8 bits as float32 computed from packed bytes, and the offset of these values.

    None for other values, and for small constants. [n] with 4 bits: floor(byte / 16), byte - 16 * floor(byte / 16).
    """
    data = packed_bytes(x.data) if x.data is not None and is_packed(x) else None
    if data is None:
        return None
    fields = fields_of(Term(b, constant(data)).to(DType.FLOAT32), x.dtype.bits)
    whole = b(ops.Concatenate, *(field.value for field in fields), axis=0)
    return Term(b, reshape(b, whole, x.shape)), zero_offset(x.dtype)


def stored_in_bytes(x: Value) -> Value:
    """Store a quantized constant of fewer than 8 bits in 8 bits."""
    quantization, data = x.tensor_type.quantization, x.data
    assert quantization is not None and data is not None
    wide = DType.INT8 if quantization.dtype.is_signed else DType.UINT8
    return constant(data.cast(wide), type_=x.tensor_type.stored_as(replace(quantization, storage=wide.value)))


def has_weights_of_few_bits(node: Node) -> bool:
    """Whether a convolution or product of quantized activations has constant weights of fewer than 8 bits."""
    x, weights = node.operand(0), node.operand(1)
    quantization = weights.tensor_type.quantization if x.is_quantized and weights.is_constant else None
    return quantization is not None and quantization.block is None and quantization.dtype.bits < 8


def with_weights_in_bytes(b: Builder, node: Node) -> Value:
    """Store the weights in 8 bits: integer kernels for 8-bit or 16-bit activations take no fewer in every runtime."""
    x, weights, *bias = node.operands
    assert weights is not None
    return b(node.op, x, stored_in_bytes(weights), *bias, **node.attributes)
