"""Unary mathematics: one operand, a result of its type and shape; IsNaN, IsInf and IsFinite return bools."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from onnxtfl.ir import numeric
from onnxtfl.ir.data import Array
from onnxtfl.ir.formula import Formula, Term
from onnxtfl.ir.op import BOOLS, FLOATS, NUMERIC, Elementwise, Operand
from onnxtfl.ir.ops.complex_numbers import REAL_OF

_WITH_COMPLEX = (Operand("input", NUMERIC | frozenset(REAL_OF)),)


class Unary(Elementwise, register=False):
    """One operand, one result of its type and shape."""

    operands = (Operand("input", FLOATS),)
    core = True
    widens = True


class UnaryFormula(Unary, Formula, register=False):
    """A unary op that is a formula over others."""

    core = False


class Test(Unary, register=False):
    """A unary op that returns bools."""

    results = (Operand("output", BOOLS),)


def _unary(name: str, compute: Callable[..., Any], meaning: str, **declared: Any) -> type[Unary]:
    """Declare a unary op that a NumPy function computes."""
    return type(name, (Unary,), {"__doc__": meaning, "compute": compute, **declared})


Ceil = _unary("Ceil", np.ceil, "The least integer at or above. Source: neutral-ops 3.21.")
Floor = _unary("Floor", np.floor, "The greatest integer at or below. Source: neutral-ops 3.51.")
RoundNearestEven = _unary("RoundNearestEven", np.rint, "Rounded, halves to even. Source: neutral-ops 3.106.")
Exp = _unary("Exp", np.exp, "e to the input. Source: neutral-ops 3.49.")
Expm1 = _unary("Expm1", np.expm1, "exp(input) - 1, exact near 0. Source: neutral-ops 3.50.", core=False)
Log = _unary("Log", np.log, "The natural logarithm. Source: neutral-ops 3.73.")
Log1p = _unary("Log1p", np.log1p, "log(1 + input), exact near 0. Source: neutral-ops 3.74.", core=False)
Sqrt = _unary("Sqrt", np.sqrt, "The square root. Source: neutral-ops 3.128.")
Sin = _unary("Sin", np.sin, "The sine. Source: neutral-ops 3.118.")
Cos = _unary("Cos", np.cos, "The cosine. Source: neutral-ops 3.32.")
Tan = _unary("Tan", np.tan, "The tangent. Source: neutral-ops 3.132.")
Asin = _unary("Asin", np.arcsin, "The inverse sine, NaN outside [-1, 1]. Source: neutral-ops 3.7.")
Acos = _unary("Acos", np.arccos, "The inverse cosine, NaN outside [-1, 1]. Source: neutral-ops 3.2.")
Atan = _unary("Atan", np.arctan, "The inverse tangent. Source: neutral-ops 3.9.")
Sinh = _unary("Sinh", np.sinh, "The hyperbolic sine. Source: neutral-ops 3.119.")
Cosh = _unary("Cosh", np.cosh, "The hyperbolic cosine. Source: ONNX Cosh (added).")
Tanh = _unary("Tanh", np.tanh, "The hyperbolic tangent. Source: neutral-ops 3.133.")
Asinh = _unary("Asinh", np.arcsinh, "The inverse hyperbolic sine. Source: neutral-ops 3.8.")
Acosh = _unary("Acosh", np.arccosh, "The inverse hyperbolic cosine, NaN below 1. Source: ONNX Acosh (added).")
Atanh = _unary("Atanh", np.arctanh, "The inverse hyperbolic tangent. Source: neutral-ops 3.11.")
Erf = _unary("Erf", numeric.erf, "The error function. Source: neutral-ops 3.48 (ONNX Erf).")


class Neg(Unary):
    """output = -input; integers wrap. Source: neutral-ops 3.81."""

    operands = _WITH_COMPLEX
    compute = np.negative
    follows_values = True


class Sign(Unary):
    """-1, 0 or 1; NaN stays. Source: neutral-ops 3.117."""

    operands = (Operand("input", NUMERIC),)
    compute = np.sign


class Abs(Unary):
    """output = |input|; the modulus, as a real number, of complex ones. Source: neutral-ops 3.1, TFLite COMPLEX_ABS."""

    operands = _WITH_COMPLEX
    results = (Operand("output", becomes=REAL_OF),)
    compute = np.abs


class Round(UnaryFormula):
    """To the nearest integer, halves away from zero. Source: neutral-ops 3.105."""

    @classmethod
    def formula(cls, x: Term) -> Term:
        size = x.abs()
        whole = size.floor()
        return x.sign() * (size - whole >= 0.5).choose(whole + 1.0, whole)


class Rsqrt(UnaryFormula):
    """1 / sqrt(input). Source: neutral-ops 3.107 (0 gives infinity, as in TFLite)."""

    core = True

    @classmethod
    def formula(cls, x: Term) -> Term:
        return 1 / x.sqrt()


class Cbrt(UnaryFormula):
    """The real cube root. Source: neutral-ops 3.20 (float operands)."""

    @classmethod
    def formula(cls, x: Term) -> Term:
        return x.sign() * x.abs().power(1 / 3)


class IsNaN(Test):
    """Whether not a number. Source: ONNX IsNaN (added)."""

    compute = np.isnan


class IsInf(Test):
    """Whether infinite, of a sign that is looked for. Source: ONNX IsInf (added)."""

    defaults = {"detect_positive": True, "detect_negative": True}

    @staticmethod
    def compute(x: Array, *, detect_positive: bool, detect_negative: bool) -> Array:
        return np.asarray((np.isposinf(x) & detect_positive) | (np.isneginf(x) & detect_negative))


class IsFinite(Test, Formula):
    """Whether neither infinite nor NaN. Source: neutral-ops 3.70 (bool results)."""

    core = False

    @classmethod
    def formula(cls, x: Term) -> Term:
        return x.abs() < np.inf
