"""Weights with a scale for each block of a row in the form of 4-bit kernels, computed when they are written.

Kernels read signed integers of 4 bits, positive scales in float16, and no zero points. A row of integers q of 4 bits,
or of bytes 16 h + l, with scales s and zero points z is, for each block, exactly ::

    s (q - z)           =  s (q' + 8 - z)              q' = q - 8                  s > 0
                        = |s| (q' + z - 7)             q' = 7 - q                  s < 0
    s (16 h + l - z)    = 16 s h' + s l' + s (136 - z) h' = h - 8, l' = l - 8      s > 0
                        = ... + |s| (z - 119)          h' = 7 - h, l' = 7 - l      s < 0

so that a product has a term for the zero points, times the sum of the block's elements of the other operand. For
integers of 2 bits, 2 and 1 replace 8 and 7. Blocks of 16 elements are the sum of two matrices with blocks of 32, in
each of which every other half of a block is 0 (`HalvesData`).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable, Iterator

import numpy as np

from onnxtfl.ir.data import Array, FileData, FilledData, TensorData, unpack
from onnxtfl.ir.dtypes import DType
from onnxtfl.ir.packed import ByteData, FieldData

LEAST_HALF = 2.0**-14
"""The least scale that kernels read: the least normal float16."""
LARGEST_HALF = 2.0**15


class PackedRows(TensorData):
    """Integers of 4 bits [rows, columns], which `packed` computes as bytes."""

    dtype = DType.INT4

    @abstractmethod
    def packed(self, start: int, stop: int) -> Array:
        """Some rows as packed bytes [rows, columns / 2]."""

    def slab(self, axis: int, start: int, stop: int) -> Array:
        part = slice(start, stop) if axis == 0 else slice(None)
        rows = unpack(self.packed(0, self.shape[0]).reshape(-1), self.dtype, self.shape) if axis else None
        if rows is not None:
            return rows[:, start:stop]
        return unpack(self.packed(part.start, part.stop).reshape(-1), self.dtype, (stop - start, self.shape[1]))

    def chunks(self) -> Iterator[Array]:
        step = max(1, _STRIP // self.shape[1])
        for start in range(0, self.shape[0], step):
            yield self.packed(start, min(start + step, self.shape[0])).reshape(-1)


class NibbleData(PackedRows):
    """The integers q' of 4 bits: those of `stored`, or their high (`plane` 1) or low (0) 4 bits."""

    def __init__(self, stored: TensorData, scales: TensorData, plane: int = 0) -> None:
        self.stored, self.scales, self.plane, self.shape = stored, scales, plane, stored.shape
        self._bytes = bytes_of(stored)

    @property
    def key(self) -> Hashable:
        return ("nibbles", self.stored.key, self.shape, self.scales.key, self.plane)

    def packed(self, start: int, stop: int) -> Array:
        found, dtype = self._bytes.slab(0, start, stop), self.stored.dtype
        offset = np.uint8(0 if dtype.bits == 2 or dtype is DType.INT4 else 0x88)  # the sign bit of both elements
        if dtype.bits == 8:
            signed = np.uint8(0x80 if dtype.is_signed else 0)
            even, odd = found[:, ::2] ^ signed, found[:, 1::2] ^ signed
            found = even >> 4 | odd & 0xF0 if self.plane else even & 15 | odd << 4
        elif dtype.bits == 2:
            found = np.take(_of_two_bits(dtype.is_signed), found).view(np.uint8).reshape(len(found), -1)
        negative = self.scales.slab(0, start, stop) < 0
        return _inverted(found, np.where(negative, ~offset, offset) if negative.any() else offset)


class HalvesData(PackedRows):
    """The integers of `base`, of which those in every other half of blocks of 32 are 0: in the second halves for
    `half` 0, in the first for 1.
    """

    def __init__(self, base: NibbleData, half: int) -> None:
        self.base, self.half, self.shape = base, half, base.shape

    @property
    def key(self) -> Hashable:
        return ("halves of blocks", self.base.key, self.half)

    def packed(self, start: int, stop: int) -> Array:
        found = self.base.packed(start, stop)
        found.reshape(-1, 2, 8)[:, 1 - self.half] = 0
        return found


class AlternateData(TensorData):
    """Every other column of a matrix, from the first or the second on."""

    def __init__(self, base: TensorData, first: int) -> None:
        self.base, self.first, self.dtype = base, first, base.dtype
        self.shape = (base.shape[0], len(range(first, base.shape[1], 2)))

    @property
    def key(self) -> Hashable:
        return ("alternate", self.base.key, self.base.shape, self.first)

    def slab(self, axis: int, start: int, stop: int) -> Array:
        if axis:
            return self.numpy()[:, start:stop]
        return self.base.slab(0, start, stop)[:, self.first :: 2]


def _of_two_bits(is_signed: bool) -> Array:
    """For each byte of four integers of 2 bits, these minus 2 (unsigned ones) as two bytes of 4 bits."""
    fields = unpack(np.arange(256, dtype=np.uint8), DType.INT2 if is_signed else DType.UINT2, (256, 4)).astype(np.int8)
    nibbles = (fields if is_signed else fields - 2) & 15
    pairs = (nibbles[:, ::2] | nibbles[:, 1::2] << 4).astype(np.uint8)
    return np.ascontiguousarray(pairs).view(np.uint16).reshape(256)


def _inverted(rows: Array, masks: Array | np.uint8) -> Array:
    """The bytes of each block of `rows` with the bits in its mask, or in the one of all blocks, inverted.

    Blocks of a multiple of 8 bytes as words, in strided passes over all blocks: NumPy's inner loops over the bytes of
    one block take three times as long.
    """
    if not isinstance(masks, np.ndarray):
        return np.bitwise_xor(rows, masks) if masks else rows
    blocks = np.ascontiguousarray(rows).reshape(*masks.shape, -1)
    if blocks.shape[2] % 8:
        return np.asarray(blocks ^ masks[:, :, None]).reshape(rows.shape)
    words, result = blocks.view(np.uint64), np.empty_like(blocks)
    wide = masks.astype(np.uint64) * np.uint64(0x0101010101010101)
    for i in range(words.shape[2]):
        np.bitwise_xor(words[:, :, i], wide, out=result.view(np.uint64)[:, :, i])
    return result.reshape(rows.shape)


class HalfScales(TensorData):
    """The absolute values of scales [rows, blocks] times a factor, as float16, at least the least normal one."""

    dtype = DType.FLOAT16

    def __init__(self, scales: TensorData, factor: float) -> None:
        self.scales, self.factor, self.shape = scales, factor, scales.shape

    @property
    def key(self) -> Hashable:
        return ("halves", self.scales.key, self.factor)

    def slab(self, axis: int, start: int, stop: int) -> Array:
        return halves(self.scales.slab(axis, start, stop), self.factor)


class OffsetData(TensorData):
    """The terms for zero points [rows, blocks] in float32: the offset of each block times its scale."""

    dtype = DType.FLOAT32

    def __init__(self, stored: DType, scales: TensorData, zeros: TensorData | None, factor: float) -> None:
        self.stored, self.scales, self.zeros, self.factor, self.shape = stored, scales, zeros, factor, scales.shape

    @property
    def key(self) -> Hashable:
        zeros = None if self.zeros is None else self.zeros.key
        return ("offsets", self.stored, self.scales.key, zeros, self.factor)

    def slab(self, axis: int, start: int, stop: int) -> Array:
        scales, zeros = self.scales.slab(axis, start, stop), points(self.zeros, axis, start, stop)
        return offsets(self.stored, scales, zeros) * halves(scales, self.factor).astype(np.float32)


def halves(scales: Array, factor: float) -> Array:
    """The scales that kernels read, without their sign."""
    found = np.maximum(np.abs(scales.astype(np.float32)) * np.float32(factor), np.float32(LEAST_HALF))
    return found.astype(np.float16)


def points(zeros: TensorData | None, axis: int, start: int, stop: int) -> Array | int:
    """A part of zero points: one number if all are equal, as far as it is known."""
    if zeros is None or isinstance(zeros, FilledData):
        return 0 if zeros is None else int(zeros.number)
    return zeros.slab(axis, start, stop)


def offsets(stored: DType, scales: Array, zeros: Array | int) -> Array:
    """What is added to the integers q', in float32, so that zero points are 0."""
    half = (1 << stored.bits - 1) if stored.is_signed else 0
    least, largest = {2: (2, 1), 4: (8, 7), 8: (136, 119)}[stored.bits]
    point = np.asarray(zeros, np.float32) + np.float32(half)
    return np.where(scales < 0, point - largest, least - point).astype(np.float32)


def bytes_of(data: TensorData) -> TensorData:
    """The bytes [rows, bytes of a row] of a matrix of 2-bit, 4-bit or 8-bit integers."""
    rows, width = data.shape[0], data.shape[1] * data.dtype.bits // 8
    if isinstance(data, FieldData):
        return data.base.reshape((rows, width))
    if isinstance(data, FileData):
        return FileData(data.file, data.offset, DType.UINT8, (rows, width))
    if data.dtype.bits == 8:
        return data if data.dtype is DType.UINT8 else _Unsigned(data)
    return ByteData(data) if not data.dtype.is_signed else _SignedBytes(data)


class _Unsigned(TensorData):
    """int8 read as uint8."""

    dtype = DType.UINT8

    def __init__(self, base: TensorData) -> None:
        self.base, self.shape = base, base.shape

    @property
    def key(self) -> Hashable:
        return ("unsigned", self.base.key)

    def slab(self, axis: int, start: int, stop: int) -> Array:
        return np.ascontiguousarray(self.base.slab(axis, start, stop)).view(np.uint8)


class _SignedBytes(ByteData):
    """Packed elements in two's complement."""

    def slab(self, axis: int, start: int, stop: int) -> Array:
        return super().slab(axis, start, stop) ^ np.uint8(0x88 if self.base.dtype.bits == 4 else 0xAA)


_STRIP = 16 << 20
"""Elements that are read at a time."""
