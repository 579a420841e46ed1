"""Unary mathematics and atan2: ops with a counterpart, and formulas for functions without an op in TFLite or ONNX.

The formulas keep relative accuracy where textbook formulas cancel (asinh, atanh, sinh near 0), and return infinity and
NaN where the function does.
"""

from __future__ import annotations

import math

import numpy as np
from onnxtfl.mappings.math.approximations import atan2, erf, is_small, log1p, log1p_of_square

from onnxtfl.build.operands import formula, on_terms
from onnxtfl.build.rows import row
from onnxtfl.errors import UnsupportedError
from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.dims import differ
from onnxtfl.ir.formula import Term
from onnxtfl.ir.graph import Node, Value, constant
from onnxtfl.ir.quantization import Quantization
from onnxtfl.ir.reshape import broadcast
from onnxtfl.ir.types import DType, TensorType
from onnxtfl.kernels.logistic_tanh_int16 import tanh_table
from onnxtfl.kernels.lookup_int16 import by_table, interpolated
from onnxtfl.rewriting.registry import decompose, lift_onnx, lift_tfl

row(ops.Abs, onnx="Abs", since=(1, 6, 13), tfl="ABS")
row(ops.Neg, onnx="Neg", since=(1, 6, 13), tfl="NEG")
row(ops.Sign, onnx="Sign", since=(9, 13), tfl="SIGN")
row(ops.Ceil, onnx="Ceil", since=(1, 6, 13), tfl="CEIL")
row(ops.Floor, onnx="Floor", since=(1, 6, 13), tfl="FLOOR")
row(ops.RoundNearestEven, onnx="Round", since=(11, 22), tfl="ROUND")
row(ops.Sqrt, onnx="Sqrt", since=(1, 6, 13), tfl="SQRT")
row(ops.Sin, onnx="Sin", since=(7, 22), tfl="SIN")
row(ops.Cos, onnx="Cos", since=(7, 22), tfl="COS")
row(ops.Exp, onnx="Exp", since=(1, 6, 13))
row(ops.Log, onnx="Log", since=(1, 6, 13))
row(ops.Tanh, onnx="Tanh", since=(1, 6, 13))
row(ops.Tan, onnx="Tan", since=(7, 22))
row(ops.Asin, onnx="Asin", since=(7, 22))
row(ops.Acos, onnx="Acos", since=(7, 22))
row(ops.Atan, onnx="Atan", since=(7, 22))
row(ops.Sinh, onnx="Sinh", since=(9, 22))
row(ops.Cosh, onnx="Cosh", since=(9, 22))
row(ops.Asinh, onnx="Asinh", since=(9, 22))
row(ops.Acosh, onnx="Acosh", since=(9, 22))
row(ops.Atanh, onnx="Atanh", since=(9, 22))
row(ops.Erf, onnx="Erf", since=(9, 13))
for _op, _tfl in ((ops.Exp, "EXP"), (ops.Log, "LOG"), (ops.Rsqrt, "RSQRT"), (ops.Tanh, "TANH")):
    row(_op, tfl=_tfl, lifts=False)
row(ops.Abs, tfl="STABLEHLO_ABS", lowers=False)
row(ops.Neg, tfl="STABLEHLO_NEGATE", lowers=False)
row(ops.Floor, tfl="STABLEHLO_FLOOR", lowers=False)
row(ops.Cos, tfl="STABLEHLO_COSINE", lowers=False)
row(ops.Exp, tfl="STABLEHLO_EXPONENTIAL", lowers=False)
row(ops.Log, tfl="STABLEHLO_LOG", lowers=False)
row(ops.Rsqrt, tfl="STABLEHLO_RSQRT", lowers=False)


@formula(ops.Rsqrt, "gpu")
def _rsqrt_by_sqrt(x: Term) -> Term | None:
    return 1.0 / x.apply(ops.Sqrt) if x.dtype.is_float else None


row(ops.Cbrt, tfl="STABLEHLO_CBRT", lowers=False)
row(ops.Tanh, tfl="STABLEHLO_TANH", lowers=False)
row(ops.Abs, tfl="COMPLEX_ABS", when=lambda node: node.operand(0).dtype.is_complex, lifts=False)
lift_onnx("Reciprocal", since=(1, 6, 13))(on_terms(lambda x: 1 / x))
lift_tfl("SQUARE")(on_terms(lambda x: x * x))
formula(ops.Log1p)(log1p)
formula(ops.Erf, "tfl")(erf)
formula(ops.Tan, "tfl")(lambda x: x.apply(ops.Sin) / x.apply(ops.Cos))
formula(ops.Atan, "tfl")(lambda x: x.apply(ops.Atan2, 1.0))
formula(ops.Asin, "tfl")(lambda x: x.apply(ops.Atan2, ((1.0 - x) * (x + 1.0)).sqrt()))
formula(ops.Acos, "tfl")(lambda x: ((1.0 - x) * (x + 1.0)).sqrt().apply(ops.Atan2, x))


@formula(ops.Neg, "tfl")
def _neg(x: Term) -> Term | None:
    """Negate quantized values as a product with -128 / 128, whose kernel supports any scales."""
    quantization = x.value.tensor_type.quantization
    if quantization is None or quantization.storage not in ("int8", "uint8", "int16"):
        return 0 - x if x.dtype.is_integer else None
    zero = 128 if quantization.storage == "uint8" else 0
    least = np.asarray(zero - (1 << quantization.dtype.bits - 1), quantization.dtype.numpy)
    unit = Quantization(quantization.storage, (2.0 ** (1 - quantization.dtype.bits),), (zero,))
    return x.apply(ops.Mul, constant(least, type_=TensorType(x.dtype, (), unit)))


@formula(ops.Neg, "onnx")
def _neg_of_uint64(x: Term) -> Term | None:
    """ONNX has Neg of signed types."""
    return 0 - x if x.dtype is DType.UINT64 else None


@formula(ops.Atan, "onnx")
def _atan_of_float64(x: Term) -> Term | None:
    """Return t + (x - tan t) / (1 + x tan t) for t = float32 atan(x): one correction step in float64.

    ONNX Runtime has Atan in float32, Sin and Cos in float64.
    """
    if x.dtype is not DType.FLOAT64:
        return None
    near = x.to(DType.FLOAT32).apply(ops.Atan).to(DType.FLOAT64)
    sine, cosine = near.apply(ops.Sin), near.apply(ops.Cos)
    found = near + (x * cosine - sine) / (cosine + x * sine)
    turn = (x < 0).choose(x.constant(-math.pi / 2), math.pi / 2)
    return (x.abs() > 1e300).choose(turn, found)


@formula(ops.Sign, "tfl")
def _sign(x: Term) -> Term:
    """Return the sign from comparisons; NaN stays NaN."""
    found = (x > 0).to(x.dtype) - (x < 0).to(x.dtype)
    return found if x.dtype.is_integer else x.is_nan().choose(x, found)


_TABLES = {
    "EXP": (ops.Exp, interpolated(np.exp)),
    "LOG": (ops.Log, interpolated(np.log)),
    "RSQRT": (ops.Rsqrt, interpolated(lambda x: 1 / np.sqrt(x), elsewhere="most")),
    "TANH": (ops.Tanh, tanh_table),
}


@lift_tfl(*_TABLES)
def _from_tfl(b: Builder, node: Node) -> Value:
    """int16 kernels differ from the function by several steps, so their results become a table."""
    op, table = _TABLES[node.op.name_in_file]
    return by_table(b, node, table) or b(op, node.operand(0))


@formula(ops.Abs, "tfl")
def _abs_of_integers(x: Term) -> Term | None:
    """Abs of integers wider than the kernels' int32."""
    if not x.dtype.is_integer:
        return None
    return x.max(-x) if x.dtype.is_signed else x


@formula(ops.Expm1)
def _expm1(x: Term) -> Term:
    """Return Elu(x) for x < 0, where it is exact, else -e**x * Elu(-x)."""
    x = x.to(DType.FLOAT32) if x.dtype.is_integer else x
    up = x.max(0.0)
    return x.min(0.0).apply(ops.Elu) - (-up).apply(ops.Elu) * up.exp()


_LOG2 = math.log(2)


@formula(ops.Cosh, "tfl")
def _cosh(x: Term) -> Term:
    """Return e**(x - log 2) + e**(-x - log 2), which overflows only if the result does."""
    return (x - _LOG2).exp() + (-_LOG2 - x).exp()


@formula(ops.Sinh, "tfl")
def _sinh(x: Term) -> Term:
    """Return e**x / 2 * (1 - e**-2x) for x >= 0, the second factor by Elu, which is exact near 0."""
    size = x.abs()
    return -x.sign() * (size - _LOG2).exp() * (size * -2.0).apply(ops.Elu)


_LARGE = 1e9


@formula(ops.Asinh, "tfl")
def _asinh(x: Term) -> Term:
    """Return log1p(a + a**2 / (1 + sqrt(a**2 + 1))) for a = |x|; values above 1e9 are scaled before squaring."""
    size = x.abs()
    a = size.min(_LARGE)
    square = a * a
    inner = a + square / ((square + 1.0).sqrt() + 1.0)
    return x.sign() * (log1p(inner) + (size / a.max(1e-30)).max(1.0).log())


@formula(ops.Acosh, "tfl")
def _acosh(x: Term) -> Term:
    """Return log1p(t + sqrt(t) * sqrt(t + 2)) for t = x - 1; log(x) + log(2) for large x."""
    t = x - 1.0
    return (x > _LARGE).choose(x.log() + _LOG2, log1p(t + t.sqrt() * (t + 2.0).sqrt()))


@formula(ops.Atanh, "tfl")
def _atanh(x: Term) -> Term:
    """Return half of log1p(2 x / (1 - x)), of large x as a difference: TFLite's quotients are never infinite."""
    square = x * x
    large = (x + 1.0).log() * 0.5 - (1.0 - x).log() * 0.5
    return is_small(square).choose(x * log1p_of_square(square) * 0.5, large)


row(ops.Atan2, tfl="ATAN2", lifts=False)


@lift_tfl("ATAN2")
def _from_tfl_atan2(b: Builder, node: Node) -> Value:
    """The kernel checks ranks only, and reads both operands with the shape of the first (atan2.cc)."""
    y, x = node.operand(0), node.operand(1)
    sizes = zip(y.tensor_type.shape or (), x.tensor_type.shape or (), strict=False)
    if any(differ(m, n) for m, n in sizes):
        raise UnsupportedError("TFLite's kernel needs operands of equal shape", type_=x.type, code="E-OP-006")
    return b(ops.Atan2, y, x)


@decompose(ops.Atan2, "tfl")
def _atan2_tfl(b: Builder, node: Node) -> Value | None:
    """Broadcast for the kernel, which needs equal shapes; without a kernel, use a polynomial."""
    lhs, rhs, full = node.operand(0), node.operand(1), node.result.tensor_type.shape
    if full is None or lhs.tensor_type.shape == rhs.tensor_type.shape:
        y, x = Term(b, lhs), Term(b, rhs)
        return atan2(y, x, _has_sign(y), _has_sign(x)).value if lhs.dtype is DType.FLOAT32 else None
    return b(ops.Atan2, broadcast(b, lhs, full, lhs, rhs), broadcast(b, rhs, full, lhs, rhs))


@formula(ops.Atan2, "onnx")
def _atan2_onnx(lhs: Term, rhs: Term) -> Term:
    """Return atan(lhs / rhs), plus or minus pi for negative rhs; signed zeros and infinities are exact."""
    negative, infinite = _has_sign(rhs), lhs.abs().min(rhs.abs()).equals(math.inf)
    divisor = (lhs.abs() + rhs.abs()).equals(0.0).choose(negative.choose(rhs.constant(-1.0), 1.0), rhs)
    angle = infinite.choose(lhs.sign() * rhs.sign(), lhs / divisor).apply(ops.Atan)
    return negative.choose(_has_sign(lhs).choose(angle - math.pi, angle + math.pi), angle)


def _has_sign(x: Term) -> Term:
    """Whether each element is negative or -0.0."""
    return (x < 0) | (1.0 / x < 0)
