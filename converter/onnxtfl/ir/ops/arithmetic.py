"""Binary arithmetic under NumPy broadcasting."""

from __future__ import annotations

import operator
from functools import partial

import numpy as np

from onnxtfl.ir import intervals, numeric
from onnxtfl.ir.data import Array
from onnxtfl.ir.facts import never_negative
from onnxtfl.ir.formula import Term, by_formula
from onnxtfl.ir.graph import KNOWN_LIMIT, Node
from onnxtfl.ir.intervals import Facts, FactsOf
from onnxtfl.ir.op import NUMERIC, Elementwise, Operand, computed_by
from onnxtfl.ir.types import DType


def pair(dtypes: frozenset[DType]) -> tuple[Operand, Operand]:
    """Two operands of one element type."""
    return Operand("lhs", dtypes), Operand("rhs", dtypes, like="lhs")


class Binary(Elementwise, register=False):
    """Two operands of one element type, which broadcast; integers wrap."""

    operands = pair(NUMERIC)
    core = True
    widens = True


class Arithmetic(Binary, register=False):
    """Binary ops that also compute sizes before run time."""

    propagates = True


class _Truncating(Arithmetic, register=False):
    """Division that rounds toward zero; of sizes it is known if their signs are."""

    @classmethod
    def known_results(cls, node: Node) -> list[Array | None] | None:
        """Floor division of sizes if both are nonnegative, else as for other arithmetic."""
        a, b = node.operand(0), node.operand(1)
        if a.known is None or b.known is None or not (never_negative(a) and never_negative(b)):
            return None
        try:
            quotient = np.floor_divide(a.known, b.known)
        except ZeroDivisionError:
            return [None]
        known = np.asarray(quotient if cls is Div else np.subtract(a.known, np.multiply(quotient, b.known)), object)
        return [known if known.size <= KNOWN_LIMIT else None]


_COMPLEX = pair(NUMERIC | {DType.COMPLEX64, DType.COMPLEX128})
Add = computed_by(
    Arithmetic,
    "Add",
    np.add,
    "lhs + rhs. Source: neutral-ops 3.3.",
    operands=_COMPLEX,
    interval=operator.add,
    commutative=True,
    reduction="sum",
    integers="bits",
)
Sub = computed_by(
    Arithmetic,
    "Sub",
    np.subtract,
    "lhs - rhs. Source: neutral-ops 3.130.",
    operands=_COMPLEX,
    interval=operator.sub,
    integers="bits",
)


class Mul(Arithmetic):
    """lhs * rhs. Source: ONNX Mul (added)."""

    operands = _COMPLEX
    compute = np.multiply
    interval = operator.mul
    commutative = True
    reduction = "prod"
    multiplies = "elements"
    integers = "bits"

    @classmethod
    def facts(cls, node: Node, index: int, of: FactsOf) -> Facts | None:
        """Products; squares are nonnegative."""
        return of(0).squared() if node.operand(0) is node.operand(1) else None


Div = computed_by(
    _Truncating,
    "Div",
    numeric.truncating_divide,
    "lhs / rhs; integers are truncated. Source: neutral-ops 3.36.",
    interval=intervals.quotient,
)
FloorDiv = computed_by(
    Arithmetic,
    "FloorDiv",
    numeric.floor_divide,
    "The quotient rounded down. Source: TFLite FLOOR_DIV (added).",
    interval=partial(intervals.quotient, down=True),
)
Rem = computed_by(
    _Truncating,
    "Rem",
    numeric.remainder,
    "The remainder with the dividend's sign. Source: neutral-ops 3.97.",
    interval=intervals.remainder,
)
FloorMod = computed_by(
    Arithmetic,
    "FloorMod",
    np.mod,
    "The remainder with the divisor's sign. Source: TFLite FLOOR_MOD, ONNX Mod (added).",
    interval=intervals.modulus,
    carries=slice(0, 1),
)


class Pow(Arithmetic):
    """lhs to the rhs, in the element type of lhs. The exponents may be of another type. Source: neutral-ops 3.89."""

    operands = (Operand("lhs", NUMERIC), Operand("rhs", NUMERIC))
    compute = numeric.power


@by_formula(Binary, commutative=True)
def SquaredDifference(lhs: Term, rhs: Term) -> Term:
    """(lhs - rhs) squared. Source: TFLite SQUARED_DIFFERENCE (added)."""
    difference = lhs - rhs
    return difference * difference


SquaredDifference.interval = intervals.squared_difference
