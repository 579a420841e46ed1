"""Arithmetic of two or more operands, including integers without TFLite kernels (64 bits, unsigned)."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import numpy as np

from onnxtfl.build.operands import accumulated, align_by_axis, formula, with_bools
from onnxtfl.build.rows import apply_activation, row
from onnxtfl.build.uint64 import on_signed
from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.facts import facts_of, never_negative
from onnxtfl.ir.formula import Term
from onnxtfl.ir.graph import Node, Value, constant
from onnxtfl.ir.history import Remark
from onnxtfl.ir.intervals import quotient
from onnxtfl.ir.matching import made_by, splat_value, uniform_scalar
from onnxtfl.ir.quantization import limits
from onnxtfl.ir.quantized import quantization_of
from onnxtfl.ir.types import DType
from onnxtfl.kernels.div import quotient_table
from onnxtfl.rewriting.registry import decompose, lift_onnx, lift_tfl, upgrade
from onnxtfl.rewriting.stored_integers import integers_of, with_quantization

_SMALL = 1 << 16


_ANY_SCALES = {"pot_scale_int16": False}
"""Kernels round int16 scales to powers of two unless this option is false; quantizers copy it from float ops.

Source: LiteRT, kernels/add.cc and sub.cc (PrepareInt16SubOp).
"""
row(ops.Add, onnx="Add", since=(7, 13, 14), tfl="ADD", fixed_tfl=_ANY_SCALES)
row(ops.Sub, onnx="Sub", since=(7, 13, 14), tfl="SUB", fixed_tfl=_ANY_SCALES)
row(ops.Mul, onnx="Mul", since=(7, 13, 14), tfl="MUL")


def _never_divides_by_zero(node: Node) -> bool:
    """Whether no stored divisor equals the zero point, which fails. Source: LiteRT kernels/div.cc (EvalQuantized)."""
    divisor = node.operand(1)
    if not (divisor.is_quantized or node.result.is_quantized):
        return True
    return divisor.data is not None and divisor.data.size <= _SMALL and bool(np.all(divisor.numpy()))


row(ops.Div, onnx="Div", since=(7, 13, 14))
row(ops.Div, tfl="DIV", when=_never_divides_by_zero, lifts=False)
row(ops.FloorDiv, tfl="FLOOR_DIV")
row(ops.FloorMod, tfl="FLOOR_MOD")
row(ops.FloorMod, onnx="Mod", lifts=False, when=lambda node: node.operand(0).dtype.is_integer)
row(ops.Rem, onnx="Mod", lifts=False, fixed_onnx={"fmod": 1})
row(ops.SquaredDifference, tfl="SQUARED_DIFFERENCE", lifts=False)


@lift_tfl("DIV")
def _div_tfl(b: Builder, node: Node) -> Value:
    """Quotients of 8-bit integers that the kernel computes otherwise, by more than a step, are looked up."""
    lhs, rhs, result = (quantization_of(v) for v in (node.operand(0), node.operand(1), node.result))
    if lhs is not None and rhs is not None and result is not None and {lhs.storage, rhs.storage} <= _BYTES:
        low, high = limits(result.dtype)
        computed, nearest = (np.clip(table, low, high) for table in quotient_table(lhs, rhs, result))
        if np.abs(computed - nearest).max() > 1:
            text = "quotients near 0 are those of LiteRT's kernel, which shifts them by more bits than integers have"
            node.remarks += (Remark("kernel", "DIV", text),)
            found = _looked_up(b, node, constant(computed.astype(result.dtype.numpy).reshape(-1)))
            return apply_activation(b, with_quantization(b, found, result), node)
    elif lhs is not None and lhs.storage == "int16":  # a table of all pairs would have 2^32 elements
        text = "quotients of int16 near 0 are exact; LiteRT's kernel returns any integer for some of them"
        node.remarks += (Remark("kernel", "DIV", text),)
    return apply_activation(b, b(ops.Div, node.operand(0), node.operand(1)), node)


_BYTES = {"int8", "uint8"}


def _looked_up(b: Builder, node: Node, table: Value) -> Value:
    """Look up each pair of stored 8-bit integers in a `table` of all pairs in ascending order."""
    first, second = (
        Term(b, integers_of(b, v)).to(DType.INT32) - limits(v.tensor_type.storage)[0] for v in node.present_operands
    )
    return b(ops.Gather, table, (first * 256 + second).value, axis=0)


def _kernel_takes_power(node: Node) -> bool:
    """The integer kernel fails for negative exponents; powers with some exponents are products."""
    base, exponent = node.operand(0), node.operand(1)
    if base.dtype is not exponent.dtype:
        return False
    return never_negative(exponent) if base.dtype.is_integer else not _is_multiplied(base, exponent)


def _is_multiplied(base: Value, exponent: Value) -> bool:
    """Whether powers with this one exponent are products of squares: XNNPACK has MUL, but not POW.

    POW takes 1.4 times as long for 4, and 4 to 7 times for 33.
    """
    power = uniform_scalar(base, exponent)
    return power is not None and 1 <= power <= _MOST_FACTORS and power == round(power)


row(ops.Pow, onnx="Pow", since=(7, 12, 13, 15))
row(ops.Pow, tfl="POW", when=_kernel_takes_power)
decompose(ops.Pow, "onnx", "elements")(on_signed)


def _is_from_constant(node: Node) -> bool:
    return node.operand(0).is_constant and not node.operand(1).is_constant and not node.operand(1).is_quantized


@decompose(ops.Sub, "gpu", order="operands", when=_is_from_constant)
def _sub_from_constant(b: Builder, node: Node) -> Value:
    """-x + c: the accelerator reads the constants of a SUB on the right only."""
    return b(ops.Add, b(ops.Neg, node.operand(1)), node.operand(0))


def _may_divide_by_infinity(node: Node) -> bool:
    return node.result.dtype.is_float and facts_of(node.operand(1)).magnitude == math.inf


@decompose(ops.FloorMod, "gpu", order="operands", when=_may_divide_by_infinity)
def _mod_infinity(b: Builder, node: Node) -> Value:
    """x mod infinity is x, or that infinity if the signs differ; the accelerator returns NaN.

    Products with 0 are NaN for infinite x and for NaN.
    """
    x, y = Term(b, node.operand(0)), Term(b, node.operand(1))
    differs = (y < 0.0).choose(-x, x) < 0.0
    of_infinity = differs.choose(y, x) + x * 0.0
    most = float(np.finfo(y.dtype.numpy).max)
    return y.abs().equals(math.inf).choose(of_infinity, x % y.clamp(-most, most) + y * 0.0).value


@decompose(ops.Pow, "gpu", when=lambda node: node.operand(0).dtype is node.operand(1).dtype is DType.FLOAT32)
def _pow_of_any_sign(b: Builder, node: Node) -> Value:
    """exp(y log(|x|)) with the sign of x where y is odd, NaN where x < 0 and y is not whole: the accelerator computes
    POW for computed exponents from |x|.
    """
    x, y = (Term(b, v) for v in (node.operand(0), node.operand(1)))
    magnitude = y.equals(0.0).choose(x.constant(1.0), (x.abs().apply(ops.Log) * y).exp())
    half = y * 0.5
    is_whole, is_even = y.apply(ops.Floor).equals(y), half.apply(ops.Floor).equals(half)
    signed = is_even.choose(magnitude, is_whole.choose(-magnitude, x.constant(math.nan)))
    return (x < 0.0).choose(signed, magnitude).value


# --- lifting ----------------------------------------------------------------------------------------------------------


for _name in ("Add", "Sub", "Mul", "Div"):
    upgrade(_name, since=(1, 6))(align_by_axis)
upgrade("Pow", since=(1,))(align_by_axis)


lift_tfl("STABLEHLO_ADD")(partial(with_bools, op=ops.Add, of_bools=ops.Or))
lift_tfl("STABLEHLO_MULTIPLY")(partial(with_bools, op=ops.Mul, of_bools=ops.And))
row(ops.Sub, tfl="STABLEHLO_SUBTRACT", lowers=False)


def _divided(b: Builder, node: Node, of_zero: Callable[[Term], Term], divide: Callable[[Term, Term], Term]) -> Value:
    """Divide; an integer divisor of 0 has the result `of_zero`, and -1 the negated dividend, which may wrap.

    ONNX Runtime's process ends for both. Source: XLA, ElementalIrEmitter::EmitIntegerDivide; StableHLO leaves the
    values open.
    """
    lhs, rhs = Term(b, node.operand(0)), Term(b, node.operand(1))
    if lhs.dtype.is_complex and node.op.name == "tfl.STABLEHLO_DIVIDE":
        return _complex_quotient(lhs, rhs).value
    if not lhs.dtype.is_integer or _is_safe_divisor(rhs.value):
        return divide(lhs, rhs).value
    zero = rhs.equals(0)
    if not lhs.dtype.is_signed:
        return zero.choose(of_zero(lhs), divide(lhs, zero.choose(rhs.constant(1), rhs))).value
    minus = rhs.equals(-1)
    found = divide(minus.choose(0 - lhs, lhs), (zero | minus).choose(rhs.constant(1), rhs))
    return zero.choose(of_zero(lhs), found).value


def _complex_quotient(lhs: Term, rhs: Term) -> Term:
    """(a + b i) / (c + d i) = ((a c + b d) + (b c - a d) i) / (c c + d d)."""
    (x, y), (u, v) = ((z.apply(ops.Real), z.apply(ops.Imag)) for z in (lhs, rhs))
    size = u * u + v * v
    return ((x * u + y * v) / size).apply(ops.Complex, (y * u - x * v) / size)


def _is_safe_divisor(value: Value) -> bool:
    """Whether no element of `value` is 0 or -1."""
    known = value.numpy() if value.data is not None and value.data.size <= _SMALL else None
    return known is not None and not bool(np.isin(known, (0, -1)).any())


def _all_bits(x: Term) -> Term:
    """The integers of the type of `x` whose bits are all 1."""
    return x.constant(-1 if x.dtype.is_signed else (1 << x.dtype.bits) - 1)


lift_tfl("STABLEHLO_DIVIDE")(partial(_divided, of_zero=_all_bits, divide=lambda x, y: x / y))
lift_tfl("STABLEHLO_REMAINDER")(partial(_divided, of_zero=lambda x: x, divide=lambda x, y: x.apply(ops.Rem, y)))


@lift_tfl("STABLEHLO_POWER")
def _stablehlo_power(b: Builder, node: Node) -> Value:
    """Powers; of integers exact and wrapping, a negative exponent is 1 / power rounded toward zero."""
    base, exponent = Term(b, node.operand(0)), Term(b, node.operand(1))
    return (_integer_power(base, exponent) if base.dtype.is_integer else base.power(exponent)).value


_sum = partial(accumulated, op=ops.Add)
lift_onnx("Sum", since=(1, 6, 8, 13))(_sum)
lift_tfl("ADD_N")(_sum)


@lift_onnx("Mean", since=(1, 6, 8, 13))
def _mean(b: Builder, node: Node) -> Value:
    total = _sum(b, node)
    return total if len(node.operands) == 1 else (Term(b, total) / len(node.operands)).value


@lift_tfl("SQUARED_DIFFERENCE")
def _squared_difference(b: Builder, node: Node) -> Value:
    difference = Term(b, node.operand(0)) - Term(b, node.operand(1))
    return (difference * difference).value


@lift_onnx("Mod", since=(10, 13, 28))
def _mod(b: Builder, node: Node) -> Value:
    op = ops.Rem if node.attributes.get("fmod", 0) else ops.FloorMod
    return b(op, node.operand(0), node.operand(1))


# --- decompositions ---------------------------------------------------------------------------------------------------


@formula(ops.FloorDiv)
def _floor_div(lhs: Term, rhs: Term) -> Term | None:
    return None if lhs.dtype.is_integer else (lhs / rhs).floor()


def _rounds_up(lhs: Term, rhs: Term, remainder: Term) -> Term:
    """Whether truncated and floored quotient differ: it is inexact and negative. `lhs`: any term with its sign."""
    return remainder.differs(0) & (lhs < 0).differs(rhs < 0)


@formula(ops.FloorDiv, "onnx")
def _floor_div_onnx(lhs: Term, rhs: Term) -> Term | None:
    """Correct ONNX's quotient, which is rounded toward zero."""
    if not lhs.dtype.is_integer:
        return None
    if never_negative(lhs.value) and never_negative(rhs.value):
        return lhs / rhs
    below = _rounds_up(lhs, rhs, lhs % rhs)
    return lhs / rhs - below.to(lhs.dtype)


@formula(ops.FloorMod, "onnx")
def _floor_mod_of_floats(lhs: Term, rhs: Term) -> Term:
    remainder = lhs.apply(ops.Rem, rhs)
    return (remainder * rhs < 0).choose(remainder + rhs, remainder)


@formula(ops.Rem, "tfl")
def _rem(lhs: Term, rhs: Term) -> Term:
    """Use FLOOR_MOD: of the magnitudes for floats, corrected for integers (the lowest has no magnitude)."""
    if not lhs.dtype.is_integer:
        return lhs.sign() * (lhs.abs() % rhs.abs())
    remainder = lhs % rhs
    if never_negative(lhs.value) and never_negative(rhs.value):
        return remainder
    return _rounds_up(lhs, rhs, remainder).choose(remainder - rhs, remainder)


@formula(ops.Pow, "tfl")
def _pow_formula(base: Term, exponent: Term) -> Term | None:
    """Compute integer powers by squaring, all others in the kernel's float32."""
    if base.dtype.is_integer and exponent.dtype.is_integer:
        return _integer_power(base, exponent)
    if base.dtype is exponent.dtype:
        return constant_power(base, exponent)
    real = base.dtype if base.dtype.is_float else exponent.dtype
    return base.to(real).apply(ops.Pow, exponent.to(real)).to(base.dtype)


_MOST_FACTORS = 64


def constant_power(base: Term, exponent: Term) -> Term | None:
    """Return powers with constant exponents without a kernel; None for computed exponents.

    A single integer: a product of squares. Fractions: e**(exponent * log(base)), NaN for negative `base`.
    """
    if not exponent.value.is_constant:
        return None
    powers = np.unique(exponent.value.numpy())
    whole = np.equal(powers, np.round(powers))
    if powers.size == 1 and whole[0] and 0 < abs(powers[0]) <= _MOST_FACTORS:
        product = _product(base, abs(int(powers[0])))
        return product if powers[0] > 0 else 1.0 / product
    if powers.size == 1 and powers[0] == 0.5:
        return base.sqrt()
    return None if np.any(whole) or not np.all(np.isfinite(powers)) else (base.log() * exponent).exp()


def _product(base: Term, count: int) -> Term:
    """Return base ** count for count >= 1."""
    if count == 1:
        return base
    square = _product(base * base, count // 2)
    return square * base if count % 2 else square


_STEPS = 6


def _integer_power(base: Term, exponent: Term) -> Term:
    """Multiply the squares selected by the exponent's bits; for exponents over 63 only 0, 1 and -1 do not overflow.

    A negative exponent is 1 / power, rounded toward zero.
    """
    whole = exponent.bits(DType.INT64) if exponent.dtype is DType.UINT64 else exponent
    size = whole.abs() if whole.dtype.is_signed else whole
    rest = (size > 63).choose(size % 2 + 62, size).to(DType.INT32)
    result = base.constant(1)
    square = base
    for step in range(_STEPS):
        result = (rest % 2).differs(0).choose(result * square, result)
        if step < _STEPS - 1:
            square, rest = square * square, (rest - rest % 2) / 2
    if never_negative(exponent.value):
        return result
    unit = (base * base).equals(1) & base.abs().equals(1)
    return ((whole < 0) & unit.apply(ops.Not)).choose(result.constant(0), result)


# --- quotients --------------------------------------------------------------------------------------------------------


_MOST_INVERTED = 1 << 53
"""The largest divisor: float64 represents all integers up to it."""


def exact_quotient(multiple: Term, divisor: Term) -> Term:
    """Return `multiple` / `divisor` of int64, which has to be exact.

    By an odd constant it is a product with the inverse modulo 2**64 (passes/recognize/exact_quotients.py reads it).
    A float32 division is exact to 22 bits, and the remainder is divided again: three divisions yield 64 bits.
    """
    known = splat_value(divisor.value)
    if known is not None and known % 2 and abs(known) <= _MOST_INVERTED:
        inverse = pow(int(known), -1, 1 << 64)
        return multiple * (inverse - (1 << 64) * (inverse >> 63))
    real = divisor.to(DType.FLOAT32)
    quotient: Term | None = None
    for _ in range(3):
        part = (multiple.to(DType.FLOAT32) / real).apply(ops.RoundNearestEven).to(DType.INT64)
        quotient = part if quotient is None else quotient + part
        multiple = multiple - part * divisor
    assert quotient is not None
    return quotient


def _divides_in_int32(lhs: Value, rhs: Value) -> bool:
    """Whether int64 operands and their quotient are known to fit int32."""
    found, least, most = (facts_of(lhs), facts_of(rhs)), *limits(DType.INT32)
    return all(known.inside(least, most) for known in (*found, quotient(*found)))


@formula(ops.Div, "tfl")
def _div(lhs: Term, rhs: Term) -> Term | None:
    if lhs.dtype is DType.INT64 and _divides_in_int32(lhs.value, rhs.value):
        return (lhs.to(DType.INT32) / rhs.to(DType.INT32)).to(lhs.dtype)
    if lhs.dtype is DType.INT64:
        return _quotient_of_sum(lhs, rhs) or exact_quotient(lhs - lhs.apply(ops.Rem, rhs), rhs)
    if lhs.dtype is DType.UINT32:
        return (lhs.to(DType.INT64) / rhs.to(DType.INT64)).to(lhs.dtype)
    return _unsigned_quotient(lhs, rhs) if lhs.dtype is DType.UINT64 else None


def _quotient_of_sum(lhs: Term, rhs: Term) -> Term | None:
    """(n + c) / d = n / d + (n % d + c) / d in int32, of a size n and constants c and d; None for others.

    A size fits int32, and the next integer may not: the quotients of ceil(n / d).
    """
    total = made_by(lhs.value, ops.Add)
    if total is None or not rhs.value.is_constant:
        return None
    n, c = (Term(lhs.b, value) for value in sorted(map(total.operand, (0, 1)), key=lambda v: v.is_constant))
    if not c.value.is_constant or not all(never_negative(v.value) for v in (n, c, rhs)):
        return None
    if not _divides_in_int32(n.value, rhs.value) or not facts_of((rhs + c).value).inside(*limits(DType.INT32)):
        return None
    n, c, d = (v.to(DType.INT32) for v in (n, c, rhs))
    return (n / d + (n % d + c) / d).to(lhs.dtype)


def _floored(lhs: Term, rhs: Term) -> Term:
    """Return floor(quotient) from the quotient rounded toward zero."""
    if never_negative(lhs.value) and never_negative(rhs.value):
        return lhs / rhs
    if _divides_in_int32(lhs.value, rhs.value):
        return lhs.to(DType.INT32).apply(ops.FloorDiv, rhs.to(DType.INT32)).to(lhs.dtype)
    rest = lhs % rhs
    below = _rounds_up(lhs, rhs, rest)
    return exact_quotient(lhs - below.choose(rest - rhs, rest), rhs) - below.to(lhs.dtype)


def _unsigned_quotient(lhs: Term, rhs: Term) -> Term:
    """Divide half of the dividend as signed; for a divisor >= 2**63 the quotient is 0 or 1."""
    half = lhs.apply(ops.ShiftRightLogical, 1, in_range=True).bits(DType.INT64)
    small = rhs.bits(DType.INT64)
    safe = (small < 1).choose(small.constant(1), small)
    guess = (half / safe * 2).bits(DType.UINT64)
    more = lhs - guess * rhs >= rhs
    fitted = guess + more.to(DType.INT64).bits(DType.UINT64)
    return (small < 0).choose((lhs >= rhs).to(DType.INT64).bits(DType.UINT64), fitted)


@formula(ops.FloorDiv, "tfl")
def _integer_floor_div(lhs: Term, rhs: Term) -> Term | None:
    if lhs.dtype is DType.INT64:
        return _floored(lhs, rhs)
    return lhs / rhs if lhs.dtype in (DType.UINT32, DType.UINT64) else None


@formula(ops.FloorMod, "tfl")
def _floor_mod(lhs: Term, rhs: Term) -> Term | None:
    """FloorMod of uint64, and of int32 for targets whose kernel has only floats."""
    if lhs.dtype is DType.INT32:
        rest = lhs - lhs / rhs * rhs
        if never_negative(rhs.value):
            return rest if never_negative(lhs.value) else rest + (rest < 0).to(DType.INT32) * rhs
        return rest + _rounds_up(rest, rhs, rest).to(DType.INT32) * rhs
    return lhs - lhs / rhs * rhs if lhs.dtype is DType.UINT64 else None
