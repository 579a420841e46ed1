"""Feeding inputs of one model to another: sizes known by only one of them, different element types."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from onnxtfl.checking.pairing.interface import Pair
from onnxtfl.inputs.description import MismatchError, TensorInfo
from onnxtfl.inputs.generation import numpy_type
from onnxtfl.ir.dtypes import DType
from onnxtfl.ir.quantization import dequantize, quantize, with_other_sign
from onnxtfl.ir.small_types import as_held, holds_bits


def joined_infos(a: Sequence[TensorInfo], b: Sequence[TensorInfo], pairs: Sequence[Pair]) -> list[TensorInfo]:
    """Return ``a`` with the sizes that are known only in ``b``; a symbol of ``a`` gets its size everywhere."""
    symbols: dict[Any, int] = {}
    sized: dict[tuple[int, int], int] = {}
    for pair in pairs:
        dims_a, dims_b = a[pair.a].shape, b[pair.b].shape
        for k, axis in enumerate(pair.permutations[0] if dims_a and dims_b else ()):
            size = dims_b[k] if dims_b else None
            if isinstance(size, int) and dims_a and not isinstance(dims_a[axis], int):
                sized[pair.a, axis] = size
                if dims_a[axis] is not None:
                    symbols.setdefault(dims_a[axis], size)
    return [_sized(info, i, sized, symbols, b[pairs[i].b]) for i, info in enumerate(a)]


def _sized(
    info: TensorInfo, i: int, sized: Mapping[tuple[int, int], int], symbols: Mapping[Any, int], other: TensorInfo
) -> TensorInfo:
    if info.shape is None:
        return replace(info, shape=other.shape)
    dims = [sized.get((i, axis), symbols.get(dim, dim)) for axis, dim in enumerate(info.shape)]
    return replace(info, shape=tuple(dims))


def agreeable(value: Any, a: TensorInfo, b: TensorInfo) -> Any:
    """Return generated values rounded to the narrower of the two float types, so that both models get the same
    values.
    """
    if value.dtype.kind != "f" or a.dtype == b.dtype or not b.dtype.startswith("float"):
        return value
    return value.astype(numpy_type(b.dtype)).astype(value.dtype)


def as_type(value: Any, a: TensorInfo, b: TensorInfo) -> Any:
    """Return an input of the first model in the element type of the second."""
    if a.dtype == b.dtype or "string" in (a.dtype, b.dtype):
        return value
    if b.declared == a.dtype:
        return as_int32(value, a.name)
    bits = holds_bits(a.dtype, b.dtype)
    if bits is not None:
        return as_held(value, DType(a.dtype), bits)
    if b.quantization is not None and a.dtype.startswith("float"):
        return quantize(value, b.quantization)
    if {a.dtype, b.dtype} == {"int8", "uint8"}:  # the same real values
        return with_other_sign(value)
    if a.quantization is not None and b.dtype.startswith("float"):
        return dequantize(value, a.quantization)
    return value.astype(numpy_type(b.dtype))


def dtype_kept(a: TensorInfo, b: TensorInfo) -> bool:
    """Whether the dtype is the same, or differs only as conversions do: float64 as float32, a quantized float, int8 as
    uint8.
    """
    floats = {a.dtype, b.dtype} == {"float32", "float64"}
    quantized = (a.quantization is None) != (b.quantization is None) and "float32" in (a.dtype, b.dtype)
    shifted = {a.dtype, b.dtype} == {"int8", "uint8"} and (a.quantization or b.quantization) is not None
    held = holds_bits(a.dtype, b.dtype) is not None
    return a.dtype == b.dtype or floats or quantized or shifted or held or b.declared == a.dtype


def as_int32(value: Any, name: str) -> Any:
    """Values of int64 as int32; MismatchError if one does not fit."""
    try:
        return as_held(value, DType.INT64, False)
    except ValueError as error:
        raise MismatchError(f"the input {name!r} is int32 in the converted model: {error}") from error
