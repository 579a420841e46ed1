"""Unary mathematics: one op on each side, and formulas for what TFLite or ONNX has no op for.

The formulas keep relative accuracy where the plain ones cancel (asinh, atanh, sinh near 0), and reach infinity and NaN
where the function does."""

from __future__ import annotations

import math

from onnxtfl.rules import *

_BOTH: tuple[tuple[type[Op], str, tuple[int, ...], str], ...] = (
    (ops.Abs, "Abs", (1, 6, 13), "ABS"),
    (ops.Neg, "Neg", (1, 6, 13), "NEG"),
    (ops.Sign, "Sign", (9, 13), "SIGN"),
    (ops.Ceil, "Ceil", (1, 6, 13), "CEIL"),
    (ops.Floor, "Floor", (1, 6, 13), "FLOOR"),
    (ops.RoundNearestEven, "Round", (11, 22), "ROUND"),
    (ops.Exp, "Exp", (1, 6, 13), "EXP"),
    (ops.Log, "Log", (1, 6, 13), "LOG"),
    (ops.Sqrt, "Sqrt", (1, 6, 13), "SQRT"),
    (ops.Sin, "Sin", (7, 22), "SIN"),
    (ops.Cos, "Cos", (7, 22), "COS"),
    (ops.Tanh, "Tanh", (1, 6, 13), "TANH"),
)
_ONNX_ONLY: tuple[tuple[type[Op], str, tuple[int, ...]], ...] = (
    (ops.Tan, "Tan", (7, 22)),
    (ops.Asin, "Asin", (7, 22)),
    (ops.Acos, "Acos", (7, 22)),
    (ops.Atan, "Atan", (7, 22)),
    (ops.Sinh, "Sinh", (9, 22)),
    (ops.Cosh, "Cosh", (9, 22)),
    (ops.Asinh, "Asinh", (9, 22)),
    (ops.Acosh, "Acosh", (9, 22)),
    (ops.Atanh, "Atanh", (9, 22)),
    (ops.Erf, "Erf", (9, 13)),
    (ops.IsNaN, "IsNaN", (9, 13, 20)),
)
for _op, _onnx, _since, _tfl in _BOTH:
    row(_op, onnx=_onnx, since=_since, tfl=_tfl)
for _op, _onnx, _since in _ONNX_ONLY:
    row(_op, onnx=_onnx, since=_since)
row(ops.IsInf, onnx="IsInf", since=(10, 20), attributes="detect_positive detect_negative")
row(ops.Rsqrt, tfl="RSQRT")
row(ops.Abs, tfl="COMPLEX_ABS", when=lambda node: node.operand(0).dtype.is_complex, lifts=False)


@lift_onnx("Reciprocal", since=(1, 6, 13))
def _reciprocal(b: Builder, node: Node) -> Value:
    return (1 / Term(b, node.operand(0))).value


@lift_tfl("SQUARE")
def _square(b: Builder, node: Node) -> Value:
    return b(ops.Mul, node.operand(0), node.operand(0))


@decompose(ops.Abs, "tfl")
def _abs_of_integers(b: Builder, node: Node) -> Value | None:
    """The kernels stop at int32."""
    x = Term(b, node.operand(0))
    if not x.dtype.is_integer:
        return None
    return x.max(-x).value if x.dtype.is_signed else x.value


@decompose(ops.Sign, "tfl")
def _sign(b: Builder, node: Node) -> Value | None:
    x = Term(b, node.operand(0))
    if not x.dtype.is_integer:
        return None
    return ((x > 0).to(x.dtype) - (x < 0).to(x.dtype)).value


@decompose(ops.Expm1)
def _expm1(b: Builder, node: Node) -> Value:
    """Elu is exact below 0; above, e**x - 1 = -e**x (e**-x - 1)."""
    x = Term(b, node.operand(0))
    up = x.max(0.0)
    return (x.min(0.0).apply(ops.Elu) - (-up).apply(ops.Elu) * up.exp()).value


@decompose(ops.Log1p)
def _log1p(b: Builder, node: Node) -> Value:
    return log1p(Term(b, node.operand(0))).value


@decompose(ops.Tan, "tfl")
def _tan(b: Builder, node: Node) -> Value:
    x = Term(b, node.operand(0))
    return (x.apply(ops.Sin) / x.apply(ops.Cos)).value


@decompose(ops.Atan, "tfl")
def _atan(b: Builder, node: Node) -> Value:
    return Term(b, node.operand(0)).apply(ops.Atan2, 1.0).value


@decompose(ops.Asin, "tfl")
def _asin(b: Builder, node: Node) -> Value:
    x = Term(b, node.operand(0))
    return x.apply(ops.Atan2, ((1.0 - x) * (x + 1.0)).sqrt()).value


@decompose(ops.Acos, "tfl")
def _acos(b: Builder, node: Node) -> Value:
    x = Term(b, node.operand(0))
    return ((1.0 - x) * (x + 1.0)).sqrt().apply(ops.Atan2, x).value


_LOG2 = math.log(2)


@decompose(ops.Cosh, "tfl")
def _cosh(b: Builder, node: Node) -> Value:
    """The halves go into the exponents, so that nothing overflows before the result does."""
    x = Term(b, node.operand(0))
    return ((x - _LOG2).exp() + (-_LOG2 - x).exp()).value


@decompose(ops.Sinh, "tfl")
def _sinh(b: Builder, node: Node) -> Value:
    """e**x / 2 (1 - e**-2x) for x >= 0, the second factor by Elu, which is exact near 0."""
    x = Term(b, node.operand(0))
    size = x.abs()
    return (-x.sign() * (size - _LOG2).exp() * (size * -2.0).apply(ops.Elu)).value


_LARGE = 1e9


@decompose(ops.Asinh, "tfl")
def _asinh(b: Builder, node: Node) -> Value:
    """log1p(a + a**2 / (1 + sqrt(a**2 + 1))) of the size; what is over 1e9 goes outside of the square."""
    x = Term(b, node.operand(0))
    size = x.abs()
    a = size.min(_LARGE)
    square = a * a
    inner = a + square / ((square + 1.0).sqrt() + 1.0)
    return (x.sign() * (log1p(inner) + (size / a.max(1e-30)).max(1.0).log())).value


@decompose(ops.Acosh, "tfl")
def _acosh(b: Builder, node: Node) -> Value:
    """log1p(t + sqrt(t) sqrt(t + 2)) of t = x - 1; far out, where twice that would overflow, log(x) + log(2)."""
    x = Term(b, node.operand(0))
    t = x - 1.0
    return (x > _LARGE).choose(x.log() + _LOG2, log1p(t + t.sqrt() * (t + 2.0).sqrt())).value


@decompose(ops.Atanh, "tfl")
def _atanh(b: Builder, node: Node) -> Value:
    x = Term(b, node.operand(0))
    size = x.abs()
    return (x.sign() * log1p(size * 2.0 / (1.0 - size)) * 0.5).value


@decompose(ops.Erf, "tfl")
def _erf(b: Builder, node: Node) -> Value:
    return erf(Term(b, node.operand(0))).value


@decompose(ops.IsNaN, "tfl")
def _is_nan(b: Builder, node: Node) -> Value:
    x = Term(b, node.operand(0))
    return x.differs(x).value


@decompose(ops.IsInf, "tfl")
def _is_inf(b: Builder, node: Node) -> Value:
    x = Term(b, node.operand(0))
    match bool(node.attr("detect_positive")), bool(node.attr("detect_negative")):
        case True, True:
            return x.abs().equals(math.inf).value
        case True, False:
            return x.equals(math.inf).value
        case False, True:
            return x.equals(-math.inf).value
    return (x < -math.inf).value


@decompose(ops.Neg, "tfl")
def _neg(b: Builder, node: Node) -> Value | None:
    return (0 - Term(b, node.operand(0))).value if node.operand(0).dtype.is_integer else None
