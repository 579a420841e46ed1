"""Binary arithmetic under NumPy broadcasting, and Clamp."""

from __future__ import annotations

import numpy as np

from onnxtfl.ir import numeric
from onnxtfl.ir.data import Array
from onnxtfl.ir.op import FLOATS, NUMERIC, Elementwise, Operand
from onnxtfl.ir.types import DType


def pair(dtypes: frozenset[DType]) -> tuple[Operand, Operand]:
    """Two operands of one element type."""
    return Operand("lhs", dtypes), Operand("rhs", dtypes, like="lhs")


class Binary(Elementwise, register=False):
    """Two operands of one element type, which broadcast; integers wrap."""

    operands = pair(NUMERIC)
    core = True
    widens = True


class _ComplexToo(Binary, register=False):
    operands = pair(NUMERIC | {DType.COMPLEX64, DType.COMPLEX128})
    follows_values = True


class Add(_ComplexToo):
    """output = lhs + rhs. Source: neutral-ops 3.3."""

    compute = np.add


class Sub(_ComplexToo):
    """output = lhs - rhs. Source: neutral-ops 3.130."""

    compute = np.subtract


class Mul(_ComplexToo):
    """output = lhs * rhs. Source: ONNX Mul (the document leaves it out)."""

    compute = np.multiply


class Div(Binary):
    """output = lhs / rhs; integers are rounded toward zero. Source: neutral-ops 3.36."""

    compute = numeric.truncating_divide
    follows_values = True


class FloorDiv(Binary):
    """The quotient rounded down. Source: TFLite FLOOR_DIV (added)."""

    compute = numeric.floor_divide
    follows_values = True


class Rem(Binary):
    """The remainder with the sign of the dividend (C's fmod and %). Source: neutral-ops 3.97."""

    follows_values = True

    @staticmethod
    def compute(a: Array, b: Array) -> Array:
        return np.asarray(np.mod(a, b) if a.dtype == object else np.fmod(a, b))


class FloorMod(Binary):
    """The remainder with the sign of the divisor (Python's %). Source: TFLite FLOOR_MOD, ONNX Mod (added)."""

    compute = np.mod
    follows_values = True


class Pow(Binary):
    """lhs to the rhs, in the element type of lhs. The exponents may be of another type. Source: neutral-ops 3.89."""

    operands = (Operand("lhs", NUMERIC), Operand("rhs", NUMERIC))
    compute = numeric.power
    follows_values = True


class Max(Binary):
    """The greater; NaN where either is. Source: neutral-ops 3.76."""

    compute = np.maximum
    follows_values = True


class Min(Binary):
    """The smaller; NaN where either is. Source: neutral-ops 3.79."""

    compute = np.minimum
    follows_values = True


class Atan2(Binary):
    """The angle of the point (rhs, lhs), in (-pi, pi]. Source: neutral-ops 3.10."""

    operands = pair(FLOATS)
    compute = np.arctan2


class SquaredDifference(Binary):
    """(lhs - rhs) squared. Source: TFLite SQUARED_DIFFERENCE (added); into the core: Sub and Mul."""

    core = False

    @staticmethod
    def compute(a: Array, b: Array) -> Array:
        return np.asarray((a - b) * (a - b))


class Clamp(Elementwise):
    """min(max(input, min), max); either bound may be absent, and broadcasts.

    Source: neutral-ops 3.23, with the operands in ONNX Clip's order.
    """

    operands = (
        Operand("input", NUMERIC),
        Operand("min", NUMERIC, optional=True, like="input"),
        Operand("max", NUMERIC, optional=True, like="input"),
    )
    core = True
    follows_values = True
    widens = True

    @staticmethod
    def compute(x: Array, low: Array | None, high: Array | None) -> Array:
        result = x if low is None else np.maximum(x, low)
        return result if high is None else np.minimum(result, high)
