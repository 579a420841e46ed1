"""TFLite's LOGISTIC and TANH of int16: the table of all results.

Both interpolate between 256 samples of the sigmoid. If the operand's scale is a certain power of two, the vector
kernels use code in 16-bit fixed point instead; the reference kernels do not.
Source: LiteRT kernels/activations.cc (SigmoidPrepare, TanhPrepare), kernels/internal/reference/integer_ops/logistic.h
and tanh.h, kernels/internal/common.h (sigmoid_table_uint16); gemmlowp fixedpoint/fixedpoint.h.
Test: tests/unit/test_quantized_tfl.py (test_int16_sigmoids).
"""

from __future__ import annotations

import math

import numpy as np

from onnxtfl.ir.data import Array
from onnxtfl.ir.quantization import Quantization
from onnxtfl.kernels.multipliers import divide_by_power

_LEAST, _MOST = -(1 << 15), (1 << 15) - 1
_ABOVE = 0x800000000000000000000000000000800011009020440005C0467BAEFA7BD110
"""The samples that are one more than the nearest integer, as bits."""


def sigmoid_table(x: Quantization, y: Quantization) -> Array | None:
    """The results of LOGISTIC for every stored int16, in order; None if it refuses the scale of the result."""
    if _power(y) != -15:
        return None
    stored = np.arange(_LEAST, _MOST + 1)
    if _power(x) == -12:
        return _fixed_sigmoid(stored)
    place = _place(stored, x)
    between = _interpolated(np.abs(place), 9, 0x7FFF << 10)
    signed = np.where(place >= 0, between + (1 << 9), (1 << 25) - between + (1 << 9) - 1)
    return np.asarray(signed >> 10, np.int16)


def tanh_table(x: Quantization, y: Quantization) -> Array | None:
    """The results of TANH for every stored int16, in order; None if it refuses the scale of the result."""
    if _power(y) != -15:
        return None
    stored = np.arange(_LEAST, _MOST + 1)
    if (power := _power(x)) in (-12, -11):
        return _fixed_tanh(_shifted(stored, power + 12))
    place = _place(stored, x)
    between = _interpolated(np.abs(place), 8, 0xFFFF << 8)
    signed = np.where(place >= 0, between - (1 << 23) + (1 << 7), -between + (1 << 23) + (1 << 7) - 1)
    return np.asarray(signed >> 8, np.int16)


def _power(quantization: Quantization) -> int | None:
    """The exponent of a scale that is a power of two; None for other scales. Source: CheckedLog2, with its
    tolerance.
    """
    exponent = math.log2(quantization.scales[0])
    return round(exponent) if abs(exponent - round(exponent)) < 1e-3 else None


def _place(stored: Array, x: Quantization) -> Array:
    """Real values in steps of 1 / (3 * 4096), by a multiplier of 15 bits."""
    multiplier, shift = x.scales[0] * 4096.0 * 3.0, 0
    while multiplier <= _MOST / 2 and shift <= 30:
        multiplier, shift = multiplier * 2, shift + 1
    return np.asarray((stored * int(multiplier) + (1 << shift >> 1)) >> shift)


def _interpolated(place: Array, bits: int, most: int) -> Array:
    """The sigmoid between two samples, times 2^(16 + bits); `most` from the last sample on."""
    raised = np.asarray([_ABOVE >> i & 1 for i in range(256)])
    samples = np.minimum(np.rint(65536 / (1 + np.exp(-np.arange(256) / 24))).astype(np.int64) + raised, 65535)
    index = np.minimum(place >> bits, 254)
    fraction = place & ((1 << bits) - 1)
    between = (samples[index] << bits) + fraction * (samples[index + 1] - samples[index])
    return np.where(place >> bits >= 255, most, between)


def _fixed_sigmoid(x: Array) -> Array:
    """The sigmoid in fixed point, of operands with 3 integer bits: 1 / (1 + e^-|x|)."""
    positive: Array = _shifted(_reciprocal(_exp(-np.abs(x), 3)), 1)
    return np.asarray(np.where(x > 0, positive, np.where(x < 0, _MOST - positive, 1 << 14)), np.int16)


def _fixed_tanh(x: Array) -> Array:
    """The hyperbolic tangent in fixed point, of operands with 3 integer bits: (1 - e^-2|x|) / (1 + e^-2|x|)."""
    size = _shifted(_reciprocal(_exp(-np.abs(x), 4)) - (1 << 13), 2)
    return np.asarray(np.where(x > 0, size, np.where(x < 0, -size, 0)), np.int16)


def _reciprocal(x: Array) -> Array:
    """2 / (1 + x) with 2 integer bits, for x in [0, 1] with none: three steps of Newton's method."""
    half = (x + _MOST + 1) >> 1
    result = _constant(48 / 17, 2) + _product(half, _constant(-32 / 17, 2))
    for _ in range(3):
        result = result + _shifted(_product(result, (1 << 13) - _product(half, result)), 2)
    return result


def _exp(x: Array, integer_bits: int) -> Array:
    """e^x without integer bits, for x <= 0: of x modulo a quarter, times e^-(2^k) for each bit k of the rest."""
    fraction_bits = 15 - integer_bits
    quarter = 1 << (fraction_bits - 2)
    inside = (x & (quarter - 1)) - quarter
    result = _exp_of_quarter(_shifted(inside, integer_bits))
    rest = inside - x
    for exponent in range(-2, integer_bits):
        factor = _constant(float(np.exp(-(2.0**exponent))), 0)
        has_bit = (rest & (1 << (fraction_bits + exponent))) != 0
        result = np.asarray(np.where(has_bit, _product(result, factor), result))
    return np.asarray(np.where(x == 0, _MOST, result))


def _exp_of_quarter(x: Array) -> Array:
    """e^x for x in [-1/4, 0): the series around -1/8."""
    factor = _constant(float(np.exp(-0.125)), 0)
    near = x + (1 << 12)
    square = _product(near, near)
    cube, fourth = _product(square, near), _product(square, square)
    rest = divide_by_power(_product(divide_by_power(fourth, 2) + cube, _constant(1 / 3, 0)) + square, 1)
    return np.asarray(np.clip(factor + _product(np.full_like(x, factor), near + rest), _LEAST, _MOST))


def _constant(value: float, integer_bits: int) -> int:
    """`value` as int16 with `integer_bits` integer bits."""
    return round(value * 2.0 ** (15 - integer_bits))


def _product(a: Array, b: Array | int) -> Array:
    """The high half of twice the product of two int16, halves rounded up."""
    doubled: Array = np.asarray(a * b + (1 << 14))
    return np.asarray(np.minimum(doubled // (1 << 15), _MOST))


def _shifted(x: Array, bits: int) -> Array:
    return np.asarray(np.clip(x << bits, _LEAST, _MOST))
