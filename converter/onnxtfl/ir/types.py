"""Types of the neutral graph: tensors (with quantization), sequences, optionals, tuples and resources."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

import numpy as np

from onnxtfl.ir.dims import Dim, Shape, parse_dim, static
from onnxtfl.ir.quantization import Quantization


class DType(Enum):
    """An element type, under ONNX's names (specs/onnx-changelog.txt); the value is what the text form prints."""

    BOOL = "bool"
    INT2 = "int2"
    INT4 = "int4"
    INT8 = "int8"
    INT16 = "int16"
    INT32 = "int32"
    INT64 = "int64"
    UINT2 = "uint2"
    UINT4 = "uint4"
    UINT8 = "uint8"
    UINT16 = "uint16"
    UINT32 = "uint32"
    UINT64 = "uint64"
    FLOAT4E2M1 = "float4e2m1"
    FLOAT8E4M3FN = "float8e4m3fn"
    FLOAT8E4M3FNUZ = "float8e4m3fnuz"
    FLOAT8E5M2 = "float8e5m2"
    FLOAT8E5M2FNUZ = "float8e5m2fnuz"
    FLOAT8E8M0 = "float8e8m0"
    FLOAT16 = "float16"
    BFLOAT16 = "bfloat16"
    FLOAT32 = "float32"
    FLOAT64 = "float64"
    COMPLEX64 = "complex64"
    COMPLEX128 = "complex128"
    STRING = "string"

    __hash__ = object.__hash__
    _value_: str

    def __repr__(self) -> str:
        return self.value

    @property
    def bits(self) -> int:
        """Bits that one element takes where it is packed as its format packs it; 0 for strings."""
        return _BITS[self.value]

    @property
    def is_float(self) -> bool:
        """Whether this is a real floating-point type."""
        return "float" in self.value

    @property
    def is_complex(self) -> bool:
        """Whether this is complex64 or complex128."""
        return self.value.startswith("complex")

    @property
    def is_integer(self) -> bool:
        """Whether this is a signed or unsigned integer type (bool is not)."""
        return "int" in self.value

    @property
    def is_signed(self) -> bool:
        """Whether negative numbers can be held."""
        return not self.value.startswith(("uint", "bool"))

    @functools.cached_property
    def numpy(self) -> np.dtype[Any]:
        """The NumPy dtype that holds one element unpacked (ml_dtypes' for the small types, object for strings)."""
        return _numpy_dtype(self.value)


_BITS = {
    **{"bool": 8, "string": 0, "bfloat16": 16, "complex64": 64, "complex128": 128, "float4e2m1": 4},
    **{f"{u}int{n}": n for n in (2, 4, 8, 16, 32, 64) for u in ("", "u")},
    **{f"float{n}": n for n in (16, 32, 64)},
    **dict.fromkeys(("float8e4m3fn", "float8e4m3fnuz", "float8e5m2", "float8e5m2fnuz", "float8e8m0"), 8),
}
_ML_DTYPES = {
    "float4e2m1": "float4_e2m1fn",
    "float8e4m3fn": "float8_e4m3fn",
    "float8e4m3fnuz": "float8_e4m3fnuz",
    "float8e5m2": "float8_e5m2",
    "float8e5m2fnuz": "float8_e5m2fnuz",
    "float8e8m0": "float8_e8m0fnu",
}


def _numpy_dtype(name: str) -> np.dtype[Any]:
    if name == "string":
        return np.dtype(object)
    if name in ("int2", "int4", "uint2", "uint4", "bfloat16") or name in _ML_DTYPES:
        import ml_dtypes  # comes with onnx; only the small types need it

        small: np.dtype[Any] = np.dtype(getattr(ml_dtypes, _ML_DTYPES.get(name, name)))
        return small
    return np.dtype(name)


@functools.lru_cache(maxsize=256)
def dtype_of(numpy_dtype: np.dtype[Any]) -> DType:
    """The element type of a NumPy dtype; TypeError where there is none."""
    if numpy_dtype.kind in "OUS":
        return DType.STRING
    name = {v: k for k, v in _ML_DTYPES.items()}.get(numpy_dtype.name, numpy_dtype.name)
    try:
        return DType(name)
    except ValueError as error:
        raise TypeError(f"no element type for NumPy's {numpy_dtype}") from error


@dataclass(frozen=True, slots=True)
class TensorType:
    """A tensor. `dtype` is what the numbers mean; with `quantization` they are stored as its storage dtype.

    `shape` is None where even the rank is unknown.
    """

    dtype: DType
    shape: Shape | None
    quantization: Quantization | None = None

    @property
    def rank(self) -> int | None:
        """The number of axes, None where unknown."""
        return None if self.shape is None else len(self.shape)

    @property
    def is_static(self) -> bool:
        """Whether the rank and every dimension are known."""
        return static(self.shape)

    @property
    def storage(self) -> DType:
        """The element type that lies in memory."""
        return DType(self.quantization.storage) if self.quantization else self.dtype

    def with_shape(self, shape: Shape | None) -> TensorType:
        """The same type with another shape."""
        return replace(self, shape=shape)

    def permuted(self, permutation: Sequence[int]) -> TensorType:
        """The type of the transposed tensor; ValueError where the rank is unknown or scales stand for blocks."""
        quantization = self.quantization
        if self.shape is None or (quantization is not None and quantization.block is not None):
            raise ValueError(f"{self} cannot be transposed")
        if quantization is not None and quantization.axis is not None:
            quantization = replace(quantization, axis=list(permutation).index(quantization.axis))
        return TensorType(self.dtype, tuple(self.shape[p] for p in permutation), quantization)

    def with_dtype(self, dtype: DType) -> TensorType:
        """The same shape with another element type, no quantization."""
        return TensorType(dtype, self.shape)

    def __str__(self) -> str:
        dims = "*x" if self.shape is None else "".join(f"{_dim_text(d)}x" for d in self.shape)
        quantization = f", {self.quantization}" if self.quantization else ""
        return f"tensor<{dims}{self.dtype.value}{quantization}>"


@dataclass(frozen=True, slots=True)
class SequenceType:
    """A sequence of values of one type (ONNX seq(...))."""

    element: Type

    def __str__(self) -> str:
        return f"sequence<{self.element}>"


@dataclass(frozen=True, slots=True)
class OptionalType:
    """A value that may be absent at run time (ONNX optional(...))."""

    element: Type

    def __str__(self) -> str:
        return f"optional<{self.element}>"


@dataclass(frozen=True, slots=True)
class TupleType:
    """Several values as one (XLA tuples)."""

    elements: tuple[Type, ...]

    def __str__(self) -> str:
        return f"tuple<{', '.join(map(str, self.elements))}>"


@dataclass(frozen=True, slots=True)
class ResourceType:
    """A handle to state (TFLite resources and variants)."""

    kind: str = "variable"

    def __str__(self) -> str:
        return f"resource<{self.kind}>"


Type = TensorType | SequenceType | OptionalType | TupleType | ResourceType


def tensor(dtype: DType | str, *shape: Dim | str) -> TensorType:
    """Short for tests and mappings: ``tensor("float32", 1, "n", 3)``."""
    dims = tuple(parse_dim(d) if isinstance(d, str) else d for d in shape)
    return TensorType(DType(dtype) if isinstance(dtype, str) else dtype, dims)


def _dim_text(dim: Dim) -> str:
    text = str(dim)
    return text if isinstance(dim, int) else f"[{text}]"
