"""Rows of whole numbers that a kernel reads as they are, although it quantizes each row at run time.

A kernel of float activations and 8-bit weights divides the range of each row, and 0, into 255 steps. Two columns
with the ends of a range of 255 make the steps 1 wide, so that whole numbers are not rounded::

    rows [..., k + 2] = Max(Min(numbers, highest - zero), lowest - zero)
        lowest    0   0 ..   0  0 255
        highest 255 255 .. 255  0 255
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.data import Array
from onnxtfl.ir.facts import facts_of
from onnxtfl.ir.graph import Node, Value, constant
from onnxtfl.ir.op import Op
from onnxtfl.ir.quantization import limits
from onnxtfl.ir.types import DType

COLUMNS = 2
"""How many columns the ends are."""
STEPS = 255
"""How many steps 8 bits have."""
Meaning = Callable[[Node], type[Op] | None]
"""The neutral op that a node is; None for other nodes."""


def quantized_rows(b: Builder, x: Value, scale: Value, zero: Value, dtype: DType, width: int) -> Value:
    """`x` [..., k = `width`] in whole steps of `scale`, clamped as 8-bit integers of `dtype` less `zero`: [..., k + 2].

    `scale`, `zero`: float32 of one element; `zero` is a whole number within the limits of `dtype`.
    """
    least, most = limits(dtype)
    inner = np.full(width, least, np.float32), np.full(width, most, np.float32)
    lowest, highest = (constant(np.concatenate([part, np.asarray([least, most], np.float32)])) for part in inner)
    padding = np.asarray([[0, 0]] * (x.rank - 1) + [[0, COLUMNS]])
    numbers = b(ops.RoundNearestEven, b(ops.Div, b(ops.Pad, x, padding), scale))
    return b(ops.Max, b(ops.Min, numbers, b(ops.Sub, highest, zero)), b(ops.Sub, lowest, zero))


def quantized_numbers(b: Builder, x: Value, scale: Value, zero: Value, dtype: DType) -> Value:
    """`x` in whole steps of `scale`, clamped as 8-bit integers of `dtype` less `zero`, as in `quantized_rows`."""
    least, most = (b(ops.Sub, b.scalar(limit, DType.FLOAT32), zero) for limit in limits(dtype))
    return b(ops.Max, b(ops.Min, b(ops.RoundNearestEven, b(ops.Div, x, scale)), most), least)


def _own_meaning(node: Node) -> type[Op] | None:
    return node.lowered_from or node.op


def are_whole_rows(value: Value, meaning: Meaning = _own_meaning) -> bool:
    """Whether each row (last axis) of `value` has whole numbers only, and 255 steps from end to end, with 0.

    `value` has to be written as `quantized_rows` does. `meaning`: of nodes of a file; by default that of neutral nodes
    and of those lowered from them.
    """
    for clamped, low in _pairs(value, ops.Max, meaning):
        for numbers, high in _pairs(clamped, ops.Min, meaning):
            lowest, highest = _offset(low, meaning), _offset(high, meaning)
            if lowest is None or highest is None or lowest[1] is not highest[1]:
                continue
            if _is(numbers, ops.RoundNearestEven, meaning) and _has_ends(lowest[0], highest[0]):
                return _is_whole(lowest[1], float(lowest[0].min()), meaning)
    return False


def _is_whole(zero: Value, least: float, meaning: Meaning) -> bool:
    """Whether `zero` is a whole number from `least` to 255 more (of ops of a target: whether it is a whole number)."""
    node = zero.producer
    if node is None or node.op.dialect != "neutral":
        return _is(zero, ops.RoundNearestEven, meaning) or _is(zero, ops.Convert, meaning)
    known = facts_of(zero)
    return known.integral and least <= known.low and known.high <= least + STEPS


def _pairs(value: Value, op: type[Op], meaning: Meaning) -> list[tuple[Value, Value]]:
    """Both orders of the operands of the node that computes `value`, if that is an `op`."""
    node = value.producer
    if node is None or meaning(node) is not op:
        return []
    lhs, rhs = node.operand(0), node.operand(1)
    return [(lhs, rhs), (rhs, lhs)]


def _is(value: Value, op: type[Op], meaning: Meaning) -> bool:
    return value.producer is not None and meaning(value.producer) is op


def _offset(bounds: Value, meaning: Meaning) -> tuple[Array, Value] | None:
    """The constant vector and the single element that is subtracted from it."""
    node = bounds.producer
    if node is None or meaning(node) is not ops.Sub:
        return None
    vector, zero = node.operand(0), node.operand(1)
    is_vector = vector.data is not None and vector.tensor_type.rank == 1 and not vector.is_quantized
    return (vector.numpy(), zero) if is_vector and zero.is_single else None


def _has_ends(lowest: Array, highest: Array) -> bool:
    """Whether whole numbers between both vectors are within 255 steps, and both ends are forced."""
    if lowest.shape != highest.shape or not lowest.size or (lowest > highest).any() or (lowest % 1).any():
        return False
    least, forced = lowest.min(), lowest[lowest == highest]
    return bool(highest.max() == least + STEPS and least in forced and least + STEPS in forced)
