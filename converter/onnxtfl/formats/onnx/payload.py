"""Elements of a TensorProto that stay in the file: a byte range of packed elements.

Elements of fixed width become `FileData`; varints (integers of one to ten bytes, seven bits in each, lowest first) are
decoded in chunks on each access. Sources: https://protobuf.dev/programming-guides/encoding; onnx.proto, TensorProto
(which field has which element type).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import NamedTuple

import numpy as np
from onnx import TensorProto

from onnxtfl.errors import InvalidModelError
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
"""The fields with values, and the wire type of their elements."""
WIDTHS = {FIXED32: 4, FIXED64: 8}
LONGEST = 10
"""Bytes of the longest varint."""
_CHUNK = 1 << 20
_FIELDS = {
    **dict.fromkeys((DType.FLOAT32, DType.COMPLEX64), _FLOAT),
    **dict.fromkeys((DType.FLOAT64, DType.COMPLEX128), _DOUBLE),
    **dict.fromkeys((DType.UINT32, DType.UINT64), _UINT64),
    DType.INT64: _INT64,
}
NUMBERS = {_FLOAT: np.float32, _DOUBLE: np.float64, _INT32: np.int32, _INT64: np.int64, _UINT64: np.uint64}
"""NumPy type of the elements of a field."""


class Payload(NamedTuple):
    """The packed elements of a tensor: number of their field, and their byte range [start, stop)."""

    field: int
    start: int
    stop: int


def field_of(dtype: DType) -> int:
    """Return the number of the field for elements of `dtype` (other than raw_data)."""
    return int(_FIELDS.get(dtype, _INT32))


def elements(numbers: Array, dtype: DType) -> Array:
    """Return the packed bytes (uint8) of elements of `dtype`; `numbers`: the contents of their field."""
    if dtype.bits <= 16 and dtype is not DType.BOOL:
        numbers = numbers.astype(np.uint16 if dtype.bits == 16 else np.uint8)
    elif dtype is DType.BOOL:
        numbers = numbers != 0
    elif dtype is DType.UINT32:
        numbers = numbers.astype(np.uint32)
    return np.ascontiguousarray(numbers).reshape(-1).view(np.uint8)


def stored_data(file: SourceFile, payload: Payload, dtype: DType, shape: tuple[int, ...]) -> TensorData:
    """The tensor whose elements are `payload`. Raises ValueError if their size is not that of `shape`."""
    if payload.field not in (RAW, field_of(dtype)):
        raise ValueError(f"has its elements in a field that is not for {dtype.value}")
    data: TensorData = FileData(file, payload.start, dtype, shape)
    length = payload.stop - payload.start
    if WIRES[payload.field] == VARINT:
        data = encoded = EncodedData(file, payload, dtype, shape)
        length = encoded.encoded_bytes()
    if length != data.nbytes:
        raise ValueError(f"has {length} bytes, its shape needs {data.nbytes}")
    return data


class EncodedData(TensorData):
    """Elements that are varints."""

    def __init__(self, file: SourceFile, payload: Payload, dtype: DType, shape: tuple[int, ...]) -> None:
        self.file, self.payload, self.dtype, self.shape = file, payload, dtype, shape

    @property
    def key(self) -> Hashable:
        return ("encoded", self.file.key, self.payload, self.dtype, self.shape)

    def numpy(self) -> Array:
        buffer, filled = np.empty(self.nbytes, np.uint8), 0
        for part in self.chunks():
            buffer[filled : filled + len(part)] = part
            filled += len(part)
        return unpack(buffer, self.dtype, self.shape)

    def chunks(self) -> Iterator[Array]:
        try:
            for values in _varints(self.file, self.payload.start, self.payload.stop):
                yield elements(values.astype(NUMBERS[self.payload.field]), self.dtype)
        except ValueError as error:
            where = f"{self.file.path}: malformed tensor at byte {self.payload.start}"
            raise InvalidModelError(f"{where}: {error}", code="E-FILE-010") from error

    def encoded_bytes(self) -> int:
        """The number of bytes that `chunks` yields, without decoding."""
        width = min(np.dtype(NUMBERS[self.payload.field]).itemsize, max(1, self.dtype.bits // 8))
        blocks = _blocks(self.file, self.payload.start, self.payload.stop)
        return width * sum(int(np.count_nonzero(block < 0x80)) for block in blocks)


def _blocks(file: SourceFile, start: int, stop: int) -> Iterator[Array]:
    buffer = np.empty(min(_CHUNK, stop - start), np.uint8)
    for position in range(start, stop, _CHUNK):
        block = buffer[: min(_CHUNK, stop - position)]
        file.read_into(position, block)
        yield block


def _varints(file: SourceFile, start: int, stop: int) -> Iterator[Array]:
    rest = np.empty(0, np.uint8)
    for block in _blocks(file, start, stop):
        buffer = np.concatenate([rest, block])
        values, used = decode_varints(buffer)
        rest = buffer[used:]
        yield values
    if len(rest):
        raise ValueError("ends in the middle of a varint")


def encode_varint(value: int) -> bytes:
    """`value` (not negative) as a varint."""
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def decode_varints(buffer: Array) -> tuple[Array, int]:
    """The complete varints of the uint8 `buffer` as uint64, and their bytes. Raises ValueError for over ten bytes in
    one.
    """
    stops = np.flatnonzero(buffer < 0x80) + 1
    if not len(stops):
        if len(buffer) >= LONGEST:
            raise ValueError("a varint of more than ten bytes")
        return np.empty(0, np.uint64), 0
    used = int(stops[-1])
    if used == len(stops):
        return buffer[:used].astype(np.uint64), used
    starts = np.concatenate([[0], stops[:-1]])
    lengths = stops - starts
    longest = int(lengths.max())
    if longest > LONGEST:
        raise ValueError("a varint of more than ten bytes")
    values = (buffer[starts] & 0x7F).astype(np.uint64)
    for k in range(1, longest):
        among = np.flatnonzero(lengths > k)
        values[among] |= (buffer[starts[among] + k] & 0x7F).astype(np.uint64) << np.uint64(7 * k)
    return values, used
