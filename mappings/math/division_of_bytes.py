"""Division by a quantized int8 divisor as a product, for NPUs, which have no division.

The reciprocal of 256 divisors is a table of 16 bits, computed as two functions of 8 bits::

    %y = Div(%a, %d)    ->    %r = Add(Convert(High(%d)), Convert(Low(%d)))     int16
                              %y = Convert(Mul(Convert(%a), %r))                int16, then as %y
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np

from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.conversions import convert_quantization, stored_as
from onnxtfl.ir.data import Array
from onnxtfl.ir.graph import Node, Value
from onnxtfl.ir.quantization import Quantization
from onnxtfl.ir.quantized import quantization_of
from onnxtfl.ir.ramps import function_of_bytes
from onnxtfl.rewriting.registry import decompose

_SATURATED = 256.0
"""The steps beyond any int8 result. A factor twice as large is that of a divisor of 0."""
_HIGHEST = 32767
_LARGE = 8.0
"""The factor from which on a second table is used, if one is too coarse for small ones."""
_TOLERANCE = 0.25
"""The most steps that a quotient may be off before it is rounded."""


def _is_of_bytes(node: Node) -> bool:
    """Whether the divisor and the result are int8 tensors that are no constants, and the dividend is quantized."""
    lhs, rhs, result = (quantization_of(v) for v in (*node.operands, *node.results) if v is not None)
    types = [q is not None and q.per_tensor and q.storage == "int8" for q in (lhs, rhs, result)]
    return all(types) and not node.operand(1).is_constant and node.operand(1).is_static


@decompose(ops.Div, "ethos-u", when=_is_of_bytes)
def _by_reciprocals(b: Builder, node: Node) -> Value | None:
    """Multiply by the reciprocal, if that is exact enough for all quotients."""
    x, divisor = node.operand(0), node.operand(1)
    before, by, after = (quantization_of(v) for v in (x, divisor, node.result))
    assert before is not None and by is not None and after is not None
    factors = _factors(before, by, after)
    ranges = next((found for found in _ranges(factors) if _error(before, found, factors) <= _TOLERANCE), None)
    if ranges is None:
        return None
    dividend = convert_quantization(b, x, Quantization("int16", (before.scales[0] / 128,), (0,)))
    fine = Quantization("int16", (after.scales[0] / 60,), (0,))  # up to 546 steps
    parts = []
    for part in ranges:
        reciprocal = _reciprocal(b, divisor, part, after.scales[0] / before.scales[0])
        parts.append(stored_as(b(ops.Mul, dividend, reciprocal), fine))
    if -128 <= by.zero_points[0] <= 127:
        parts.append(_not_a_number(b, divisor, by.zero_points[0], after.scales[0], fine))
    total = functools.reduce(lambda one, other: stored_as(b(ops.Add, one, other), fine), parts)
    return convert_quantization(b, total, after)


def _not_a_number(b: Builder, divisor: Value, zero: int, step: float, fine: Quantization) -> Value:
    """The lowest result where the divisor is 0: 0 / 0 is quantized to it, other quotients saturate nevertheless."""
    table = np.where(np.arange(-128, 128) == zero, -1.0, 0.0)
    found = function_of_bytes(b, divisor, Quantization("int8", (_SATURATED * step,), (0,)), table, table)
    return convert_quantization(b, found, fine)


def _ranges(factors: Array) -> list[list[Array]]:
    """The factors as one table, or as two of which one is 0: large factors and small ones have other units."""
    is_large = np.abs(factors) > _LARGE
    return [[factors], [np.where(is_large, factors, 0), np.where(is_large, 0, factors)]]


def _rounded(factors: Array) -> tuple[float, Array]:
    """The unit of 16-bit integers, and these."""
    unit = max(float(np.abs(factors).max()), 1e-6) / _HIGHEST
    return unit, np.round(factors / unit)


def _reciprocal(b: Builder, divisor: Value, factors: Array, scale: float) -> Value:
    """The factors for `divisor` as int16, the sum of two functions of 8 bits; `scale`: of a factor of 1."""
    unit, table = _rounded(factors)
    high = np.clip(np.round(table / 256), -128, 127)
    low = np.clip(table - 256 * high, -128, 127)
    wide = Quantization("int16", (unit * scale,), (0,))
    halves = []
    for part, step in ((high, 256 * unit * scale), (low, unit * scale)):
        found = function_of_bytes(b, divisor, Quantization("int8", (step,), (0,)), part, part)
        halves.append(convert_quantization(b, found, wide))
    return stored_as(b(ops.Add, *halves), wide)


def _factors(before: Quantization, by: Quantization, after: Quantization) -> Array:
    """The steps of the result for a step of the dividend, for each stored divisor: float64 [256]."""
    divisors = (np.arange(-128, 128) - by.zero_points[0]) * by.scales[0]
    with np.errstate(divide="ignore"):
        factors = before.scales[0] / (divisors * after.scales[0])
    return np.asarray(np.clip(factors, -2 * _SATURATED, 2 * _SATURATED))


def _error(before: Quantization, parts: Sequence[Array], factors: Array) -> float:
    """The most steps by which the sum of rounded `parts` makes quotients that do not saturate other than `factors`."""
    errors = sum((unit * table for unit, table in map(_rounded, parts)), -factors)
    farthest = max(before.zero_points[0] + 128, 127 - before.zero_points[0])
    dividends = np.minimum(farthest, 255 / np.maximum(np.abs(factors), 1e-9))
    return float((np.abs(errors) * dividends).max())
