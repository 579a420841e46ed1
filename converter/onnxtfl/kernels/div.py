"""TFLite's DIV of 8-bit integers: a table of the results.

The kernel shifts the quotient to the right by up to 38 bits. Processors shift 32-bit integers by this number modulo 32,
so that quotients near 0 become any integer, unless lhs scale / (rhs scale * result scale) is at least 64.

Source: LiteRT kernels/div.cc, kernels/internal/reference/div.h, kernels/internal/common.cc (GetReciprocal); gemmlowp
fixedpoint/fixedpoint.h (one_over_one_plus_x_for_x_in_0_1).
Test: tests/unit/test_kernel_arithmetic.py (test_quotients).
"""

from __future__ import annotations

import numpy as np

from onnxtfl.ir.data import Array
from onnxtfl.ir.quantization import Quantization
from onnxtfl.kernels.multipliers import doubled_high, multiplier_and_shift

_LOW, _HIGH = -(1 << 31), (1 << 31) - 1
_48_17, _32_17 = 1515870810, -1010580540
"""48 / 17 and -32 / 17 with 29 fractional bits."""
_NEWTON_STEPS = 3


def quotient_table(lhs: Quantization, rhs: Quantization, result: Quantization) -> tuple[Array, Array]:
    """Return the stored results for each pair of stored 8-bit integers in ascending order [256, 256], not clamped, and
    the nearest ones.

    A divisor of 0, for which the kernel fails, has 0 as its quotient.
    """
    first, second = (_centered(q) for q in (lhs, rhs))
    sign = np.where(second < 0, -1, 1)
    dividend, divisor = first[:, None] * sign, np.maximum(np.abs(second), 1)
    scale, *others = (np.float32(q.scales[0]) for q in (lhs, rhs, result))
    with np.errstate(over="ignore", under="ignore"):
        factor = float(scale / (others[0] * others[1]))
    multiplier, shift = multiplier_and_shift(factor)
    inverse, bits = _reciprocal(divisor)
    headroom = _sign_bits(dividend)
    quotient = doubled_high(dividend << headroom, inverse)
    scaled = _shifted_right(doubled_high(quotient, multiplier), bits + headroom - shift)
    zero = result.zero_points[0]
    computed = np.where(second == 0, 0, scaled) + zero
    nearest = np.where(second == 0, 0, np.rint(dividend / divisor * factor)) + zero
    return computed, nearest


def _centered(quantization: Quantization) -> Array:
    """All stored integers in ascending order, without the zero point."""
    low = -128 if quantization.dtype.is_signed else 0
    return np.arange(low, low + 256, dtype=np.int64) - quantization.zero_points[0]


def _bit_length(x: Array) -> Array:
    """The number of bits of non-negative integers."""
    return np.ceil(np.log2(x + 1.0)).astype(np.int64)


def _sign_bits(x: Array) -> Array:
    """The number of bits after the first that equal it, in int32."""
    return 31 - _bit_length(np.where(x < 0, ~x, x))


def _reciprocal(x: Array) -> tuple[Array, Array]:
    """1 / x as an integer of 31 bits, and the number of bits by which to shift it to the right. x is positive."""
    bits = _bit_length(x) - 1
    half = _halved((x << (31 - bits)) - (1 << 31) + _HIGH)
    found = _48_17 + doubled_high(half, _32_17)
    for _ in range(_NEWTON_STEPS):
        rest = (1 << 29) - doubled_high(half, found)
        found = found + np.clip(4 * doubled_high(found, rest), _LOW, _HIGH)
    return np.clip(2 * found, _LOW, _HIGH), bits


def _halved(x: Array) -> Array:
    """x / 2, halves rounded up."""
    return (x + 1) >> 1


def _shifted_right(x: Array, exponent: Array) -> Array:
    """x / 2^exponent, halves rounded away from 0, as 32-bit processors compute it also beyond 31 bits."""
    mask = ((np.int64(1) << exponent % 64) - 1).astype(np.int32).astype(np.int64)
    return np.asarray((x >> (exponent % 32)) + ((x & mask) > (mask >> 1) + (x < 0)))
