"""Values of a TensorProto that stay in the file: byte ranges of packed or tagged, fixed-width or varint elements.

Source: onnx.proto, TensorProto (which field holds which element type). A range of packed fixed-width elements becomes
`FileData`; everything else is decoded in chunks on each access.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from onnx import TensorProto

from onnxtfl.errors import InvalidModelError
from onnxtfl.formats.onnx.varint import count_varints, decode_varints, split_varints
from onnxtfl.ir.data import Array, FileData, SourceFile, TensorData, unpack
from onnxtfl.ir.types import DType

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
"""Wire types."""
RAW = TensorProto.RAW_DATA_FIELD_NUMBER
_FLOAT = TensorProto.FLOAT_DATA_FIELD_NUMBER
_INT32 = TensorProto.INT32_DATA_FIELD_NUMBER
_INT64 = TensorProto.INT64_DATA_FIELD_NUMBER
_DOUBLE = TensorProto.DOUBLE_DATA_FIELD_NUMBER
_UINT64 = TensorProto.UINT64_DATA_FIELD_NUMBER
WIRES = {_FLOAT: FIXED32, _INT32: VARINT, _INT64: VARINT, RAW: BYTES, _DOUBLE: FIXED64, _UINT64: VARINT}
"""The fields that hold values, and the wire type of their elements."""
WIDTHS = {FIXED32: 4, FIXED64: 8}
_CHUNK = 1 << 20
_FIELDS = {
    **dict.fromkeys((DType.FLOAT32, DType.COMPLEX64), _FLOAT),
    **dict.fromkeys((DType.FLOAT64, DType.COMPLEX128), _DOUBLE),
    **dict.fromkeys((DType.UINT32, DType.UINT64), _UINT64),
    DType.INT64: _INT64,
}
NUMBERS = {_FLOAT: np.float32, _DOUBLE: np.float64, _INT32: np.int32, _INT64: np.int64, _UINT64: np.uint64}
"""NumPy type of the elements of a field."""


class Piece(NamedTuple):
    """A byte range of a tensor's payload: field number, [start, stop), whether each element has its own tag."""

    field: int
    start: int
    stop: int
    tagged: bool = False


def field_of(dtype: DType) -> int:
    """The number of the field that holds elements of `dtype` (other than raw_data)."""
    return int(_FIELDS.get(dtype, _INT32))


def elements(numbers: Array, dtype: DType) -> Array:
    """The packed bytes (uint8) of elements of `dtype`; `numbers`: the contents of their field."""
    if dtype.bits <= 16 and dtype is not DType.BOOL:
        numbers = numbers.astype(np.uint16 if dtype.bits == 16 else np.uint8)
    elif dtype is DType.BOOL:
        numbers = numbers != 0
    elif dtype is DType.UINT32:
        numbers = numbers.astype(np.uint32)
    return np.ascontiguousarray(numbers).reshape(-1).view(np.uint8)


def stored_data(file: SourceFile, pieces: Sequence[Piece], dtype: DType, shape: tuple[int, ...]) -> TensorData:
    """The tensor whose payload is `pieces`; ValueError where their size is not that of `shape`."""
    raw = [p for p in pieces if p.field == RAW]
    kept = raw[-1:] or [p for p in pieces if p.field == field_of(dtype)]  # raw_data has precedence, the last one wins
    data: TensorData
    if len(kept) == 1 and not kept[0].tagged and WIRES[kept[0].field] != VARINT:
        data, length = FileData(file, kept[0].start, dtype, shape), kept[0].stop - kept[0].start
    else:
        data = encoded = EncodedData(file, kept, dtype, shape)
        length = encoded.encoded_bytes()
    if length != data.nbytes:
        raise ValueError(f"has {length} bytes, its shape needs {data.nbytes}")
    return data


class EncodedData(TensorData):
    """Values that are varints, have a tag each, or are in several pieces."""

    def __init__(self, file: SourceFile, pieces: Sequence[Piece], dtype: DType, shape: tuple[int, ...]) -> None:
        self.file, self.pieces, self.dtype, self.shape = file, tuple(pieces), dtype, shape

    @property
    def key(self) -> Hashable:
        return ("encoded", id(self.file), self.pieces, self.dtype, self.shape)

    def numpy(self) -> Array:
        buffer, filled = np.empty(self.nbytes, np.uint8), 0
        for part in self.chunks():
            buffer[filled : filled + len(part)] = part
            filled += len(part)
        return unpack(buffer, self.dtype, self.shape)

    def slab(self, axis: int, start: int, stop: int) -> Array:
        return self.numpy()[(slice(None),) * axis + (slice(start, stop),)]

    def chunks(self) -> Iterator[Array]:
        for piece in self.pieces:
            for numbers in self._numbers(piece):
                yield elements(numbers, self.dtype)

    def encoded_bytes(self) -> int:
        """The number of bytes that `chunks` yields, without decoding."""
        width = min(np.dtype(NUMBERS[field_of(self.dtype)]).itemsize, max(1, self.dtype.bits // 8))
        return sum(self._count(p) for p in self.pieces) * width

    def _count(self, piece: Piece) -> int:
        wire = WIRES[piece.field]
        if wire != VARINT:
            size = WIDTHS[wire] + piece.tagged
            if (piece.stop - piece.start) % size:
                raise ValueError("does not hold a whole number of elements")
            return (piece.stop - piece.start) // size
        total = sum(count_varints(part) for part in _blocks(self.file, piece.start, piece.stop))
        return total // 2 if piece.tagged else total

    def _numbers(self, piece: Piece) -> Iterator[Array]:
        if (wire := WIRES[piece.field]) != VARINT:
            yield from self._fixed(piece, WIDTHS[wire])
            return
        try:
            for values in _varints(self.file, piece.start, piece.stop, 1 + piece.tagged):
                yield values[piece.tagged :: 1 + piece.tagged].astype(NUMBERS[piece.field])
        except ValueError as error:
            raise InvalidModelError(f"{self.file.path}: malformed tensor at byte {piece.start}: {error}") from error

    def _fixed(self, piece: Piece, width: int) -> Iterator[Array]:
        size = width + piece.tagged
        for block in _blocks(self.file, piece.start, piece.stop, _CHUNK // size * size):
            rows = block.reshape(-1, size)[:, piece.tagged :]
            yield np.ascontiguousarray(rows).reshape(-1).view(NUMBERS[piece.field])


def _blocks(file: SourceFile, start: int, stop: int, size: int = _CHUNK) -> Iterator[Array]:
    buffer = np.empty(min(size, stop - start), np.uint8)
    for position in range(start, stop, size):
        block = buffer[: min(size, stop - position)]
        file.read_into(position, block)
        yield block


def _varints(file: SourceFile, start: int, stop: int, group: int) -> Iterator[Array]:
    """The varints at [start, stop), in arrays whose lengths are multiples of `group`."""
    rest = np.empty(0, np.uint8)
    for block in _blocks(file, start, stop):
        buffer = np.concatenate([rest, block])
        stops = split_varints(buffer)[1]
        whole = len(stops) // group * group
        used = int(stops[whole - 1]) if whole else 0
        rest = buffer[used:]
        if whole:
            yield decode_varints(buffer[:used])[0]
    if len(rest):
        raise ValueError("ends in the middle of a varint")


def run_end(file: SourceFile, start: int, stop: int, tag: int, wire: int) -> int:
    """The end of the run of elements from `start` of which each begins with the one-byte `tag`."""
    position = start
    while position < stop:
        size = min(_CHUNK // 40 * 40, stop - position)
        block = np.empty(size, np.uint8)
        file.read_into(position, block)
        good = _tagged_varints(block, tag) if wire == VARINT else _tagged_rows(block, tag, WIDTHS[wire] + 1)
        position += good
        if good + 2 * (1 + 10) < size or not good:
            break
    return position


def _tagged_rows(block: Array, tag: int, size: int) -> int:
    rows = block[: len(block) // size * size].reshape(-1, size)
    bad = np.flatnonzero(rows[:, 0] != tag)
    return (int(bad[0]) if len(bad) else len(rows)) * size


def _tagged_varints(block: Array, tag: int) -> int:
    starts, stops = split_varints(block)
    pairs = len(stops) // 2
    bad = np.flatnonzero(block[starts[: 2 * pairs : 2]] != tag)
    pairs = int(bad[0]) if len(bad) else pairs
    return int(stops[2 * pairs - 1]) if pairs else 0
