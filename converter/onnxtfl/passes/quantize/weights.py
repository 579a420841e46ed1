"""Weights with a zero point, which int8 kernels refuse, get zero point 0 where that is exact.

::

    %w = constant : int8 0.5:3    ->    %w - 3 = constant : int8 0.5:0        if all elements of %w - 3 fit int8
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from onnxtfl.ir import ops
from onnxtfl.ir.data import Array, ArrayData, TensorData, min_and_max
from onnxtfl.ir.graph import Node, Value, constant
from onnxtfl.ir.quantization import Quantization, limits
from onnxtfl.ir.types import DType

SIGNED = -127
"""The least weight of kernels that quantize activations at run time: LiteRT's FULLY_CONNECTED without XNNPACK negates
weights in int8, and returns wrong values for -128. Source: LiteRT kernels/internal/optimized/sse_tensor_utils.cc.
"""
_MOST = 127
LARGEST = 64 << 20
"""The most bytes of weights with a zero point for each index of an axis, which are held in memory."""


def weights_of(node: Node) -> Value | None:
    """The constant weights of a convolution or a product of matrices whose zero points may have to become 0.

    These are weights of 8 bits, and of fewer bits unless they have zero point 0 or scales of blocks. None for others.
    """
    if not issubclass(node.op, ops.Convolution | ops.DotGeneral):
        return None
    weights = node.operand(1)
    return weights if is_eight_bit(weights) or _has_few_bits_and_a_zero_point(weights) else None


def _has_few_bits_and_a_zero_point(value: Value) -> bool:
    quantization = value.tensor_type.quantization
    if value.data is None or quantization is None or quantization.block is not None:
        return False
    return quantization.dtype.bits < 8 and (not quantization.dtype.is_signed or any(quantization.zero_points))


def is_matrix_product(node: Node) -> bool:
    """Whether this is [..., k] times a matrix."""
    lhs, rhs, roles = node.operand(0), node.operand(1), ops.DotRoles.of(node)
    is_last = lhs.tensor_type.rank is not None and roles.lhs_contract == (lhs.rank - 1,)
    return is_last and lhs.rank > 1 and rhs.tensor_type.rank == 2 and not node.attr("output_permutation")


def is_eight_bit(value: Value) -> bool:
    """Whether `value` is a constant that is stored in 8 bits."""
    quantization = value.tensor_type.quantization
    return value.data is not None and quantization is not None and quantization.storage in ("int8", "uint8")


def centered(weights: Value, least: int = -128) -> Value | None:
    """The same real values stored as int8 from `least` with zero point 0; None if an integer does not fit."""
    quantization, data = weights.tensor_type.quantization, weights.data
    assert quantization is not None and data is not None
    new = with_zeros(quantization)
    if new == quantization and least == -128:
        return weights
    moved = _moved(data, quantization, least)
    return None if moved is None else constant(moved, type_=weights.tensor_type.stored_as(new))


def with_zeros(quantization: Quantization) -> Quantization:
    """The parameters of int8 with zero point 0 and the same scales."""
    return replace(quantization, storage="int8", zero_points=(0,) * len(quantization.zero_points))


def zero_points_along(quantization: Quantization, rank: int) -> Array:
    """The zero points as int16 that broadcast to a tensor of `rank` axes."""
    return quantization.along(np.asarray(quantization.zero_points, np.int16), rank)


def _moved(data: TensorData, quantization: Quantization, least: int) -> TensorData | None:
    """The integers minus their zero points, as int8."""
    zeros = set(quantization.zero_points)
    if len(zeros) == 1:
        (zero,) = zeros
        low, high = min_and_max(data) if data.dtype.bits >= 8 else limits(quantization.dtype)
        return data.cast(DType.INT8, -zero) if least <= low - zero and high - zero <= _MOST else None
    if quantization.block is not None or data.nbytes > LARGEST:
        return None
    stored = data.numpy().astype(np.int16) - zero_points_along(quantization, len(data.shape))
    return ArrayData(stored.astype(np.int8)) if least <= stored.min() and stored.max() <= _MOST else None


def within_columns(data: TensorData, zeros: Array, axis: int) -> tuple[TensorData, Array] | None:
    """Matrices of 8 bits as int8 from -127, and the zero points that are left, one or one for each column.

    `axis`: the one that columns extend along; `zeros`: one or one for each column. None if a column has integers that
    span more than these.
    """
    low, high = min_and_max(data)
    for offset in {*np.unique(zeros).astype(int).tolist()[:1], 128 if data.dtype is DType.UINT8 else 0}:
        if low - offset >= SIGNED and high - offset <= _MOST:
            return data.cast(DType.INT8, -offset), zeros - offset
    if data.nbytes > LARGEST:
        return None
    stored = data.numpy().astype(np.int16)
    least, most = stored.min(axis), stored.max(axis)
    fits = (least - zeros >= SIGNED) & (most - zeros <= _MOST)
    offsets = np.where(fits, zeros, (least + most + 1) // 2).astype(np.int16)
    moved = stored - np.expand_dims(offsets, axis)
    return (ArrayData(moved.astype(np.int8)), zeros - offsets) if (most - least <= _MOST - SIGNED).all() else None
