"""Unary mathematics: one operand, a result of its type and shape; and Atan2."""

from __future__ import annotations

import math
import operator

import numpy as np

from onnxtfl.ir import intervals, numeric
from onnxtfl.ir.data import Array
from onnxtfl.ir.formula import Term, by_formula
from onnxtfl.ir.intervals import EVERYWHERE, FINITE, INF
from onnxtfl.ir.op import FLOATS, INTEGERS, NUMERIC, Elementwise, Operand, computed_by
from onnxtfl.ir.ops.arithmetic import Binary, pair
from onnxtfl.ir.ops.complex_numbers import REAL_OF
from onnxtfl.ir.types import DType

_NUMERIC = (Operand("input", NUMERIC),)
_REAL = (Operand("output", becomes=dict.fromkeys(INTEGERS, DType.FLOAT32)),)
_WITH_COMPLEX = (Operand("input", NUMERIC | frozenset(REAL_OF)),)


def _likely(low: float, high: float) -> tuple[Operand]:
    return (Operand("input", FLOATS, likely=(low, high)),)


class Unary(Elementwise, register=False):
    """One operand, one result of its type and shape."""

    operands = (Operand("input", FLOATS),)
    core = True
    widens = True


class _Increasing(Unary, register=False):
    """Monotonically nondecreasing functions."""

    defined = EVERYWHERE
    monotonic = True


class _Bounded(_Increasing, register=False):
    """Functions with values in [-1, 1]."""

    bounds = (-1.0, 1.0)


class _Wave(Unary, register=False):
    """Functions with values in [-1, 1] for finite elements."""

    defined = FINITE
    bounds = (-1.0, 1.0)


class _Rounding(_Increasing, register=False):
    """Functions with integral values."""

    integral = True


Ceil = computed_by(_Rounding, "Ceil", np.ceil, "The least integer at or above. Source: neutral-ops 3.21.")
Floor = computed_by(_Rounding, "Floor", np.floor, "The greatest integer at or below. Source: neutral-ops 3.51.")
RoundNearestEven = computed_by(_Rounding, "RoundNearestEven", np.rint, "Halves to even. Source: neutral-ops 3.106.")
Exp = computed_by(_Increasing, "Exp", np.exp, "e to the input. Source: neutral-ops 3.49.", bounds=(0.0, INF))
Sin = computed_by(_Wave, "Sin", np.sin, "The sine. Source: neutral-ops 3.118.")
Cos = computed_by(_Wave, "Cos", np.cos, "The cosine. Source: neutral-ops 3.32.")
Tan = computed_by(Unary, "Tan", np.tan, "The tangent. Source: neutral-ops 3.132.", defined=FINITE)
Atan = computed_by(_Increasing, "Atan", np.arctan, "The inverse tangent. Source: neutral-ops 3.9.")
Sinh = computed_by(_Increasing, "Sinh", np.sinh, "The hyperbolic sine. Source: neutral-ops 3.119.")
Cosh = computed_by(Unary, "Cosh", np.cosh, "The hyperbolic cosine. Source: ONNX Cosh (added).", bounds=(1.0, INF))
Tanh = computed_by(_Bounded, "Tanh", np.tanh, "The hyperbolic tangent. Source: neutral-ops 3.133.")
Asinh = computed_by(_Increasing, "Asinh", np.arcsinh, "The inverse hyperbolic sine. Source: neutral-ops 3.8.")
Erf = computed_by(_Bounded, "Erf", numeric.erf, "The error function. Source: neutral-ops 3.48 (ONNX Erf).")


class Expm1(_Increasing):
    """exp(input) - 1, exact near 0; float32 for integers. Source: neutral-ops 3.50."""

    operands = _NUMERIC
    results = _REAL
    core = False
    bounds = (-1.0, INF)

    @staticmethod
    def compute(x: Array) -> Array:
        return np.asarray(np.expm1(x.astype(np.float64) if x.dtype.kind in "iu" else x))


class Log(_Increasing):
    """The natural logarithm. Source: neutral-ops 3.73."""

    operands = _likely(0.1, 2)
    compute = np.log
    defined = (0.0, INF)


class Log1p(_Increasing):
    """log(1 + input), exact near 0. Source: neutral-ops 3.74."""

    compute = np.log1p
    core = False
    defined = (-1.0, INF)


class Sqrt(_Increasing):
    """The square root. Source: neutral-ops 3.128."""

    operands = _likely(0, 2)
    compute = np.sqrt
    defined = bounds = (0.0, INF)


class Asin(_Increasing):
    """The inverse sine, NaN outside [-1, 1]. Source: neutral-ops 3.7."""

    operands = _likely(-0.9, 0.9)
    compute = np.arcsin
    defined = (-1.0, 1.0)


class Acos(Unary):
    """The inverse cosine, NaN outside [-1, 1]. Source: neutral-ops 3.2."""

    operands = _likely(-0.9, 0.9)
    compute = np.arccos
    defined = (-1.0, 1.0)
    bounds = (0.0, math.pi)


class Acosh(_Increasing):
    """The inverse hyperbolic cosine, NaN below 1. Source: ONNX Acosh (added)."""

    operands = _likely(1, 3)
    compute = np.arccosh
    defined = (1.0, INF)
    bounds = (0.0, INF)


class Atanh(_Increasing):
    """The inverse hyperbolic tangent. Source: neutral-ops 3.11."""

    operands = _likely(-0.9, 0.9)
    compute = np.arctanh
    defined = (-1.0, 1.0)


class Sign(Unary):
    """-1, 0 or 1; NaN stays. Source: neutral-ops 3.117."""

    operands = _NUMERIC
    compute = np.sign
    interval = intervals.sign


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


@by_formula(_Rounding)
def Round(x: Term) -> Term:
    """To the nearest integer, halves away from zero. Source: neutral-ops 3.105."""
    size = x.abs()
    whole = size.floor()
    return x.sign() * (size - whole >= 0.5).choose(whole + 1.0, whole)


@by_formula(Unary, core=True, operands=(Operand("input", NUMERIC, likely=(0.1, 2)),))
def Rsqrt(x: Term) -> Term:
    """1 / sqrt(input); truncated for integers, so that it is 1 for 1 and 0 for others (also for 0 and below).

    Source: neutral-ops 3.107 (infinity for 0, as in TFLite).
    """
    return x.equals(1).to(x.dtype) if x.dtype.is_integer else 1 / x.sqrt()


@by_formula(_Increasing, operands=_NUMERIC, results=_REAL)
def Cbrt(x: Term) -> Term:
    """The real cube root; float32 for integers. Source: neutral-ops 3.20.

    A half float is too coarse for 1/3.
    """
    real = x.to(DType.FLOAT32) if x.dtype.is_integer or x.dtype.bits < 32 else x
    root = real.sign() * real.abs().power(1 / 3)
    return root if x.dtype.is_integer else root.to(x.dtype)


class Atan2(Binary):
    """The angle of the point (rhs, lhs), in (-pi, pi]. Source: neutral-ops 3.10."""

    operands = pair(FLOATS)
    compute = np.arctan2
    bounds = (-math.pi, math.pi)
