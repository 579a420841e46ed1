"""Comparisons: Compare; IsNaN, IsInf and IsFinite."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from onnxtfl.ir.attributes import Choice, Flag
from onnxtfl.ir.data import Array
from onnxtfl.ir.dims import Dim, is_nonnegative
from onnxtfl.ir.formula import Term, by_formula
from onnxtfl.ir.graph import KNOWN_LIMIT, Node
from onnxtfl.ir.op import ANY, BOOLS, Elementwise, Operand, computed_by
from onnxtfl.ir.ops.arithmetic import pair
from onnxtfl.ir.ops.elementwise import Unary
from onnxtfl.ir.types import DType

_BOOLS = (Operand("output", BOOLS),)
_ALL_FLOATS = (Operand("input", frozenset(d for d in DType if d.is_float)),)
_DIRECTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "EQ": operator.eq,
    "NE": operator.ne,
    "GE": operator.ge,
    "GT": operator.gt,
    "LE": operator.le,
    "LT": operator.lt,
}


class Compare(Elementwise):
    """lhs `comparison_direction` rhs: EQ NE GE GT LE LT. Source: neutral-ops 3.24."""

    operands = pair(ANY)
    results = _BOOLS
    discrete = True
    integers = "bits"
    attributes = {"comparison_direction": Choice(*_DIRECTIONS)}
    core = True
    widens = True

    @staticmethod
    def compute(a: Array, b: Array, *, comparison_direction: str) -> Array:
        return np.asarray(_DIRECTIONS[comparison_direction](a, b), bool)

    @classmethod
    def known_results(cls, node: Node) -> list[Array | None]:
        """Known for sizes that compare equally whatever the size of symbols."""
        a, b = node.operand(0).known, node.operand(1).known
        if a is None or b is None:
            return [None]
        a, b = np.broadcast_arrays(a, b)
        pairs = zip(a.reshape(-1).tolist(), b.reshape(-1).tolist(), strict=True)
        answers = [_compared(x, y, node.attr("comparison_direction")) for x, y in pairs]
        if len(answers) > KNOWN_LIMIT or any(answer is None for answer in answers):
            return [None]
        return [np.asarray(answers, object).reshape(a.shape)]


def _compared(a: Dim, b: Dim, direction: str) -> bool | None:
    """Compare sizes; None if the result depends on the size of symbols."""
    difference = a - b
    if isinstance(difference, int):
        return bool(_DIRECTIONS[direction](difference, 0))
    if direction in ("EQ", "NE"):
        differs = is_nonnegative(difference - 1) or is_nonnegative(-difference - 1)
        return direction == "NE" if differs else None
    margin = {"GE": difference, "GT": difference - 1, "LE": -difference, "LT": -difference - 1}[direction]
    if is_nonnegative(margin):
        return True
    return False if is_nonnegative(-margin - 1) else None


IsNaN = computed_by(
    Unary, "IsNaN", np.isnan, "Whether not a number. Source: ONNX IsNaN (added).", operands=_ALL_FLOATS, results=_BOOLS
)


class IsInf(Unary):
    """Whether infinite, of a sign selected by `detect_positive` and `detect_negative`. Source: ONNX IsInf (added)."""

    operands, results = _ALL_FLOATS, _BOOLS
    attributes = {"detect_positive": Flag(True), "detect_negative": Flag(True)}

    @staticmethod
    def compute(x: Array, *, detect_positive: bool, detect_negative: bool) -> Array:
        wide = x.astype(np.float64)  # NumPy has no signbit for float8
        return np.asarray((np.isposinf(wide) & detect_positive) | (np.isneginf(wide) & detect_negative))


@by_formula(Unary, results=_BOOLS)
def IsFinite(x: Term) -> Term:
    """Whether neither infinite nor NaN. Source: neutral-ops 3.70 (bool results)."""
    return x.abs() < np.inf
