"""Integers that no TFLite kernel takes: 64 bits wide, unsigned, or to be taken apart by bits.

Unsigned 64-bit numbers are read as signed ones where that changes nothing; quotients are found in float32, whose error
is divided anew until none is left.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.graph import Node, Value, constant
from onnxtfl.ir.op import Op
from onnxtfl.ir.types import DType
from onnxtfl.rules import Term, decompose, fits_int32, never_negative, unsqueezed

_SMALLEST = -(1 << 63)


def _signed(b: Builder, value: Value) -> Term:
    return Term(b, value).bits(DType.INT64) if value.dtype is DType.UINT64 else Term(b, value)


def _is_uint64(node: Node) -> bool:
    return any(v is not None and v.dtype is DType.UINT64 for v in node.operands)


# --- unsigned 64-bit numbers read as signed ---------------------------------------------------------------------------


def _same_bits(b: Builder, node: Node) -> Value | None:
    """Sums, products and choices have the same bits in both."""
    if not _is_uint64(node):
        return None
    operands = [None if v is None else _signed(b, v).value for v in node.operands]
    result = Term(b, b(node.op, *operands, **node.attributes))
    return (result.bits(DType.UINT64) if node.result.dtype is DType.UINT64 else result).value


def _same_order(b: Builder, node: Node) -> Value | None:
    """Shifted down by half of the range, they are in the same order."""
    if not _is_uint64(node):
        return None
    operands = [(_signed(b, v) + _SMALLEST).value for v in node.operands if v is not None]
    result = Term(b, b(node.op, *operands, **node.attributes))
    return ((result + _SMALLEST).bits(DType.UINT64) if node.result.dtype is DType.UINT64 else result).value


def _compare(b: Builder, node: Node) -> Value | None:
    return (_same_bits if node.attr("comparison_direction") in ("EQ", "NE") else _same_order)(b, node)


def _reduce(b: Builder, node: Node) -> Value | None:
    if not _is_uint64(node):
        return None
    x, *axes = node.operands
    shift = _SMALLEST if node.attr("kind") in ("max", "min") else 0
    if node.attr("kind") == "mean" or x is None:
        return None
    inner = _signed(b, x) + shift if shift else _signed(b, x)
    result = Term(b, b(ops.Reduce, inner.value, *axes, **node.attributes))
    return (result + shift if shift else result).bits(DType.UINT64).value


_WRAPPING: tuple[type[Op], ...] = (ops.Add, ops.Sub, ops.Mul, ops.Select, ops.CumSum)
for _op in _WRAPPING:
    decompose(_op, "tfl")(_same_bits)
decompose(ops.Max, "tfl")(_same_order)
decompose(ops.Min, "tfl")(_same_order)
decompose(ops.Compare, "tfl")(_compare)
decompose(ops.Reduce, "tfl")(_reduce)


@decompose(ops.Neg, "tfl")
def _neg(b: Builder, node: Node) -> Value | None:
    return (0 - Term(b, node.operand(0))).value if node.operand(0).dtype.is_integer else None


# --- quotients --------------------------------------------------------------------------------------------------------


def exact_quotient(multiple: Term, divisor: Term) -> Term:
    """`multiple` / `divisor` where that comes out, of int64.

    float32 gives 22 bits of a quotient. What is left is divided again: three times make 64.
    """
    real = divisor.to(DType.FLOAT32)
    quotient: Term | None = None
    for _ in range(3):
        part = (multiple.to(DType.FLOAT32) / real).apply(ops.RoundNearestEven).to(DType.INT64)
        quotient = part if quotient is None else quotient + part
        multiple = multiple - part * divisor
    assert quotient is not None
    return quotient


@decompose(ops.Div, "tfl")
def _div(b: Builder, node: Node) -> Value | None:
    lhs, rhs = Term(b, node.operand(0)), Term(b, node.operand(1))
    if lhs.dtype is DType.INT64 and fits_int32(lhs.value) and fits_int32(rhs.value):
        return (lhs.to(DType.INT32) / rhs.to(DType.INT32)).to(lhs.dtype).value
    if lhs.dtype is DType.INT64:
        return exact_quotient(lhs - lhs.apply(ops.Rem, rhs), rhs).value
    if lhs.dtype is DType.UINT32:
        return (lhs.to(DType.INT64) / rhs.to(DType.INT64)).to(lhs.dtype).value
    return _unsigned_quotient(lhs, rhs).value if lhs.dtype is DType.UINT64 else None


def _floored(lhs: Term, rhs: Term) -> Term:
    """One less than the quotient rounded toward zero, where that is not exact and below zero."""
    rest = lhs % rhs
    if never_negative(lhs.value) and never_negative(rhs.value):
        return lhs / rhs if fits_int32(lhs.value) and fits_int32(rhs.value) else exact_quotient(lhs - rest, rhs)
    below = rest.differs(0) & (lhs < 0).differs(rhs < 0)
    return exact_quotient(lhs - below.choose(rest - rhs, rest), rhs) - below.to(lhs.dtype)


def _unsigned_quotient(lhs: Term, rhs: Term) -> Term:
    """Half the dividend is a signed number; a divisor over the half of the range goes in once or not at all."""
    half = lhs.apply(ops.ShiftRightLogical, 1, in_range=True).bits(DType.INT64)
    small = rhs.bits(DType.INT64)
    safe = (small < 1).choose(small.constant(1), small)
    guess = (half / safe * 2).bits(DType.UINT64)
    more = lhs - guess * rhs >= rhs
    fitted = guess + more.to(DType.INT64).bits(DType.UINT64)
    return (small < 0).choose((lhs >= rhs).to(DType.INT64).bits(DType.UINT64), fitted)


@decompose(ops.FloorDiv, "tfl")
def _floor_div(b: Builder, node: Node) -> Value | None:
    lhs, rhs = Term(b, node.operand(0)), Term(b, node.operand(1))
    if lhs.dtype is DType.INT64:
        return _floored(lhs, rhs).value
    return (lhs / rhs).value if lhs.dtype in (DType.UINT32, DType.UINT64) else None


@decompose(ops.FloorMod, "tfl")
def _floor_mod(b: Builder, node: Node) -> Value | None:
    lhs, rhs = Term(b, node.operand(0)), Term(b, node.operand(1))
    return (lhs - lhs / rhs * rhs).value if lhs.dtype is DType.UINT64 else None


# --- bits -------------------------------------------------------------------------------------------------------------


def _by_words(b: Builder, node: Node) -> Value | None:
    """64-bit numbers as pairs of words along a new last axis."""
    dtype = node.operand(0).dtype
    if dtype.bits != 64 or not dtype.is_integer:
        return None
    words = [Term(b, v).bits(DType.INT32).value for v in node.operands if v is not None]
    return Term(b, b(node.op, *words)).bits(dtype).value


decompose(ops.Xor, "tfl")(_by_words)


@decompose(ops.And, "tfl")
def _and(b: Builder, node: Node) -> Value | None:
    """Twice the common bits is the sum less the exclusive or."""
    lhs, rhs = Term(b, node.operand(0)), Term(b, node.operand(1))
    dtype = lhs.dtype
    if dtype is DType.BOOL:
        return None
    if dtype.bits == 64:
        return _by_words(b, node)
    if dtype.bits < 32:
        lhs, rhs = lhs.to(DType.INT32), rhs.to(DType.INT32)
        return _half(lhs + rhs - (lhs ^ rhs)).to(dtype).value
    return _and_of_words(lhs.bits(DType.INT32), rhs.bits(DType.INT32)).bits(dtype).value


def _and_of_words(lhs: Term, rhs: Term) -> Term:
    """Of the numbers without their last bit, so that the sum fits; the last bits are multiplied."""
    a, c = _half(lhs), _half(rhs)
    return a + c - _half(lhs ^ rhs) + (lhs - a * 2) * (rhs - c * 2)


def _half(x: Term) -> Term:
    return x.apply(ops.ShiftRightArithmetic, 1, in_range=True)


@decompose(ops.Or, "tfl")
def _or(b: Builder, node: Node) -> Value | None:
    lhs, rhs = Term(b, node.operand(0)), Term(b, node.operand(1))
    dtype = lhs.dtype
    if dtype is DType.BOOL:
        return None
    if dtype.bits == 64:
        return _by_words(b, node)
    lhs, rhs = (t.to(DType.INT32) if dtype.bits < 32 else t.bits(DType.INT32) for t in (lhs, rhs))
    result = (lhs & rhs) + (lhs ^ rhs)
    return (result.to(dtype) if dtype.bits < 32 else result.bits(dtype)).value


@decompose(ops.Not, "tfl")
def _not(b: Builder, node: Node) -> Value | None:
    x = Term(b, node.operand(0))
    if x.dtype is DType.BOOL:
        return None
    ones = -1 if x.dtype.is_signed else (1 << x.dtype.bits) - 1
    return (ones - x).value


# --- shifts -----------------------------------------------------------------------------------------------------------


@decompose(ops.ShiftLeft, "tfl")
def _shift_left(b: Builder, node: Node) -> Value:
    """Times a power of two out of a table; its last entry is for amounts that move everything out."""
    x, amount = Term(b, node.operand(0)), Term(b, node.operand(1))
    if x.dtype is DType.UINT64:
        return x.bits(DType.INT64).apply(ops.ShiftLeft, amount.bits(DType.INT64)).bits(x.dtype).value
    bits = x.dtype.bits
    powers = np.asarray([1 << i for i in range(bits)] + [0], np.uint64).astype(f"uint{bits}").view(x.dtype.numpy)
    place = amount.to(DType.INT32) if amount.dtype.bits <= 32 else _clipped(amount, bits).to(DType.INT32)
    factor = b(ops.Gather, constant(powers), _clipped(place, bits).value, axis=0)
    return x.apply(ops.Mul, factor).value


def _clipped(amount: Term, bits: int) -> Term:
    """Amounts outside [0, bits) as `bits`."""
    small = amount.min(bits)
    return small if not amount.dtype.is_signed else (amount < 0).choose(amount.constant(bits), small)


@decompose(ops.ShiftRightLogical)
def _shift_right_logical(b: Builder, node: Node) -> Value | None:
    x, amount = Term(b, node.operand(0)), Term(b, node.operand(1))
    if x.dtype.is_signed:
        shifted = _unsigned(x).apply(ops.ShiftRightLogical, _unsigned(amount), in_range=node.attr("in_range"))
        return (shifted.to(x.dtype) if x.dtype.bits < 32 else shifted.bits(x.dtype)).value
    if node.attr("in_range"):
        return None
    last = x.dtype.bits - 1
    moved = x.apply(ops.ShiftRightLogical, amount.min(last), in_range=True)
    return (amount > last).choose(moved.constant(0), moved).value


def _unsigned(x: Term) -> Term:
    """The bits as an unsigned number, of 32 at least."""
    if x.dtype.bits < 32:
        return (x.to(DType.INT32) % (1 << x.dtype.bits)).to(DType.UINT32)
    return x.bits(DType(f"u{x.dtype.value}")) if x.dtype.is_signed else x


@decompose(ops.ShiftRightArithmetic)
def _shift_right_arithmetic(b: Builder, node: Node) -> Value | None:
    x, amount = Term(b, node.operand(0)), Term(b, node.operand(1))
    if not x.dtype.is_signed:
        return x.apply(ops.ShiftRightLogical, amount, in_range=node.attr("in_range")).value
    if node.attr("in_range"):
        return None
    last = x.dtype.bits - 1
    outside = (amount < 0) | (amount > last)
    safe = outside.choose(amount.constant(last), amount)
    return x.apply(ops.ShiftRightArithmetic, safe, in_range=True).value


def _shift_words(b: Builder, node: Node, op: type[Op]) -> Value | None:
    """Of a pair of words: the low one takes what the high one loses, from 32 places on all of it."""
    x, amount = Term(b, node.operand(0)), Term(b, node.operand(1))
    if x.dtype.bits != 64 or not node.attr("in_range"):
        return None
    low, high = _words(x)
    places = amount.bits(DType.INT64).to(DType.INT32)
    few, rest = places.min(31), (places - 32).max(0)
    back = np.asarray([0] + [1 << (32 - i) for i in range(1, 32)], np.uint64).astype(np.uint32).view(np.int32)
    carried = high * Term(b, b(ops.Gather, constant(back), few.value, axis=0))
    kept = low.apply(ops.ShiftRightLogical, few, in_range=True) + carried
    fill = high.constant(0) if op is ops.ShiftRightLogical else high.apply(op, 31, in_range=True)
    is_short = places < 32
    new_low = is_short.choose(kept, high.apply(op, rest, in_range=True))
    new_high = is_short.choose(high.apply(op, few, in_range=True), fill)
    pair = b(ops.Concatenate, *(_as_column(b, w.value) for w in (new_low, new_high)), axis=new_low.value.rank)
    return Term(b, pair).bits(x.dtype).value


def _words(x: Term) -> tuple[Term, Term]:
    """The low and the high halves of 64-bit numbers."""
    pair = x.bits(DType.INT32).value
    low, high = (x.b(ops.Gather, pair, np.asarray(i, np.int32), axis=pair.rank - 1) for i in (0, 1))
    return Term(x.b, low), Term(x.b, high)


def _as_column(b: Builder, value: Value) -> Value:
    return unsqueezed(b, value, [value.rank])


for _shift in (ops.ShiftRightLogical, ops.ShiftRightArithmetic):
    decompose(_shift, "tfl")(partial(_shift_words, op=_shift))


# --- element types that casts do not take -----------------------------------------------------------------------------


@decompose(ops.Convert, "tfl")
def _convert(b: Builder, node: Node) -> Value | None:
    """uint64 has no casts, uint16 none that reads it: their bits are read as signed numbers."""
    x, dtype = Term(b, node.operand(0)), node.attr("dtype")
    if dtype is DType.UINT64:
        return (_to_uint64(x) if x.dtype.is_float else x.to(DType.INT64).bits(dtype)).value
    if x.dtype is DType.UINT64:
        return (_from_uint64(x, dtype) if dtype.is_float else x.bits(DType.INT64).to(dtype)).value
    if x.dtype is DType.UINT16:
        return (x.bits(DType.INT16).to(DType.INT32) % (1 << 16)).to(dtype).value
    return None


def _to_uint64(x: Term) -> Term:
    half = 2.0**63
    shifted = (x >= half).choose(x - half, x).to(DType.INT64)
    return (x >= half).choose(shifted + _SMALLEST, shifted).bits(DType.UINT64)


def _from_uint64(x: Term, dtype: DType) -> Term:
    low, high = (word.bits(DType.UINT32).to(dtype) for word in _words(x))
    return high * 2.0**32 + low
