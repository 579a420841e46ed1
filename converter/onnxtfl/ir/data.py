"""Tensor data that stays where it is: arrays, ranges of files, and lazy transforms of them.

Nothing here is read before somebody asks, and whoever writes reads it in chunks: a weight of 500 MB costs a buffer of
a few MB. Two data objects with equal `key` hold the same bytes (their shapes may differ), so shared weights are stored
once.
"""

from __future__ import annotations

import hashlib
import itertools
import math
import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterator, Sequence
from pathlib import Path

import numpy as np

from onnxtfl.errors import InvalidModelError
from onnxtfl.ir.dtypes import Array, DType, dtype_of

__all__ = [
    "Array",
    "ArrayData",
    "CastData",
    "FileData",
    "ReshapedData",
    "ScaledData",
    "SourceBytes",
    "SourceFile",
    "TensorData",
    "TransposedData",
    "unpack",
]

CHUNK = 8 << 20
STRIP = 16 << 20
_PIECE = 1 << 20
_BLOCK = 64, 128


class TensorData(ABC):
    """The numbers of a constant tensor: element type, static shape, and ways to read them piecewise."""

    dtype: DType
    shape: tuple[int, ...]

    @property
    @abstractmethod
    def key(self) -> Hashable:
        """Equal keys mean equal elements in C order, whatever the shapes."""

    @abstractmethod
    def slab(self, axis: int, start: int, stop: int) -> Array:
        """The numbers with `start <= index < stop` along `axis`; other axes whole. Unpacked NumPy elements."""

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes as packed in a file (two int4 to a byte); 0 for strings."""
        return (self.size * self.dtype.bits + 7) // 8

    def numpy(self) -> Array:
        """All numbers, as an array that the caller may not change."""
        if not self.shape:
            raise NotImplementedError
        return self.slab(0, 0, self.shape[0])

    def chunks(self) -> Iterator[Array]:
        """The packed little-endian bytes in C order, as uint8 arrays that are valid until the next one is taken."""
        if not self.shape or self.dtype.bits < 8 or not self.nbytes:
            yield _packed(self.numpy(), self.dtype)
            return
        row = max(1, self.nbytes // self.shape[0])
        for start, stop in _steps(self.shape[0], STRIP // row):
            strip = self.slab(0, start, stop) if stop - start < self.shape[0] else self.numpy()
            for first, last in _steps(len(strip), max(_PIECE // row, _BLOCK[0])):
                yield _packed(strip[first:last], self.dtype)
            del strip  # before the next one is read

    def transpose(self, permutation: Sequence[int]) -> TensorData:
        """The same numbers with permuted axes."""
        if tuple(permutation) == tuple(range(len(self.shape))):
            return self
        return TransposedData(self, tuple(permutation))

    def reshape(self, shape: Sequence[int]) -> TensorData:
        """The same numbers in C order under another shape of as many elements."""
        return self if tuple(shape) == self.shape else ReshapedData(self, tuple(shape))

    def cast(self, dtype: DType) -> TensorData:
        """The numbers converted as NumPy's astype does."""
        return self if dtype is self.dtype else CastData(self, dtype)

    def scale(self, factors: Array, axis: int) -> TensorData:
        """The numbers times `factors[i]` for index i of `axis` (float types)."""
        return ScaledData(self, factors, axis)


class ArrayData(TensorData):
    """Numbers in memory."""

    def __init__(self, array: Array, dtype: DType | None = None) -> None:
        self._array = array
        self.dtype = dtype or dtype_of(array.dtype)
        self.shape = tuple(int(d) for d in array.shape)
        self._key: Hashable = None

    @property
    def key(self) -> Hashable:
        if self._key is None:
            self._key = ("array", self.dtype, self.size, _digest(self._array))
        return self._key

    def slab(self, axis: int, start: int, stop: int) -> Array:
        part: Array = self._array[(slice(None),) * axis + (slice(start, stop),)]
        return part

    def numpy(self) -> Array:
        return self._array


class SourceFile:
    """A file that tensors are read from by position; safe to share between threads."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        try:
            self._file = open(self.path, "rb")  # noqa: SIM115 - lives as long as the graph that reads from it
        except OSError as error:
            raise InvalidModelError(f"{self.path}: cannot be read: {error.strerror}") from error
        self.size = os.fstat(self._file.fileno()).st_size
        self._lock = threading.Lock()

    def read_into(self, offset: int, buffer: Array) -> None:
        """Fill the uint8 `buffer` from `offset`; InvalidModelError where the file ends before."""
        view, done = memoryview(buffer.data).cast("B"), 0
        with self._lock:
            self._file.seek(offset)
            while done < len(view):
                count = self._file.readinto(view[done:])
                if not count:
                    raise InvalidModelError(f"{self.path}: cut off: {len(view)} bytes wanted at {offset}")
                done += count

    def read(self, offset: int, length: int) -> bytes:
        """`length` bytes from `offset`."""
        buffer = np.empty(length, np.uint8)
        self.read_into(offset, buffer)
        return buffer.tobytes()

    def close(self) -> None:
        """Close the file; later reads fail."""
        self._file.close()

    def __enter__(self) -> SourceFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class SourceBytes(SourceFile):
    """The same over bytes in memory, for models that come as bytes; `name` stands for the path in messages."""

    def __init__(self, content: bytes | bytearray | memoryview, name: str = "<bytes>") -> None:
        self.path = Path(name)
        self._content = memoryview(content).cast("B")
        self.size = len(self._content)

    def read_into(self, offset: int, buffer: Array) -> None:
        view = memoryview(buffer.data).cast("B")
        part = self._content[offset : offset + len(view)]
        if len(part) != len(view):
            raise InvalidModelError(f"{self.path}: cut off: {len(view)} bytes wanted at {offset}")
        view[:] = part

    def close(self) -> None:
        """Let go of the bytes; later reads fail."""
        self._content = memoryview(b"")


class FileData(TensorData):
    """Packed little-endian numbers in C order at a place in a file."""

    def __init__(self, file: SourceFile, offset: int, dtype: DType, shape: Sequence[int]) -> None:
        self.file, self.offset, self.dtype, self.shape = file, offset, dtype, tuple(shape)

    @property
    def key(self) -> Hashable:
        return ("file", id(self.file), self.offset, self.dtype, self.size)

    def reshape(self, shape: Sequence[int]) -> TensorData:
        _check_size(self, shape)
        return FileData(self.file, self.offset, self.dtype, shape)

    def numpy(self) -> Array:
        buffer = np.empty(self.nbytes, np.uint8)
        self.file.read_into(self.offset, buffer)
        return unpack(buffer, self.dtype, self.shape)

    def chunks(self) -> Iterator[Array]:
        buffer = np.empty(min(CHUNK, self.nbytes), np.uint8)
        for start in range(0, self.nbytes, CHUNK):
            part = buffer[: min(CHUNK, self.nbytes - start)]
            self.file.read_into(self.offset + start, part)
            yield part

    def slab(self, axis: int, start: int, stop: int) -> Array:
        if self.dtype.bits < 8 or self.nbytes <= CHUNK:
            return self.numpy()[(slice(None),) * axis + (slice(start, stop),)]
        outer, n = math.prod(self.shape[:axis]), self.shape[axis]
        inner = math.prod(self.shape[axis + 1 :]) * self.dtype.bits // 8
        result = np.empty((outer, (stop - start) * inner), np.uint8)
        if (stop - start) * inner >= 4096 or outer == 1:
            for i in range(outer):
                self.file.read_into(self.offset + (i * n + start) * inner, result[i])
        else:
            self._gather(result, n * inner, start * inner)
        shape = (*self.shape[:axis], stop - start, *self.shape[axis + 1 :])
        return result.reshape(-1).view(self.dtype.numpy).reshape(shape)

    def _gather(self, result: Array, stride: int, start: int) -> None:
        """Short runs: read whole rows in blocks and keep a part of each."""
        rows = max(1, CHUNK // stride)
        buffer = np.empty((rows, stride), np.uint8)
        for i in range(0, len(result), rows):
            block = buffer[: len(result) - i]
            self.file.read_into(self.offset + i * stride, block.reshape(-1))
            result[i : i + rows] = block[:, start : start + result.shape[1]]


class TransposedData(TensorData):
    """`base` with permuted axes; merged first, so that neighbours that stay together move as one."""

    base: TensorData
    permutation: tuple[int, ...]

    def __init__(self, base: TensorData, permutation: tuple[int, ...]) -> None:
        if isinstance(base, TransposedData):
            permutation = tuple(base.permutation[p] for p in permutation)
            base = base.base
        self.base, self.permutation, self.dtype = base, permutation, base.dtype
        self.shape = tuple(base.shape[p] for p in permutation)

    @property
    def key(self) -> Hashable:
        return ("transpose", self.base.key, self.base.shape, self.permutation)

    def slab(self, axis: int, start: int, stop: int) -> Array:
        return self.base.slab(self.permutation[axis], start, stop).transpose(self.permutation)

    def chunks(self) -> Iterator[Array]:
        merged = _merge_axes(self.base.shape, self.permutation)
        if merged[0] != self.base.shape and self.dtype.bits >= 8:
            yield from TransposedData(self.base.reshape(merged[0]), merged[1]).chunks()
        else:
            yield from super().chunks()


class ReshapedData(TensorData):
    """`base` under another shape. What can say the same of its own base does (see `reshape` of the others)."""

    base: TensorData

    def __init__(self, base: TensorData, shape: tuple[int, ...]) -> None:
        if isinstance(base, ReshapedData):
            base = base.base
        _check_size(base, shape)
        self.base, self.shape, self.dtype = base, shape, base.dtype

    @property
    def key(self) -> Hashable:
        return self.base.key

    def numpy(self) -> Array:
        return self.base.numpy().reshape(self.shape)

    def slab(self, axis: int, start: int, stop: int) -> Array:
        if math.prod(self.shape[:axis]) != 1 or not self.base.size or not self.base.shape:
            return self.numpy()[(slice(None),) * axis + (slice(start, stop),)]
        inner, row = math.prod(self.shape[axis + 1 :]), self.base.size // self.base.shape[0]
        first = start * inner // row
        rows = self.base.slab(0, first, -(-stop * inner // row)).reshape(-1)
        part = rows[start * inner - first * row : stop * inner - first * row]
        return part.reshape((*self.shape[:axis], stop - start, *self.shape[axis + 1 :]))

    def chunks(self) -> Iterator[Array]:
        return self.base.chunks()


class CastData(TensorData):
    """`base` converted to another element type."""

    def __init__(self, base: TensorData, dtype: DType) -> None:
        self.base, self.dtype, self.shape = base, dtype, base.shape

    @property
    def key(self) -> Hashable:
        return ("cast", self.base.key, self.dtype)

    def reshape(self, shape: Sequence[int]) -> TensorData:
        return CastData(self.base.reshape(shape), self.dtype)

    def numpy(self) -> Array:
        return self.base.numpy().astype(self.dtype.numpy)

    def slab(self, axis: int, start: int, stop: int) -> Array:
        return self.base.slab(axis, start, stop).astype(self.dtype.numpy)


class ScaledData(TensorData):
    """`base` times a factor for each index of one axis."""

    def __init__(self, base: TensorData, factors: Array, axis: int) -> None:
        self.base, self.factors, self.axis = base, factors, axis
        self.dtype, self.shape = base.dtype, base.shape

    @property
    def key(self) -> Hashable:
        return ("scale", self.base.key, self.shape, _digest(self.factors), self.axis)

    def reshape(self, shape: Sequence[int]) -> TensorData:
        """Scaled after reshaping, where the axis stays one by itself."""
        if not self.shape:
            return super().reshape(shape)
        before, size = math.prod(self.shape[: self.axis]), self.shape[self.axis]
        axis = next((a for a, n in enumerate(shape) if n == size and math.prod(shape[:a]) == before), None)
        return super().reshape(shape) if axis is None else ScaledData(self.base.reshape(shape), self.factors, axis)

    def numpy(self) -> Array:
        if not self.shape:
            return np.asarray(self.base.numpy() * self.factors)
        return self.slab(0, 0, self.shape[0])

    def slab(self, axis: int, start: int, stop: int) -> Array:
        factors = self.factors[start:stop] if axis == self.axis else self.factors
        shape = [1] * len(self.shape)
        shape[self.axis] = len(factors)
        scaled: Array = self.base.slab(axis, start, stop) * factors.reshape(shape)
        return scaled.astype(self.dtype.numpy, copy=False)


def _check_size(data: TensorData, shape: Sequence[int]) -> None:
    if math.prod(shape) != data.size:
        raise ValueError(f"cannot reshape {data.shape} to {tuple(shape)}")


def unpack(buffer: Array, dtype: DType, shape: Sequence[int]) -> Array:
    """Elements from packed bytes: types under a byte lie low bits first (ONNX and TFLite alike)."""
    if dtype.bits >= 8:
        return buffer.view(dtype.numpy).reshape(shape)
    per, bits = 8 // dtype.bits, dtype.bits
    shifts = np.arange(per, dtype=np.uint8) * bits
    fields = ((buffer[:, None] >> shifts) & ((1 << bits) - 1)).reshape(-1)[: math.prod(shape)]
    if dtype.is_float:
        return fields.view(dtype.numpy).reshape(shape)
    if dtype.is_signed:
        sign = 1 << (bits - 1)
        fields = (fields ^ sign).astype(np.int8) - np.int8(sign)
    return fields.astype(dtype.numpy).reshape(shape)


def _steps(count: int, step: int) -> Iterator[tuple[int, int]]:
    """range(count) in parts of `step`, at least one each."""
    step = max(1, step)
    return ((start, min(start + step, count)) for start in range(0, count, step))


def _packed(array: Array, dtype: DType) -> Array:
    contiguous = _contiguous(array)
    if dtype.bits >= 8:
        return contiguous.reshape(-1).view(np.uint8)
    per, bits = 8 // dtype.bits, dtype.bits
    raw = contiguous.reshape(-1)
    fields: Array = raw.view(np.uint8) if dtype.is_float else raw.astype(np.int8).view(np.uint8)
    fields = np.concatenate([fields & ((1 << bits) - 1), np.zeros(-len(fields) % per, np.uint8)]).reshape(-1, per)
    packed: Array = np.bitwise_or.reduce(fields << (np.arange(per, dtype=np.uint8) * bits), axis=1)
    return packed


def _contiguous(array: Array) -> Array:
    """A C-order copy; matrices in blocks, since NumPy's own strided copy misses the cache at every element.

    Each block is first copied as it lies: its columns may be so far apart that they share a place in the cache. For
    768 x 3072 floats that takes 0.37 of the time of NumPy's copy, for 3072 x 768 0.59.
    """
    if array.flags.c_contiguous or array.ndim != 2 or array.size < 1 << 16:
        return np.ascontiguousarray(array)
    result = np.empty(array.shape, array.dtype)
    rows, columns = _BLOCK
    for i in range(0, array.shape[0], rows):
        for j in range(0, array.shape[1], columns):
            part = (slice(i, i + rows), slice(j, j + columns))
            result[part] = np.array(array[part], order="F")
    return result


def _merge_axes(shape: Sequence[int], permutation: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The same transposition on as few axes as possible: unit axes dropped, neighbours that stay together merged."""
    kept = [p for p in permutation if shape[p] != 1]
    runs: list[list[int]] = []
    order = sorted(kept)
    follower = dict(itertools.pairwise(order))
    for p in kept:
        if runs and follower.get(runs[-1][-1]) == p:
            runs[-1].append(p)
        else:
            runs.append([p])
    by_source = sorted(range(len(runs)), key=lambda i: runs[i][0])
    merged = tuple(math.prod(shape[a] for a in runs[i]) for i in by_source)
    position = {i: k for k, i in enumerate(by_source)}
    return (merged or (1,)), (tuple(position[i] for i in range(len(runs))) or (0,))


def _digest(array: Array) -> Hashable:
    if array.dtype == object:
        return tuple(map(str, array.reshape(-1).tolist()))
    raw = np.ascontiguousarray(array).tobytes()
    return raw if len(raw) <= 64 else hashlib.blake2b(raw, digest_size=16).digest()
