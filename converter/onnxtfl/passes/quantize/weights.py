"""Weights with a zero point, which int8 kernels refuse, get zero point 0 where that is exact.

::

    %w = constant : int8 0.5:3    ->    %w - 3 = constant : int8 0.5:0        if all elements of %w - 3 fit int8
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from onnxtfl.ir import ops
from onnxtfl.ir.data import ArrayData, TensorData, min_and_max
from onnxtfl.ir.graph import Node, Value, constant
from onnxtfl.ir.quantization import Quantization
from onnxtfl.ir.types import DType

_LARGEST = 64 << 20
"""The most bytes of weights with a zero point for each index of an axis, which are held in memory."""


def weights_of(node: Node) -> Value | None:
    """The constant 8-bit weights of a convolution or a product of matrices; None for other nodes."""
    if not issubclass(node.op, ops.Convolution | ops.DotGeneral):
        return None
    return node.operand(1) if is_eight_bit(node.operand(1)) else None


def is_eight_bit(value: Value) -> bool:
    """Whether `value` is a constant that is stored in 8 bits."""
    quantization = value.tensor_type.quantization
    return value.data is not None and quantization is not None and quantization.storage in ("int8", "uint8")


def centered(weights: Value) -> Value | None:
    """The same real values stored as int8 with zero point 0; None if one of the integers does not fit."""
    quantization, data = weights.tensor_type.quantization, weights.data
    assert quantization is not None and data is not None
    new = replace(quantization, storage="int8", zero_points=(0,) * len(quantization.zero_points))
    if new == quantization:
        return weights
    moved = _moved(data, quantization)
    return None if moved is None else constant(moved, type_=weights.tensor_type.stored_as(new))


def _moved(data: TensorData, quantization: Quantization) -> TensorData | None:
    """The integers minus their zero points, as int8."""
    zeros = set(quantization.zero_points)
    if len(zeros) == 1:
        (zero,) = zeros
        return data.cast(DType.INT8, -zero) if _fits(*min_and_max(data), zero) else None
    if quantization.block is not None or data.nbytes > _LARGEST:
        return None
    shape = [-1 if i == quantization.axis else 1 for i in range(len(data.shape))]
    stored = data.numpy().astype(np.int16) - np.asarray(quantization.zero_points, np.int16).reshape(shape)
    return ArrayData(stored.astype(np.int8)) if _fits(int(stored.min()), int(stored.max()), 0) else None


def _fits(low: int, high: int, zero: int) -> bool:
    return low - zero >= -128 and high - zero <= 127
