"""Element types of few bits: the types that represent their values, and arithmetic that rounds to them.

bfloat16, float8 and float4 are stored as float32, which is exact; 4-bit and 2-bit integers as int8 or uint8. Formulas
over float32 and int32 round to a type.
"""

from __future__ import annotations

import numpy as np

from onnxtfl.dataclass import dataclass
from onnxtfl.ir.dtypes import Array, DType
from onnxtfl.ir.formula import Term
from onnxtfl.ir.numeric import cast

_INTEGERS = {DType.INT4: DType.INT8, DType.INT2: DType.INT8, DType.UINT4: DType.UINT8, DType.UINT2: DType.UINT8}
SMALL_FLOATS = frozenset(d for d in DType if d is DType.BFLOAT16 or d.value.startswith(("float8", "float4")))
HELD = _INTEGERS | dict.fromkeys(SMALL_FLOATS, DType.FLOAT32)
"""The type that represents the values of a small type."""


def bits_type(dtype: DType) -> DType:
    """Return the type that stores the bits of a small type, one element in each."""
    return DType.UINT16 if dtype is DType.BFLOAT16 else DType.UINT8


@dataclass(frozen=True, slots=True)
class FloatFormat:
    """A float format: bits of the fraction, exponent of the smallest normal value, largest value, special values."""

    fraction: int
    least: int
    largest: float
    nan: int | None = None
    infinity: int | None = None
    negative_zero: bool = True

    @property
    def step(self) -> float:
        """The distance of subnormal values."""
        return 2.0 ** (self.least - self.fraction)

    @property
    def beyond(self) -> float:
        """A power of two that is larger than every finite value."""
        return float(2.0 ** np.ceil(np.log2(self.largest)))


FORMATS = {
    DType.FLOAT8E4M3FN: FloatFormat(3, -6, 448.0, nan=0x7F),
    DType.FLOAT8E4M3FNUZ: FloatFormat(3, -7, 240.0, nan=0x80, negative_zero=False),
    DType.FLOAT8E5M2: FloatFormat(2, -14, 57344.0, nan=0x7E, infinity=0x7C),
    DType.FLOAT8E5M2FNUZ: FloatFormat(2, -15, 57344.0, nan=0x80, negative_zero=False),
    DType.FLOAT4E2M1: FloatFormat(1, 0, 6.0),
}
"""All but bfloat16 and float8e8m0."""


def rounded(x: Term, dtype: DType, saturate: bool, rounding: str) -> Term:
    """The float32 `x` rounded to the values of `dtype`, as `onnxtfl.ir.numeric.cast` does it."""
    if dtype is DType.BFLOAT16:
        return _rounded_bfloat16(x)
    if dtype is DType.FLOAT8E8M0:
        return _rounded_power(x, saturate, rounding)
    form = FORMATS[dtype]
    limit = form.largest if saturate or form.nan is None else form.beyond
    near = x.clamp(-limit, limit)
    step = _power_of_two(near).max(2.0**form.least) * 2.0**-form.fraction
    y = (near / step).apply("RoundNearestEven") * step
    if limit > form.largest:
        too_large = y * np.inf if form.infinity else (y < 0.0).choose(y.constant(-np.nan), y.constant(np.nan))
        y = (y.abs() > form.largest).choose(too_large, y)
    if not form.negative_zero:
        y = y.equals(0.0).choose(y.constant(0.0), y)
    return x.is_nan().choose(y.constant(0.0) if form.nan is None else x, y)


def shift_right(x: Term, places: int) -> Term:
    """int32 shifted right, with copies of the sign bit as the highest bits."""
    return x.apply("ShiftRightArithmetic", places, in_range=True)


def _power_of_two(x: Term) -> Term:
    """The largest power of two of at most |x|; 0 for subnormal float32."""
    return (shift_right(x.abs().bits(DType.INT32), 23) * (1 << 23)).bits(DType.FLOAT32)


def _rounded_bfloat16(x: Term) -> Term:
    bits = x.bits(DType.INT32)
    whole = shift_right(bits + 0x7FFF + shift_right(bits, 16) % 2, 16) * (1 << 16)
    return x.is_nan().choose(x, whole.bits(DType.FLOAT32))


def _rounded_power(x: Term, saturate: bool, rounding: str) -> Term:
    """The powers of two of float8e8m0: the sign is ignored, infinity is NaN, as onnx.reference computes it."""
    bits = x.abs().bits(DType.INT32)
    if rounding == "nearest":
        half = bits.equals(0x400000).choose(bits.constant(0x3FFFFF), 0x400000)
        exponent = shift_right(bits + half, 23)
    else:
        exponent = shift_right(bits + (0x7FFFFF if rounding == "up" else 0), 23)
    exponent = exponent.min(254 if saturate else 255)
    power = (exponent * (1 << 23)).max(0x400000)
    not_finite = bits.max(power) >= 0x7F800000
    return not_finite.choose(power.constant(0x7FC00000), power).bits(DType.FLOAT32)


def wrap_to(x: Term, dtype: DType) -> Term:
    """Return the low bits of `x` (floats are truncated) as integers of `dtype`, stored in 8 bits."""
    whole, offset = x.to(DType.INT32), 1 << dtype.bits - 1 if dtype.is_signed else 0
    return ((whole + offset) % (1 << dtype.bits) - offset).to(HELD[dtype])


def holds_bits(source: str, held: str) -> bool | None:
    """Whether `held` stores bits (True) or values (False) of `source`; None: neither.

    float16 may be stored as float32.
    """
    try:
        before, after = DType(source), DType(held)
    except ValueError:
        return None
    if after is HELD.get(before, DType.FLOAT32 if before is DType.FLOAT16 else None):
        return False
    return True if before in HELD and after is bits_type(before) else None


def as_held(array: Array, dtype: DType, bits: bool) -> Array:
    """Convert elements of `dtype` (an array of ml_dtypes) to the type that stores their values, or their bits.

    int64 is stored as int32; ValueError if an element does not fit.
    """
    if dtype is DType.INT64:
        return _as_int32(array)
    if not bits:
        return array.astype(HELD.get(dtype, DType.FLOAT32).numpy)
    stored = array.view(bits_type(dtype).numpy)
    return stored & np.uint8((1 << dtype.bits) - 1) if dtype.bits < 8 else stored


def _as_int32(array: Array) -> Array:
    found = array.astype(np.int32)
    if (found != array).any():
        raise ValueError(f"int32 cannot hold {array[found != array].flat[0]}")
    return found


def from_held(array: Array, dtype: DType, bits: bool) -> Array:
    """The opposite of `as_held`; other values are rounded."""
    if not bits:
        with np.errstate(invalid="ignore"):
            return cast(array, dtype, False)
    if dtype.is_integer:
        return cast(array.astype(np.int32), dtype, True)
    return np.ascontiguousarray(array).view(dtype.numpy).reshape(array.shape)
