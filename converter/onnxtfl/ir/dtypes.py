"""Element types, and the NumPy dtypes that hold one element unpacked."""

from __future__ import annotations

import functools
import re
from enum import Enum
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]


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

    @functools.cached_property
    def bits(self) -> int:
        """The number of bits of one packed element; 0 for strings."""
        return _BITS[self.value]

    @functools.cached_property
    def is_float(self) -> bool:
        """Whether this is a real floating-point type."""
        return "float" in self.value

    @functools.cached_property
    def is_complex(self) -> bool:
        """Whether this is complex64 or complex128."""
        return self.value.startswith("complex")

    @functools.cached_property
    def is_integer(self) -> bool:
        """Whether this is a signed or unsigned integer type (bool is not)."""
        return "int" in self.value

    @functools.cached_property
    def is_signed(self) -> bool:
        """Whether the type has negative values."""
        return not self.value.startswith(("uint", "bool"))

    @functools.cached_property
    def numpy(self) -> np.dtype[Any]:
        """The NumPy dtype of one unpacked element (ml_dtypes for the small types, object for strings)."""
        return _numpy_dtype(self.value)


_BITS = {"bool": 8, "string": 0}
_BITS |= {name: int(digits[0]) for name in DType._value2member_map_ if (digits := re.findall(r"\d+", str(name)))}
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
        import ml_dtypes  # imported lazily: only the small types need it

        small: np.dtype[Any] = np.dtype(getattr(ml_dtypes, _ML_DTYPES.get(name, name)))
        return small
    return np.dtype(name)


@functools.lru_cache(maxsize=256)
def dtype_of(numpy_dtype: np.dtype[Any]) -> DType:
    """The element type of a NumPy dtype; TypeError if there is none."""
    if numpy_dtype.kind in "OUS":
        return DType.STRING
    name = {v: k for k, v in _ML_DTYPES.items()}.get(numpy_dtype.name, numpy_dtype.name)
    try:
        return DType(name)
    except ValueError as error:
        raise TypeError(f"no element type for NumPy's {numpy_dtype}") from error
