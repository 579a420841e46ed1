"""NumPy arithmetic of the ops: small floats are computed in float32, small integers in int32, then rounded."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from onnxtfl.ir.data import Array
from onnxtfl.ir.dims import Dim, product, truncdiv
from onnxtfl.ir.types import DType

_FLOAT8 = frozenset(d for d in DType if d.value.startswith("float8") and d is not DType.FLOAT8E8M0)
_NARROW_INTS = ("int2", "uint2", "int4", "uint4")


def widened(x: Array) -> Array:
    """Cast `x` to the type in which its arithmetic is computed."""
    name = x.dtype.name
    if name in _NARROW_INTS:
        return x.astype(np.int32)
    if x.dtype.itemsize < 4 and "float" in name:
        return x.astype(np.float32)
    return x


def is_integral(x: Array) -> bool:
    """Whether `x` contains integers (an object array contains dims)."""
    return x.dtype.kind in "iuO" or x.dtype.name in _NARROW_INTS


def lowest(dtype: np.dtype[Any]) -> Any:
    """The least value of `dtype`: minus infinity for floats."""
    if dtype.kind == "b":
        return False
    return np.iinfo(dtype).min if dtype.kind in "iu" else -np.inf


def highest(dtype: np.dtype[Any]) -> Any:
    """The greatest value of `dtype`: infinity for floats."""
    if dtype.kind == "b":
        return True
    return np.iinfo(dtype).max if dtype.kind in "iu" else np.inf


def erf(x: Array) -> Array:
    """The error function, in float64."""
    wide = np.ascontiguousarray(x, np.float64).reshape(-1)
    return np.fromiter(map(math.erf, wide.data), np.float64, x.size).reshape(x.shape)


def sigmoid(x: Array) -> Array:
    """1 / (1 + exp(-x)) without overflow."""
    small = np.exp(-np.abs(x))
    return np.asarray(np.where(x >= 0, 1, small) / (1 + small))


def truncating_divide(a: Array, b: Array) -> Array:
    """a / b, rounded toward zero for integers. TypeError for dims (object arrays) whose quotient depends on a sign."""
    if not is_integral(a):
        return np.asarray(a / b)
    if object in (a.dtype, b.dtype):
        return np.asarray(_truncdiv(a, b), object)
    quotient = np.floor_divide(a, b)
    if a.dtype.kind == "u":
        return np.asarray(quotient)
    inexact = (a - quotient * b) != 0
    return np.asarray(quotient + (inexact & ((a < 0) ^ (b < 0))).astype(a.dtype))


_truncdiv = np.frompyfunc(truncdiv, 2, 1)


def remainder(a: Array, b: Array) -> Array:
    """The remainder of a / b rounded toward zero, with the sign of `a`. Dims as in :func:`truncating_divide`."""
    if object in (a.dtype, b.dtype):
        return np.asarray(a - truncating_divide(a, b) * b, object)
    return np.asarray(np.fmod(a, b))


def floor_divide(a: Array, b: Array) -> Array:
    """a / b rounded toward minus infinity."""
    return np.asarray(np.floor_divide(a, b) if is_integral(a) else np.floor(a / b))


def power(a: Array, b: Array) -> Array:
    """a ** b; an integer to a negative power is computed in float64 and rounded toward zero."""
    if object in (a.dtype, b.dtype):
        return _power_of_dims(a, b)
    if a.dtype.kind == "f" and b.dtype.kind == "f":
        return np.asarray(np.power(a, b.astype(a.dtype)))
    if is_integral(a) and is_integral(b) and not (b < 0).any():
        return np.asarray(np.power(a, b.astype(np.int64).astype(a.dtype)))
    result = np.power(a.astype(np.float64), b.astype(np.float64))
    return np.asarray(np.trunc(result) if is_integral(a) else result)


def _power_of_dims(a: Array, b: Array) -> Array:
    return np.asarray(_dim_power(a, b), object)


def _power_of_dim(base: Dim, exponent: Dim) -> Dim:
    """`base` ** `exponent`, of ints modulo 2**64, in which all integer types wrap."""
    if not isinstance(exponent, int) or exponent < 0:
        raise TypeError("the exponent of a dimension must be a nonnegative int")
    if isinstance(base, int):
        return pow(base, exponent, 1 << 64)
    if exponent > LARGEST_POWER:
        raise TypeError("the power of a symbolic dimension is too large")
    return product([base] * exponent)


_dim_power = np.frompyfunc(_power_of_dim, 2, 1)
LARGEST_POWER = 4
"""The largest power of a symbolic dimension that is propagated."""


def shifted(x: Array, amount: Array, kind: str) -> Array:
    """Shift bits "left", or right with zero fill ("logical") or sign fill ("arithmetic").

    Amounts outside [0, bits) move every bit out (ONNX BitShift-28).
    """
    bits = x.dtype.itemsize * 8
    outside = (amount < 0) | (amount >= bits)
    safe = np.where(outside, 0, amount).astype(x.dtype)
    if kind == "left":
        return np.where(outside, 0, np.left_shift(x, safe)).astype(x.dtype)
    if kind == "logical" or x.dtype.kind == "u":
        unsigned = x.view(f"u{x.dtype.itemsize}")
        moved = np.right_shift(unsigned, safe.astype(unsigned.dtype))
        return np.where(outside, 0, moved).astype(unsigned.dtype).view(x.dtype)
    return np.asarray(np.right_shift(x, np.where(outside, bits - 1, safe).astype(x.dtype)))


def cast(x: Array, dtype: DType, saturate: bool, rounding: str = "nearest") -> Array:
    """The elements in another element type, with the semantics of Convert, also of `saturate` and `rounding`."""
    if dtype is DType.BOOL:
        return np.asarray(widened(x) != 0)
    if dtype is DType.FLOAT8E8M0:
        return _powers_of_two(x, saturate, rounding)
    if dtype in _FLOAT8 and saturate:
        import ml_dtypes

        limit = float(ml_dtypes.finfo(dtype.numpy).max)
        wide = x.astype(np.float32)
        x = np.where(np.isnan(wide), wide, np.clip(wide, -limit, limit))
    if dtype.bits < 8 and dtype.is_integer:
        return _small_integers(x, dtype)
    if dtype.is_integer and not is_integral(x) and x.dtype.kind != "b":
        whole = np.trunc(widened(x))
        return whole.astype(np.uint64 if dtype is DType.UINT64 else np.int64).astype(dtype.numpy)
    return (x if dtype.is_complex else x.real).astype(dtype.numpy)


def _powers_of_two(x: Array, saturate: bool, rounding: str) -> Array:
    """Round to float8e8m0: unsigned exponents; infinities become NaN, as in onnx.reference."""
    bits = np.abs(x.astype(np.float32)).view(np.int32)
    half = np.where(bits == 0x400000, 0x3FFFFF, 0x400000)
    added = half if rounding == "nearest" else 0x7FFFFF if rounding == "up" else 0
    exponents = np.minimum(np.minimum(bits, 0x7F800000).astype(np.int64) + added >> 23, 254 if saturate else 255)
    return np.where(bits >= 0x7F800000, 255, exponents).astype(np.uint8).view(DType.FLOAT8E8M0.numpy)


def _small_integers(x: Array, dtype: DType) -> Array:
    """Truncate to integers and keep the low bits of `dtype`."""
    import ml_dtypes

    limits = ml_dtypes.iinfo(dtype.numpy)
    whole = x if is_integral(x) or x.dtype.kind == "b" else np.trunc(widened(x))
    low = whole.astype(np.int64) & ((1 << dtype.bits) - 1)
    return np.where(low > limits.max, low - (1 << dtype.bits), low).astype(np.int8).astype(dtype.numpy)
