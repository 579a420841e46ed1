"""The one analysis of values before run time: bounds, sign, NaN, integrality (:class:`onnxtfl.ir.intervals.Facts`).

The traits of ops define how facts propagate (:class:`onnxtfl.ir.declaration.Declaration`):
`moves`, `selects`, `clamps`, `bounds`, `defined`, `monotonic`, `interval`; some ops have a rule of their own
(:meth:`onnxtfl.ir.graph.Op.facts`). Sizes of axes are at most 2**31 - 1. Regions and unlifted ops are not looked into.
Test: tests/unit/test_facts.py (what ops compute has the facts, for random operands of all ops).
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from onnxtfl.ir.dims import is_open
from onnxtfl.ir.graph import Node, Value, attributes_of
from onnxtfl.ir.intervals import EVERYWHERE, UNKNOWN, Facts, FactsOf, mean, of_array, of_dim, of_type, with_rounding
from onnxtfl.ir.quantization import limits
from onnxtfl.ir.shapes import known_dims
from onnxtfl.ir.types import DType, TensorType

DEPTH = 32
"""The longest chain of producers that the analysis visits: one that only moves elements counts 1, any other one 4."""
MOST_VISITS = 500
"""The most values that one analysis visits."""
EXACT = 1 << 24
"""float32 represents every integer up to this exactly."""
_READ = 1 << 20
"""The largest number of elements of a constant that is read."""


def facts_of(value: Value) -> Facts:
    """Return the known facts about the (real) elements of `value`, from a chain of producers of at most `DEPTH`."""
    return _Search().of(value, DEPTH)


def never_negative(value: Value) -> bool:
    """Whether all elements of `value` are known to be >= 0 (or NaN)."""
    return facts_of(value).low >= 0


def max_magnitude(value: Value) -> int | None:
    """An upper bound of the absolute values in an integer tensor; None if nothing but its wide type is known."""
    found = facts_of(value)
    if not value.dtype.is_integer and value.dtype is not DType.BOOL:
        return None
    unknown = value.data is None and value.dtype.bits > 16 and found == of_type(value.dtype)
    return None if unknown or value.is_quantized else int(found.magnitude)


def fits_int32(value: Value) -> bool:
    """Whether all elements of `value` are known to be > -2**31 and < 2**31."""
    bound = max_magnitude(value)
    return bound is not None and bound < 1 << 31


def exact_terms(lhs: Value, rhs: Value) -> int | None:
    """The number of products of elements of `lhs` and `rhs` whose float32 sum is exact; None if it is unknown."""
    a, b = max_magnitude(lhs), max_magnitude(rhs)
    if a is None or b is None:
        return None
    return EXACT // max(1, a * b)


class _Search:
    """Facts from those of operands: each value once at each depth, and at most `MOST_VISITS` in all."""

    def __init__(self) -> None:
        self._found: dict[tuple[int, int], Facts] = {}

    def of(self, value: Value, depth: int) -> Facts:
        """The facts of `value`, from a chain of producers of at most `depth`."""
        if not isinstance(value.type, TensorType):
            return UNKNOWN
        if (own := _own(value)) is not None:
            return own
        found = _of_quantized(value) if value.is_quantized else _of_sizes(value) or of_type(value.dtype)
        node, key = value.producer, (id(value), depth)
        if node is None or depth <= 0 or node.op.dialect != "neutral" or value.dtype is DType.BOOL:
            return found
        if key not in self._found:
            if len(self._found) == MOST_VISITS:
                return found
            self._found[key] = found
            made = self._made(value, node, depth - (4 if node.op.moves is None else 1))
            is_sizes = not value.is_quantized and value.dtype.is_integer
            made = made.known_inside(found.low, found.high) if is_sizes else made
            self._found[key] = _with_sign(found, made) if value.is_quantized else made
        return self._found[key]

    def _made(self, value: Value, node: Node, depth: int) -> Facts:
        if value.dtype.is_complex or value.dtype is DType.STRING:
            return UNKNOWN

        def of(index: int) -> Facts:
            return self.of(node.operand(index), depth)

        found = node.op.facts(node, value.index, of)
        if found is None:
            found = _by_traits(node, value.index, of)
        if node.op.bounds is not None:
            found = found.known_inside(*node.op.bounds)
        return found.stored(value.dtype)


def _own(value: Value) -> Facts | None:
    """The facts of a constant; None of large ones and of strings."""
    few = value.data is not None and value.data.size <= _READ and value.dtype is not DType.STRING
    return of_array(value.numpy()) if few else None


def _of_sizes(value: Value) -> Facts | None:
    """The facts of integers whose expressions in sizes are known."""
    known = known_dims(value) if value.dtype.is_integer else None
    if not known or any(map(is_open, known)):
        return None
    first, *others = map(of_dim, set(known))
    return first.or_else(*others).stored(value.dtype)


def _of_quantized(value: Value) -> Facts:
    """Return the facts that follow from a quantized type; unknown for infinite scales and small float types."""
    quantization = value.tensor_type.quantization
    if quantization is None or not quantization.dtype.is_integer or not value.dtype.is_float:
        return UNKNOWN
    scales = np.asarray(quantization.scales)
    if not np.isfinite(scales).all() or (scales < 0).any():
        return UNKNOWN
    ends = [(limit - np.asarray(quantization.zero_points)) * scales for limit in limits(quantization.dtype)]
    return with_rounding(Facts(float(ends[0].min()), float(ends[1].max()), False), value.dtype)


def _with_sign(steps: Facts, made: Facts) -> Facts:
    """Return the facts of values rounded to `steps`, which keeps their sign: 0 is one of them, but what NaN becomes
    depends on the runtime.
    """
    if made.nan or not steps.low <= 0 <= steps.high:
        return steps
    return replace(steps, low=0.0 if made.low >= 0 else steps.low, high=0.0 if made.high <= 0 else steps.high)


def _by_traits(node: Node, index: int, of: FactsOf) -> Facts:
    """Return the facts that follow from the traits of the op, in exact arithmetic."""
    op = node.op
    if op.interval is not None:
        return op.interval(*(None if node.optional(i) is None else of(i) for i in range(len(op.operands))))
    chosen = op.moves if op.moves is not None else op.selects if index == 0 else None
    if chosen is not None:
        places = [i for i in range(len(node.operands))[chosen] if node.operands[i] is not None]
        return of(places[0]).or_else(*(of(i) for i in places[1:])) if places else UNKNOWN
    low, high = op.clamps or (None, None)
    if low is not None and high is not None:
        return of(0).clipped(low, high)
    pick = op.picks(attributes_of(node)) if index == 0 else None
    if pick is not None:
        return of(0) if pick == "element" else mean(of(0))
    if op.defined is not None and node.operand(0).dtype.is_float:
        return _of_function(node, of(0))
    return replace(UNKNOWN, nan=node.results[index].dtype.is_float, integral=op.integral)


def _of_function(node: Node, x: Facts) -> Facts:
    """Return the facts of an elementwise function from its domain (`defined`) and, if it is monotonic, its values at
    the bounds.
    """
    op, (least, most) = node.op, node.op.defined or EVERYWHERE
    nan = not x.inside(least, most)
    if not op.monotonic:
        return replace(UNKNOWN, nan=nan, integral=op.integral)
    ends = [min(max(end, least), most) for end in (x.low, x.high)]
    low, high = map(float, op.evaluate(attributes_of(node), np.asarray(ends, np.float64)))
    if math.isnan(low) or math.isnan(high) or low > high:
        return replace(UNKNOWN, nan=nan)
    found = Facts(low, high, nan, op.integral)
    return found if op.integral else with_rounding(found, node.operand(0).dtype)
