"""Constants of 2 and 4 bits: bytes read as elements, and elements packed in bytes so that arithmetic unpacks them."""

from __future__ import annotations

import functools
import math
from collections.abc import Hashable, Sequence

import numpy as np

from onnxtfl.ir.data import Array, TensorData, unpack
from onnxtfl.ir.dtypes import DType
from onnxtfl.ir.graph import Value

_SMALL = 16 << 10
"""Constants of fewer elements become larger types."""


class FieldData(TensorData):
    """The bytes of `base` as elements of fewer bits, low bits first."""

    def __init__(self, base: TensorData, dtype: DType, shape: Sequence[int]) -> None:
        self.base, self.dtype, self.shape = base, dtype, tuple(shape)

    @property
    def key(self) -> Hashable:
        return ("fields", self.base.key, self.dtype)

    def numpy(self) -> Array:
        return unpack(self.base.numpy().reshape(-1), self.dtype, self.shape)

    def slab(self, axis: int, start: int, stop: int) -> Array:
        bits = math.prod(self.shape[1:]) * self.dtype.bits
        if axis or bits % 8:
            return np.take(self.numpy(), range(start, stop), axis)
        rows = self.base.reshape((self.shape[0], bits // 8)).slab(0, start, stop)
        return unpack(rows.reshape(-1), self.dtype, (stop - start, *self.shape[1:]))


class ByteData(TensorData):
    """Bytes of packed elements of fewer bits, which fill whole bytes along the last axis, low bits first.

    Signed elements are stored plus half of their range.
    """

    dtype = DType.UINT8

    def __init__(self, base: TensorData) -> None:
        per = fields_per_byte(base.dtype)
        if not base.shape or base.shape[-1] % per:
            raise ValueError(f"rows of {base.shape} with {per} elements to a byte")
        self.base, self.shape = base, (*base.shape[:-1], base.shape[-1] // per)

    @property
    def key(self) -> Hashable:
        return ("bytes", self.base.key, self.shape)

    def slab(self, axis: int, start: int, stop: int) -> Array:
        per, bits = fields_per_byte(self.base.dtype), self.base.dtype.bits
        last = axis == len(self.shape) - 1
        part = self.base.slab(axis, start * per, stop * per) if last else self.base.slab(axis, start, stop)
        fields = [_fields(part[..., k::per], self.base.dtype) << bits * k for k in range(per)]
        return functools.reduce(np.bitwise_or, fields).astype(np.uint8)


class StackedFields(TensorData):
    """Elements of fewer bits packed in bytes: the first rows in the low bits, then those that follow.

    [per * n, ...] -> uint8 [n, ...]. Signed elements are stored plus half of their range.
    """

    dtype = DType.UINT8

    def __init__(self, base: TensorData) -> None:
        self.base, self.shape = base, (base.shape[0] // fields_per_byte(base.dtype), *base.shape[1:])

    @property
    def key(self) -> Hashable:
        return ("stacked", self.base.key, self.shape)

    def slab(self, axis: int, start: int, stop: int) -> Array:
        if axis:
            return np.take(self.numpy(), range(start, stop), axis)
        bits, rows = self.base.dtype.bits, self.shape[0]
        parts = (self.base.slab(0, k * rows + start, k * rows + stop) for k in range(8 // bits))
        fields = [_fields(part, self.base.dtype) << bits * k for k, part in enumerate(parts)]
        return functools.reduce(np.bitwise_or, fields).astype(np.uint8)


def fields_per_byte(dtype: DType) -> int:
    """Return the number of elements per byte."""
    return 8 // dtype.bits


def zero_offset(dtype: DType) -> int:
    """The offset of the stored elements of a type, which makes all of them nonnegative."""
    return 1 << (dtype.bits - 1) if dtype.is_signed else 0


def _fields(elements: Array, dtype: DType) -> Array:
    return (elements.astype(np.int16) + zero_offset(dtype)) & ((1 << dtype.bits) - 1)


def packed_bytes(data: TensorData) -> StackedFields | None:
    """Return `data`, perhaps flattened, as packed bytes; None if the elements do not fill whole bytes."""
    per = fields_per_byte(data.dtype)
    if data.size % per:
        return None
    return StackedFields(data if data.shape and data.shape[0] % per == 0 else data.reshape((data.size,)))


def is_packed(x: Value) -> bool:
    """Whether `x` is a constant of fewer than 8 bits that is large enough to stay in packed bytes, and fills them."""
    data = x.data
    if data is None or data.size < _SMALL or not data.dtype.is_integer or data.dtype.bits >= 8:
        return False
    return data.size % fields_per_byte(data.dtype) == 0
