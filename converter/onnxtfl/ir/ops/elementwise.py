"""Unary mathematics: one operand, a result of its type and shape; IsNaN, IsInf and IsFinite return bools."""

from __future__ import annotations

import math
import operator

import numpy as np

from onnxtfl.ir import intervals, numeric
from onnxtfl.ir.attributes import Flag
from onnxtfl.ir.data import Array
from onnxtfl.ir.formula import Term, by_formula
from onnxtfl.ir.intervals import EVERYWHERE, FINITE, INF
from onnxtfl.ir.op import BOOLS, FLOATS, NUMERIC, Elementwise, Operand, computed_by
from onnxtfl.ir.ops.complex_numbers import REAL_OF
from onnxtfl.ir.types import DType

_BOOLS = (Operand("output", BOOLS),)
_NUMERIC = (Operand("input", NUMERIC),)
_ALL_FLOATS = (Operand("input", frozenset(d for d in DType if d.is_float)),)
_WITH_COMPLEX = (Operand("input", NUMERIC | frozenset(REAL_OF)),)


class Unary(Elementwise, register=False):
    """One operand, one result of its type and shape."""

    operands = (Operand("input", FLOATS),)
    core = True
    widens = True


class _Increasing(Unary, register=False):
    """Greater, or the same, for greater elements."""

    defined = EVERYWHERE
    monotonic = True


class _Rounding(_Increasing, register=False):
    """To whole numbers."""

    integral = True


Ceil = computed_by(
    Unary,
    "Ceil",
    np.ceil,
    "The least integer at or above. Source: neutral-ops 3.21.",
    defined=EVERYWHERE,
    monotonic=True,
    integral=True,
)
Floor = computed_by(
    Unary,
    "Floor",
    np.floor,
    "The greatest integer at or below. Source: neutral-ops 3.51.",
    defined=EVERYWHERE,
    monotonic=True,
    integral=True,
)
RoundNearestEven = computed_by(
    Unary,
    "RoundNearestEven",
    np.rint,
    "Halves to even. Source: neutral-ops 3.106.",
    defined=EVERYWHERE,
    monotonic=True,
    integral=True,
)
Exp = computed_by(
    Unary,
    "Exp",
    np.exp,
    "e to the input. Source: neutral-ops 3.49.",
    defined=EVERYWHERE,
    monotonic=True,
    bounds=(0.0, INF),
)
Expm1 = computed_by(
    Unary,
    "Expm1",
    np.expm1,
    "exp(input) - 1, exact near 0. Source: neutral-ops 3.50.",
    core=False,
    defined=EVERYWHERE,
    monotonic=True,
    bounds=(-1.0, INF),
)
Log = computed_by(
    Unary, "Log", np.log, "The natural logarithm. Source: neutral-ops 3.73.", defined=(0.0, INF), monotonic=True
)
Log1p = computed_by(
    Unary,
    "Log1p",
    np.log1p,
    "log(1 + input), exact near 0. Source: neutral-ops 3.74.",
    core=False,
    defined=(-1.0, INF),
    monotonic=True,
)
Sqrt = computed_by(
    Unary,
    "Sqrt",
    np.sqrt,
    "The square root. Source: neutral-ops 3.128.",
    defined=(0.0, INF),
    monotonic=True,
    bounds=(0.0, INF),
)
Sin = computed_by(Unary, "Sin", np.sin, "The sine. Source: neutral-ops 3.118.", defined=FINITE, bounds=(-1.0, 1.0))
Cos = computed_by(Unary, "Cos", np.cos, "The cosine. Source: neutral-ops 3.32.", defined=FINITE, bounds=(-1.0, 1.0))
Tan = computed_by(Unary, "Tan", np.tan, "The tangent. Source: neutral-ops 3.132.", defined=FINITE)
Asin = computed_by(
    Unary,
    "Asin",
    np.arcsin,
    "The inverse sine, NaN outside [-1, 1]. Source: neutral-ops 3.7.",
    defined=(-1.0, 1.0),
    monotonic=True,
)
Acos = computed_by(
    Unary,
    "Acos",
    np.arccos,
    "The inverse cosine, NaN outside [-1, 1]. Source: neutral-ops 3.2.",
    defined=(-1.0, 1.0),
    bounds=(0.0, math.pi),
)
Atan = computed_by(
    Unary, "Atan", np.arctan, "The inverse tangent. Source: neutral-ops 3.9.", defined=EVERYWHERE, monotonic=True
)
Sinh = computed_by(
    Unary, "Sinh", np.sinh, "The hyperbolic sine. Source: neutral-ops 3.119.", defined=EVERYWHERE, monotonic=True
)
Cosh = computed_by(
    Unary, "Cosh", np.cosh, "The hyperbolic cosine. Source: ONNX Cosh (added).", defined=EVERYWHERE, bounds=(1.0, INF)
)
Tanh = computed_by(
    Unary,
    "Tanh",
    np.tanh,
    "The hyperbolic tangent. Source: neutral-ops 3.133.",
    defined=EVERYWHERE,
    monotonic=True,
    bounds=(-1.0, 1.0),
)
Asinh = computed_by(
    Unary,
    "Asinh",
    np.arcsinh,
    "The inverse hyperbolic sine. Source: neutral-ops 3.8.",
    defined=EVERYWHERE,
    monotonic=True,
)
Acosh = computed_by(
    Unary,
    "Acosh",
    np.arccosh,
    "Inverse hyperbolic cosine, NaN below 1. Source: ONNX Acosh (added).",
    defined=(1.0, INF),
    monotonic=True,
    bounds=(0.0, INF),
)
Atanh = computed_by(
    Unary,
    "Atanh",
    np.arctanh,
    "The inverse hyperbolic tangent. Source: neutral-ops 3.11.",
    defined=(-1.0, 1.0),
    monotonic=True,
)
Erf = computed_by(
    Unary,
    "Erf",
    numeric.erf,
    "The error function. Source: neutral-ops 3.48 (ONNX Erf).",
    defined=EVERYWHERE,
    monotonic=True,
    bounds=(-1.0, 1.0),
)
Sign = computed_by(
    Unary,
    "Sign",
    np.sign,
    "-1, 0 or 1; NaN stays. Source: neutral-ops 3.117.",
    operands=_NUMERIC,
    interval=intervals.sign,
)
IsNaN = computed_by(
    Unary, "IsNaN", np.isnan, "Whether not a number. Source: ONNX IsNaN (added).", operands=_ALL_FLOATS, results=_BOOLS
)


class Neg(Unary):
    """output = -input; integers wrap. Source: neutral-ops 3.81."""

    operands = _WITH_COMPLEX
    compute = np.negative
    interval = operator.neg
    propagates = True


class Abs(Unary):
    """|input|; the modulus, as a real number, of complex ones. Source: neutral-ops 3.1, TFLite COMPLEX_ABS."""

    operands = _WITH_COMPLEX
    results = (Operand("output", becomes=REAL_OF),)
    compute = np.abs
    interval = intervals.absolute


class IsInf(Unary):
    """Whether infinite, of a sign that is looked for. Source: ONNX IsInf (added)."""

    operands, results = _ALL_FLOATS, _BOOLS
    attributes = {"detect_positive": Flag(True), "detect_negative": Flag(True)}

    @staticmethod
    def compute(x: Array, *, detect_positive: bool, detect_negative: bool) -> Array:
        wide = x.astype(np.float64)  # NumPy knows no sign of float8
        return np.asarray((np.isposinf(wide) & detect_positive) | (np.isneginf(wide) & detect_negative))


@by_formula(Unary, results=_BOOLS)
def IsFinite(x: Term) -> Term:
    """Whether neither infinite nor NaN. Source: neutral-ops 3.70 (bool results)."""
    return x.abs() < np.inf


@by_formula(_Rounding)
def Round(x: Term) -> Term:
    """To the nearest integer, halves away from zero. Source: neutral-ops 3.105."""
    size = x.abs()
    whole = size.floor()
    return x.sign() * (size - whole >= 0.5).choose(whole + 1.0, whole)


@by_formula(Unary, core=True)
def Rsqrt(x: Term) -> Term:
    """1 / sqrt(input). Source: neutral-ops 3.107 (infinity for 0, as in TFLite)."""
    return 1 / x.sqrt()


@by_formula(_Increasing)
def Cbrt(x: Term) -> Term:
    """The real cube root. Source: neutral-ops 3.20 (float operands)."""
    return x.sign() * x.abs().power(1 / 3)
