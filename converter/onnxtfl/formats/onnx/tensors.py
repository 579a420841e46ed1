"""TensorProto as TensorData, for tensors that are whole, cut out of the message, external, or sparse."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
from onnx import SparseTensorProto, TensorProto

from onnxtfl.errors import InvalidModelError, UnsupportedError
from onnxtfl.formats.onnx.external import ExternalFiles
from onnxtfl.formats.onnx.payload import NUMBERS, elements, field_of, stored_data
from onnxtfl.formats.onnx.strings import decoded
from onnxtfl.formats.onnx.wire import Cuts, tensor_pieces
from onnxtfl.ir.data import Array, ArrayData, SourceBytes, TensorData, unpack
from onnxtfl.ir.types import DType, TensorType

DTYPES = {
    getattr(TensorProto, name): dtype
    for name, dtype in [(d.name, d) for d in DType] + [("FLOAT", DType.FLOAT32), ("DOUBLE", DType.FLOAT64)]
    if hasattr(TensorProto, name)
}
"""Element types by their number in TensorProto.DataType (an older onnx lacks the newest)."""
_LARGEST = 1 << 62
_BY_ELEMENT = 4096
_LARGEST_DENSE = 1 << 30


class Tensors:
    """Reads the tensors of one model; `cuts` is None for a model that came as a message."""

    def __init__(self, cuts: Cuts | None, external: ExternalFiles) -> None:
        self.cuts = cuts
        self.external = external

    def read(self, tensor: TensorProto, name: str | None = None) -> TensorData:
        """The numbers of `tensor`; InvalidModelError where they do not fit its shape."""
        name = name or tensor.name
        dtype = element_type(tensor.data_type, f"tensor {name!r}")
        shape = static_shape(tensor.dims, dtype, f"tensor {name!r}")
        if tensor.data_location == TensorProto.EXTERNAL:
            if dtype is DType.STRING:
                raise InvalidModelError(f"tensor {name!r}: strings cannot be external")
            return self.external.data(tensor, dtype, shape)
        try:
            return self._stored(tensor, dtype, shape)
        except ValueError as error:
            raise InvalidModelError(f"tensor {name!r}: {error}", type_=TensorType(dtype, shape)) from error

    def _stored(self, tensor: TensorProto, dtype: DType, shape: tuple[int, ...]) -> TensorData:
        if dtype is DType.STRING:
            return _strings(tensor, shape)
        pieces = self.cuts.of(tensor) if self.cuts else None
        if pieces is not None and self.cuts is not None:
            return stored_data(self.cuts.source, pieces, dtype, shape)
        if tensor.HasField("raw_data") and (tensor.raw_data or not math.prod(shape)):
            return _from_bytes(np.frombuffer(tensor.raw_data, np.uint8), dtype, shape)
        if tensor.ByteSize() > _BY_ELEMENT:
            source = SourceBytes(tensor.SerializeToString())
            return stored_data(source, tensor_pieces(source), dtype, shape)
        field = field_of(dtype)
        numbers = getattr(tensor, TensorProto.DESCRIPTOR.fields_by_number[field].name)
        return _from_bytes(elements(np.asarray(numbers, NUMBERS[field]), dtype), dtype, shape)

    def dense(self, sparse: SparseTensorProto) -> TensorData:
        """The numbers of a sparse tensor, zeros written out; InvalidModelError where indices lie outside."""
        name = sparse.values.name
        values, indices = self.read(sparse.values, name), self.read(sparse.indices, name).numpy()
        shape = static_shape(sparse.dims, values.dtype, f"sparse tensor {name!r}")
        if math.prod(shape) * values.dtype.bits > _LARGEST_DENSE * 8:
            raise UnsupportedError(f"sparse tensor {name!r} of shape {list(shape)} is too large to be written out")
        try:
            flat = _flat_indices(indices, shape, values.size)
        except ValueError as error:
            raise InvalidModelError(f"sparse tensor {name!r} of shape {list(shape)}: {error}") from error
        dense = np.zeros(math.prod(shape), values.dtype.numpy)
        dense[flat] = values.numpy().reshape(-1)
        return ArrayData(dense.reshape(shape), values.dtype)


def element_type(number: int, where: str) -> DType:
    """The element type with this number in onnx.proto."""
    dtype = DTYPES.get(number)
    if dtype is None:
        if number in TensorProto.DataType.values() and number:
            raise UnsupportedError(f"{where} has elements of type {TensorProto.DataType.Name(number)}")
        raise InvalidModelError(f"{where} has no known element type (number {number})")
    return dtype


def static_shape(dims: Iterable[int], dtype: DType, where: str) -> tuple[int, ...]:
    """`dims` as a shape; InvalidModelError for negative or absurd ones."""
    shape = tuple(int(d) for d in dims)
    if any(d < 0 for d in shape) or math.prod(d for d in shape if d) * max(dtype.bits, 8) > _LARGEST:
        raise InvalidModelError(f"{where} has an impossible shape: {list(shape)}")
    return shape


def _from_bytes(packed: Array, dtype: DType, shape: tuple[int, ...]) -> ArrayData:
    needed = (math.prod(shape) * dtype.bits + 7) // 8
    if len(packed) != needed:
        raise ValueError(f"holds {len(packed)} bytes, its shape takes {needed}")
    return ArrayData(unpack(packed, dtype, shape), dtype)


def _strings(tensor: TensorProto, shape: tuple[int, ...]) -> ArrayData:
    if len(tensor.string_data) != math.prod(shape):
        raise ValueError(f"holds {len(tensor.string_data)} strings, its shape takes {math.prod(shape)}")
    array = np.empty(len(tensor.string_data), object)
    array[:] = [decoded(s) for s in tensor.string_data]
    return ArrayData(array.reshape(shape), DType.STRING)


def _flat_indices(indices: Array, shape: tuple[int, ...], count: int) -> Array:
    """Positions in C order from linear indices [count] or coordinates [count, rank]."""
    coordinates = indices.shape == (count, len(shape))
    if indices.dtype.kind != "i" or not (coordinates or indices.shape == (count,)):
        raise ValueError(f"{indices.shape} indices for {count} values")
    if coordinates:
        if (indices < 0).any() or (indices >= np.asarray(shape)).any():
            raise ValueError("an index lies outside")
        return np.asarray(np.ravel_multi_index(tuple(indices.T), shape))
    if (indices < 0).any() or (indices >= math.prod(shape)).any():
        raise ValueError("an index lies outside")
    return indices
