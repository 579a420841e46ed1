"""Products of integers and a real factor, which kernels compute as an integer of 31 bits and a power of two.

Source: LiteRT kernels/internal/quantization_util.cc (QuantizeMultiplier), kernels/internal/common.cc
(MultiplyByQuantizedMultiplier); gemmlowp fixedpoint/fixedpoint.h (SaturatingRoundingDoublingHighMul,
RoundingDivideByPOT).
Test: tests/unit/test_kernels_of_scales.py (test_comparisons_are_in_units_of_1_256), tests/unit/test_quantized_tfl.py
(test_int16_softmax).
"""

from __future__ import annotations

import math

import numpy as np

from onnxtfl.ir.data import Array

_BITS = 31


def multiply_by_factor(x: Array, factor: float) -> Array:
    """x * factor for int64 `x` and a positive `factor`, rounded to 31 bits and then to integers, as int64.

    A factor below 2^-32 counts as 0. x saturates to int32 if it is shifted to the left.
    """
    multiplier, shift = multiplier_and_shift(factor)
    if shift < -_BITS:
        return np.zeros_like(x)
    shifted = np.clip(x << max(shift, 0), -(1 << _BITS), (1 << _BITS) - 1)
    return divide_by_power(doubled_high(shifted, multiplier), max(-shift, 0))


def multiplier_and_shift(factor: float) -> tuple[int, int]:
    """Return an integer of 31 bits and a power of 2, the product of which, over 2^31, is `factor`."""
    fraction, shift = math.frexp(factor)
    multiplier = math.floor(fraction * (1 << _BITS) + 0.5)
    if multiplier == 1 << _BITS:
        multiplier, shift = multiplier // 2, shift + 1
    return multiplier, shift


def divide_by_power(x: Array, exponent: int) -> Array:
    """x / 2^exponent, halves rounded away from 0."""
    mask = (1 << exponent) - 1
    return np.asarray((x >> exponent) + ((x & mask) > (mask >> 1) + (x < 0)))


def doubled_high(x: Array, multiplier: Array | int) -> Array:
    """x * multiplier / 2^31 for int64 `x`, rounded to the nearest integer, halves up."""
    products = x * np.asarray(multiplier, np.int64)
    biased = products + np.where(products >= 0, 1 << (_BITS - 1), 1 - (1 << (_BITS - 1)))
    return np.asarray(np.sign(biased) * (np.abs(biased) >> _BITS))
