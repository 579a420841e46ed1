"""Boolean and bitwise logic, and shifts: TFLite has few of the bitwise ops, ONNX before opset 18 none."""

from __future__ import annotations

from functools import partial

import numpy as np

from onnxtfl.build.operands import align_by_axis, formula
from onnxtfl.build.rows import row
from onnxtfl.build.uint64 import split_words
from onnxtfl.errors import UnsupportedError
from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.data import Array
from onnxtfl.ir.formula import Term
from onnxtfl.ir.graph import Node, Value, constant
from onnxtfl.ir.op import Op
from onnxtfl.ir.reshape import reshape, stacked_along, unsqueezed
from onnxtfl.ir.shapes import static_ints
from onnxtfl.ir.types import DType
from onnxtfl.rewriting.registry import decompose, lift_onnx, lift_tfl, upgrade

# --- bits -------------------------------------------------------------------------------------------------------------


@formula(ops.Xor, "tfl")
def _xor(lhs: Term, rhs: Term) -> Term | None:
    """Xor of 64-bit integers as pairs of words along a new last axis."""
    dtype = lhs.dtype
    return (lhs.bits(DType.INT32) ^ rhs.bits(DType.INT32)).bits(dtype) if dtype.bits == 64 else None


@formula(ops.And, "tfl")
def _and(lhs: Term, rhs: Term) -> Term | None:
    """Return (x + y - (x xor y)) / 2."""
    dtype = lhs.dtype
    if dtype is DType.BOOL:
        return None
    if dtype.bits < 32:
        lhs, rhs = lhs.to(DType.INT32), rhs.to(DType.INT32)
        return _half(lhs + rhs - (lhs ^ rhs)).to(dtype)
    return _and_of_words(lhs.bits(DType.INT32), rhs.bits(DType.INT32)).bits(dtype)


def _and_of_words(lhs: Term, rhs: Term) -> Term:
    """And without the lowest bits, so that the sum does not overflow; the lowest bits are multiplied."""
    a, c = _half(lhs), _half(rhs)
    return a + c - _half(lhs ^ rhs) + (lhs - a * 2) * (rhs - c * 2)


def _half(x: Term) -> Term:
    return x.apply(ops.ShiftRightArithmetic, 1, in_range=True)


@formula(ops.Or, "tfl")
def _or(*operands: Term) -> Term | None:
    dtype = operands[0].dtype
    if dtype is DType.BOOL:
        return None
    lhs, rhs = (t.to(DType.INT32) if dtype.bits < 32 else t.bits(DType.INT32) for t in operands)
    result = (lhs & rhs) + (lhs ^ rhs)
    return result.to(dtype) if dtype.bits < 32 else result.bits(dtype)


@formula(ops.Not, "tfl")
def _not(x: Term) -> Term | None:
    if x.dtype is DType.BOOL:
        return None
    return (-1 if x.dtype.is_signed else (1 << x.dtype.bits) - 1) - x


# --- shifts -----------------------------------------------------------------------------------------------------------


@formula(ops.ShiftLeft, "tfl")
def _shift_left(x: Term, amount: Term) -> Term:
    """Multiply by a power of two from a table, whose last entry is for amounts >= the number of bits."""
    if x.dtype is DType.UINT64:
        return x.bits(DType.INT64).apply(ops.ShiftLeft, amount.bits(DType.INT64)).bits(x.dtype)
    bits = x.dtype.bits
    powers = np.asarray([1 << i for i in range(bits)] + [0], np.uint64).astype(f"uint{bits}").view(x.dtype.numpy)
    place = amount.to(DType.INT32) if amount.dtype.bits <= 32 else _clipped(amount, bits).to(DType.INT32)
    return x.apply(ops.Mul, x.b(ops.Gather, powers, _clipped(place, bits).value, axis=0))


def _clipped(amount: Term, bits: int) -> Term:
    """Replace amounts outside of [0, bits) by `bits`."""
    small = amount.min(bits)
    return small if not amount.dtype.is_signed else (amount < 0).choose(amount.constant(bits), small)


@formula(ops.ShiftRightLogical)
def _shift_right_logical(x: Term, amount: Term, *, in_range: bool) -> Term | None:
    if x.dtype.is_signed:
        shifted = _unsigned(x).apply(ops.ShiftRightLogical, _unsigned(amount), in_range=in_range)
        return shifted.to(x.dtype) if x.dtype.bits < 32 else shifted.bits(x.dtype)
    return None if in_range else _shifted_out(x, amount, ops.ShiftRightLogical)


def _shifted_out(x: Term, amount: Term, op: type[Op]) -> Term:
    """Shift unsigned `x` by any `amount`: the result is 0 for amounts >= the number of bits."""
    last = x.dtype.bits - 1
    moved = x.apply(op, amount.min(last), in_range=True)
    return (amount > last).choose(moved.constant(0), moved)


def _unsigned(x: Term) -> Term:
    """Reinterpret the bits as unsigned, in at least 32 bits."""
    if x.dtype.bits < 32:
        return (x.to(DType.INT32) % (1 << x.dtype.bits)).to(DType.UINT32)
    return x.bits(DType(f"u{x.dtype.value}")) if x.dtype.is_signed else x


@formula(ops.ShiftRightArithmetic)
def _shift_right_arithmetic(x: Term, amount: Term, *, in_range: bool) -> Term | None:
    if not x.dtype.is_signed:
        return x.apply(ops.ShiftRightLogical, amount, in_range=in_range)
    if in_range:
        return None
    last = x.dtype.bits - 1
    safe = ((amount < 0) | (amount > last)).choose(amount.constant(last), amount)
    return x.apply(ops.ShiftRightArithmetic, safe, in_range=True)


def _shift_words(b: Builder, node: Node, op: type[Op]) -> Value | None:
    """Shift pairs of words; the low word receives the bits that leave the high word."""
    x, amount = Term(b, node.operand(0)), Term(b, node.operand(1))
    if x.dtype.bits != 64 or not node.attr("in_range"):
        return None
    low, high = split_words(x)
    places = amount.bits(DType.INT64).to(DType.INT32)
    few, rest = places.min(31), (places - 32).max(0)
    back = np.asarray([0] + [1 << (32 - i) for i in range(1, 32)], np.uint64).astype(np.uint32).view(np.int32)
    carried = high * Term(b, b(ops.Gather, constant(back), few.value, axis=0))
    kept = low.apply(ops.ShiftRightLogical, few, in_range=True) + carried
    fill = high.constant(0) if op is ops.ShiftRightLogical else high.apply(op, 31, in_range=True)
    is_short = places < 32
    new_low = is_short.choose(kept, high.apply(op, rest, in_range=True))
    new_high = is_short.choose(high.apply(op, few, in_range=True), fill)
    pair = stacked_along(b, [new_low.value, new_high.value], new_low.rank)
    return Term(b, pair).bits(x.dtype).value


decompose(ops.ShiftRightLogical, "tfl")(partial(_shift_words, op=ops.ShiftRightLogical))
decompose(ops.ShiftRightArithmetic, "tfl")(partial(_shift_words, op=ops.ShiftRightArithmetic))


def _on_bools(node: Node) -> bool:
    return node.operand(0).dtype is DType.BOOL


def _on_integers(node: Node) -> bool:
    return not _on_bools(node)


def _of_bools(b: Builder, node: Node, op: type[Op]) -> Value:
    """ONNX's logical ops take bool only; the neutral ops compute integers bitwise."""
    for operand, value in zip(op.operands, (node.operand(i) for i in range(len(op.operands))), strict=True):
        if value.dtype is not DType.BOOL:
            what = f"operand {operand.name} cannot be {value.dtype.value}"
            raise UnsupportedError(what, hint="cast it to bool, or cut the model around it")
    return b(op, *node.operands)


for _op, _name, _since in ((ops.And, "And", 7), (ops.Or, "Or", 7), (ops.Xor, "Xor", 7), (ops.Not, "Not", 1)):
    row(_op, onnx=_name, lifts=False, when=_on_bools)
    lift_onnx(_name, since=(_since,))(partial(_of_bools, op=_op))
    row(_op, onnx=f"Bitwise{_name}", since=(18,), when=_on_integers)
    if _op is not ops.Xor:
        row(_op, tfl=f"LOGICAL_{_name.upper()}", when=_on_bools)
row(ops.Xor, tfl="NOT_EQUAL", when=_on_bools, lifts=False)
row(ops.Xor, tfl="BITWISE_XOR", when=_on_integers)
row(ops.And, tfl="STABLEHLO_AND", lowers=False)
row(ops.Or, tfl="STABLEHLO_OR", lowers=False)
# Outside [0, bits) the kernel shifts by the amount modulo 32, or its vectorized part by all bits: undefined in C++.
row(ops.ShiftLeft, tfl="STABLEHLO_SHIFT_LEFT", lowers=False)
for _old in ("And", "Or", "Xor"):
    upgrade(_old, since=(1,))(align_by_axis)


# --- shifts -----------------------------------------------------------------------------------------------------------


@lift_onnx("BitShift", since=(11, 28))
def _bit_shift(b: Builder, node: Node) -> Value:
    direction = node.attr("direction", "")
    if direction not in ("LEFT", "RIGHT"):
        raise ValueError(f"unknown direction {direction!r}")
    right = ops.ShiftRightArithmetic if node.operand(0).dtype.is_signed else ops.ShiftRightLogical
    return b(ops.ShiftLeft if direction == "LEFT" else right, node.operand(0), node.operand(1))


@lift_tfl("RIGHT_SHIFT")
def _right_shift(b: Builder, node: Node) -> Value:
    """The kernel clamps amounts to the valid range. Source: LiteRT kernels/right_shift.cc."""
    x, amount = node.operand(0), node.operand(1)
    numbers = static_ints(amount)
    if numbers is None or not all(0 <= n < x.dtype.bits for n in numbers):
        amount = Term(b, amount).max(0).min(x.dtype.bits - 1).value
    op = ops.ShiftRightArithmetic if x.dtype.is_signed else ops.ShiftRightLogical
    return b(op, x, amount, in_range=True)


def in_range(node: Node) -> bool:
    """Whether all shift amounts are known to be in [0, bits)."""
    numbers = static_ints(node.operand(1))
    bits = node.operand(0).dtype.bits
    return bool(node.attr("in_range")) or (numbers is not None and all(0 <= n < bits for n in numbers))


def _unsigned_in_range(node: Node) -> bool:
    return not node.operand(0).dtype.is_signed and in_range(node)


row(ops.ShiftRightArithmetic, tfl="RIGHT_SHIFT", lifts=False, when=in_range)
row(ops.ShiftRightLogical, tfl="RIGHT_SHIFT", lifts=False, when=_unsigned_in_range)
for _shift, _direction in ((ops.ShiftLeft, "LEFT"), (ops.ShiftRightLogical, "RIGHT")):
    row(_shift, onnx="BitShift", lifts=False, fixed_onnx={"direction": _direction}, when=_unsigned_in_range)


def _wide_shift(b: Builder, node: Node) -> Value | None:
    """ONNX Runtime has no kernel for 16 bits."""
    x, amount = Term(b, node.operand(0)), Term(b, node.operand(1))
    if x.dtype is not DType.UINT16 or not in_range(node):
        return None
    return x.to(DType.UINT32).apply(node.op, amount.to(DType.UINT32), in_range=True).to(x.dtype).value


decompose(ops.ShiftRightLogical, "onnx", "elements")(_wide_shift)
decompose(ops.ShiftLeft, "onnx", "elements")(_wide_shift)


@formula(ops.ShiftLeft, "onnx")
def _shift_left_onnx(x: Term, amount: Term, *, in_range: bool) -> Term:
    """Shift signed integers as unsigned, with clamped amounts."""
    if x.dtype.is_signed:
        unsigned = DType(f"u{x.dtype.value}")
        return x.to(unsigned).apply(ops.ShiftLeft, amount.to(unsigned), in_range=in_range).to(x.dtype)
    return _shifted_out(x, amount, ops.ShiftLeft)


@decompose(ops.ShiftRightArithmetic, "onnx")
def _arithmetic_onnx(b: Builder, node: Node) -> Value | None:
    """Return ~(~x >> amount) for x < 0, with an unsigned shift."""
    x, amount = Term(b, node.operand(0)), Term(b, node.operand(1))
    if not x.dtype.is_signed or not in_range(node):
        return None
    unsigned, negative = DType(f"u{x.dtype.value}"), x < 0
    size = negative.choose(-1 - x, x).to(unsigned)
    moved = size.apply(ops.ShiftRightLogical, amount.to(unsigned), in_range=True).to(x.dtype)
    return negative.choose(-1 - moved, moved).value


# --- bits -------------------------------------------------------------------------------------------------------------


@decompose(ops.And, "onnx")
@decompose(ops.Or, "onnx")
@decompose(ops.Xor, "onnx")
def _bitwise(b: Builder, node: Node) -> Value | None:
    """Combine bits along a new leading axis: and is Mul, or is Max, xor is NotEqual."""
    dtype = node.result.dtype
    if not dtype.is_integer or dtype.bits > 32:
        return None
    rank = node.result.rank
    left, right = (_bits(b, v, rank) for v in node.present_operands)
    either = left.max(right) if node.op is ops.Or else (left + right) % 2
    joined = left * right if node.op is ops.And else either
    return _number(joined, dtype).to(dtype).value


def _powers(count: int, rank: int) -> Array:
    return (1 << np.arange(count, dtype=np.int64)).reshape(-1, *[1] * rank)


def _bits(b: Builder, value: Value, rank: int) -> Term:
    """Return the bits in two's complement, lowest first, along a new axis before `rank` axes."""
    full = reshape(b, value, (*[1] * (rank - value.rank), *value.shape), value)
    wide = Term(b, unsqueezed(b, full, [0])).apply(ops.Convert, dtype=DType.INT64)
    return wide.apply(ops.FloorDiv, _powers(value.dtype.bits, rank)) % 2


def _number(bits: Term, dtype: DType) -> Term:
    """Assemble integers from `bits`; the highest bit of a signed type is negative."""
    weights = _powers(dtype.bits, bits.rank - 1)
    if dtype.is_signed:
        weights[-1] = -weights[-1]
    return bits.apply(ops.Mul, weights).reduce("sum", [0], keepdims=False)
