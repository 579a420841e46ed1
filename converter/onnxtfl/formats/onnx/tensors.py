"""TensorProto as TensorData: payloads in the message, left in the file, external, or sparse."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Iterator
from functools import partial

import numpy as np
from onnx import SparseTensorProto, TensorProto

from onnxtfl.errors import InvalidModelError, UnsupportedError
from onnxtfl.formats.onnx.external import ExternalFiles
from onnxtfl.formats.onnx.names import decoded
from onnxtfl.formats.onnx.payload import NUMBERS, elements, field_of, stored_data
from onnxtfl.formats.onnx.wire import DetachedPayloads, payload_of
from onnxtfl.ir.budget import current_budget
from onnxtfl.ir.data import Array, ArrayData, SourceBytes, TensorData, unpack
from onnxtfl.ir.types import MOST_AXES, DType, TensorType

DTYPES = {
    getattr(TensorProto, name): dtype
    for name, dtype in [(d.name, d) for d in DType] + [("FLOAT", DType.FLOAT32), ("DOUBLE", DType.FLOAT64)]
    if hasattr(TensorProto, name)
}
"""TensorProto.DataType -> element type, for the types of the installed onnx."""
_LARGEST = 1 << 62
_BY_ELEMENT = 4096
_LARGEST_DENSE = 64 << 20
_SPARSEST = 1000
"""The largest factor from stored to dense size of a sparse tensor of more than `_LARGEST_DENSE` bytes."""


class Tensors:
    """Reads the tensors of one model; `detached` is None if the model is a ModelProto."""

    def __init__(self, detached: DetachedPayloads | None, external: ExternalFiles) -> None:
        self.detached = detached
        self.external = external

    def read(self, tensor: TensorProto, name: str | None = None) -> TensorData:
        """The values of `tensor`. Raises InvalidModelError if they do not fit its shape."""
        name = name or tensor.name
        dtype = element_type(tensor.data_type, f"tensor {name!r}")
        shape = static_shape(tensor.dims, dtype, f"tensor {name!r}")
        if tensor.data_location == TensorProto.EXTERNAL:
            if dtype is DType.STRING:
                raise InvalidModelError(f"tensor {name!r}: strings cannot be external", code="E-FILE-010")
            return self.external.data(tensor, dtype, shape)
        try:
            data = self._stored(tensor, dtype, shape)
        except ValueError as error:
            raise InvalidModelError(
                f"tensor {name!r}: {error}", type_=TensorType(dtype, shape), code="E-FILE-010"
            ) from error
        if self.detached is None and data.nbytes > _BY_ELEMENT:
            return MessageData(partial(self._stored, tensor, dtype, shape), dtype, shape)
        return data

    def _stored(self, tensor: TensorProto, dtype: DType, shape: tuple[int, ...]) -> TensorData:
        if dtype is DType.STRING:
            return _strings(tensor, shape)
        payload = self.detached.of(tensor) if self.detached else None
        if payload is not None and self.detached is not None:
            return stored_data(self.detached.source, payload, dtype, shape)
        if tensor.HasField("raw_data") and (tensor.raw_data or not math.prod(shape)):
            return _from_bytes(np.frombuffer(tensor.raw_data, np.uint8), dtype, shape)
        field = field_of(dtype)
        if tensor.ByteSize() > _BY_ELEMENT:
            source = SourceBytes(tensor.SerializeToString())
            return stored_data(source, payload_of(source, field), dtype, shape)
        numbers = getattr(tensor, TensorProto.DESCRIPTOR.fields_by_number[field].name)
        return _from_bytes(elements(np.asarray(numbers, NUMBERS[field]), dtype), dtype, shape)

    def dense(self, sparse: SparseTensorProto) -> TensorData:
        """The values of a sparse tensor as a dense one. Raises InvalidModelError if indices are out of range."""
        name = sparse.values.name
        values, indices = self.read(sparse.values, name), self.read(sparse.indices, name).numpy()
        shape = static_shape(sparse.dims, values.dtype, f"sparse tensor {name!r}")
        size = math.prod(shape) * values.dtype.bits // 8
        if size > max(_LARGEST_DENSE, _SPARSEST * values.nbytes) or not current_budget().may_hold(size):
            raise UnsupportedError(
                f"sparse tensor {name!r} of shape {list(shape)} is too large to convert to a dense tensor",
                code="E-OP-008",
            )
        try:
            flat = _flat_indices(indices, shape, values.size)
        except ValueError as error:
            raise InvalidModelError(
                f"sparse tensor {name!r} of shape {list(shape)}: {error}", code="E-FILE-010"
            ) from error
        dense = np.zeros(math.prod(shape), values.dtype.numpy)
        dense[flat] = values.numpy().reshape(-1)
        return ArrayData(dense.reshape(shape), values.dtype)


class MessageData(TensorData):
    """The values of a tensor in a ModelProto, which `load` copies on each access."""

    def __init__(self, load: Callable[[], TensorData], dtype: DType, shape: tuple[int, ...]) -> None:
        self._load, self.dtype, self.shape = load, dtype, shape

    @property
    def key(self) -> Hashable:
        return ("message", id(self._load), self.dtype, self.size)

    def numpy(self) -> Array:
        return self._load().numpy()

    def slab(self, axis: int, start: int, stop: int) -> Array:
        return self._load().slab(axis, start, stop)

    def chunks(self) -> Iterator[Array]:
        return self._load().chunks()


def element_type(number: int, where: str) -> DType:
    """The element type of this TensorProto.DataType. Raises InvalidModelError or UnsupportedError for others."""
    dtype = DTYPES.get(number)
    if dtype is None:
        if number in TensorProto.DataType.values() and number:
            raise UnsupportedError(
                f"{where} has elements of type {TensorProto.DataType.Name(number)}", code="E-TYPE-002"
            )
        raise InvalidModelError(f"{where} has an unknown element type (number {number})", code="E-TYPE-002")
    return dtype


def static_shape(dims: Iterable[int], dtype: DType, where: str) -> tuple[int, ...]:
    """`dims` as a shape. Raises InvalidModelError for negative sizes and for over 2**62 bits."""
    shape = tuple(int(d) for d in dims)
    if len(shape) > MOST_AXES:
        raise InvalidModelError(f"{where} has {len(shape)} axes, at most {MOST_AXES} are possible", code="E-FILE-010")
    if any(d < 0 for d in shape) or math.prod(d for d in shape if d) * max(dtype.bits, 8) > _LARGEST:
        raise InvalidModelError(f"{where} has the invalid shape {list(shape)}", code="E-FILE-010")
    return shape


def _from_bytes(packed: Array, dtype: DType, shape: tuple[int, ...]) -> ArrayData:
    needed = (math.prod(shape) * dtype.bits + 7) // 8
    if len(packed) != needed:
        raise ValueError(f"has {len(packed)} bytes, its shape needs {needed}")
    return ArrayData(unpack(packed, dtype, shape), dtype)


def _strings(tensor: TensorProto, shape: tuple[int, ...]) -> ArrayData:
    if len(tensor.string_data) != math.prod(shape):
        raise ValueError(f"has {len(tensor.string_data)} strings, its shape needs {math.prod(shape)}")
    return ArrayData(np.asarray([decoded(s) for s in tensor.string_data], object).reshape(shape), DType.STRING)


def _flat_indices(indices: Array, shape: tuple[int, ...], count: int) -> Array:
    """Positions in C order from linear indices [count] or coordinates [count, rank]."""
    coordinates = indices.shape == (count, len(shape))
    if indices.dtype.kind != "i" or not (coordinates or indices.shape == (count,)):
        raise ValueError(f"indices of shape {list(indices.shape)} for {count} values")
    if coordinates:
        if (indices < 0).any() or (indices >= np.asarray(shape)).any():
            raise ValueError("an index is out of range")
        return np.asarray(np.ravel_multi_index(tuple(indices.T), shape))
    if (indices < 0).any() or (indices >= math.prod(shape)).any():
        raise ValueError("an index is out of range")
    return indices
