"""Polynomials for functions without a TFLite kernel: relative error below 4e-7 in float32, also near 0.

The coefficients minimize the maximum relative error (Lawson's iteration over 4,000 points).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from onnxtfl.ir import ops
from onnxtfl.ir.formula import Term

# log1p(u) / s in s**2, s = u / (u + 2), for |s| <= 1/3.
_LOG1P = (1.9999996423721313, 0.6667600274085999, 0.3958945572376251, 0.34226080775260925)
# atanh(erf(x)) / x in x**2, over [0, 4.2], where erf reaches 1 in float32.
_ERF = (
    *(1.128379225730896, 0.10276905447244644, -0.0001918310736073181, -0.000619784404989332),
    *(8.763724326854572e-05, -5.668462108587846e-06, 1.4185147279022203e-07),
)

# atan(x) / x in x**2, for x in [0, 1].
_ATAN = (
    *(0.9999999847644423, -0.33333073337819086, 0.19992619279454438, -0.1420364369678499, 0.10640931255704521),
    *(-0.07504288932483477, 0.04269145505440613, -0.016068590134776902, 0.0028498799965899877),
)


def polynomial(x: Term, coefficients: Sequence[float]) -> Term:
    """Return sum(coefficients[i] * x**i)."""
    *rest, top = coefficients
    total = x * top + rest.pop()
    while rest:
        total = total * x + rest.pop()
    return total


def log1p_of_square(square: Term) -> Term:
    """Return log(1 + u) / s, s = u / (u + 2), of s squared; not above 1/9."""
    return polynomial(square, _LOG1P)


def is_small(square: Term) -> Term:
    """Whether `log1p_of_square` is exact enough."""
    return square < 0.1112


def log1p_of_small(u: Term) -> Term:
    """Return log(1 + u) for u in [-0.5, 1]. Computing 1 + u would cancel, and XNNPACK's Log is off by 1e-7 near 1."""
    s = u / (u + 2.0)
    return s * log1p_of_square(s * s)


def log1p(u: Term) -> Term:
    """Return log(1 + u)."""
    s = u / (u + 2.0)
    square = s * s
    return is_small(square).choose(s * log1p_of_square(square), (u + 1.0).log())


def erf(x: Term) -> Term:
    """Return erf(x) as tanh of a polynomial."""
    return (x * polynomial(x * x, _ERF)).apply(ops.Tanh)


def atan2(y: Term, x: Term, y_has_sign: Term, x_has_sign: Term) -> Term:
    """Return the angle of (x, y): atan(smaller / larger coordinate), mirrored; both may be 0 or infinite."""
    a, b = y.abs(), x.abs()
    steep, equal = a > b, a.equals(b)
    small, large = steep.choose(b, a), steep.choose(a, b)
    ratio = equal.choose((a > 0).to(y.dtype), small / equal.choose(large.constant(1.0), large))
    angle = ratio * polynomial(ratio * ratio, _ATAN)
    angle = steep.choose(math.pi / 2 - angle, angle)
    angle = x_has_sign.choose(math.pi - angle, angle)
    return y_has_sign.choose(-angle, angle)
