"""Logic, bits, comparisons and choices."""

from __future__ import annotations

from onnxtfl.errors import InvalidModelError
from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.graph import Node, Value
from onnxtfl.ir.op import Op
from onnxtfl.ir.shapes import static_ints
from onnxtfl.ir.types import DType
from onnxtfl.rules import Form, Term, decompose, lift_onnx, lift_tfl, lower_onnx, lower_tfl, row, unsqueezed

_COMPARISONS = (
    ("EQ", "Equal", (7, 11, 13, 19), "EQUAL"),
    ("GT", "Greater", (7, 9, 13), "GREATER"),
    ("LT", "Less", (7, 9, 13), "LESS"),
    ("GE", "GreaterOrEqual", (12, 16), "GREATER_EQUAL"),
    ("LE", "LessOrEqual", (12, 16), "LESS_EQUAL"),
)
for _direction, _onnx, _since, _tfl in _COMPARISONS:
    row(ops.Compare, onnx=_onnx, since=_since, tfl=_tfl, fixed={"comparison_direction": _direction})
row(ops.Compare, tfl="NOT_EQUAL", fixed={"comparison_direction": "NE"})
row(ops.Select, onnx="Where", since=(9, 16), tfl="SELECT_V2")

# Neutral op: ONNX's for bools with its since-versions, ONNX's for integers, TFLite's for bools and for integers.
_LOGIC: dict[type[Op], tuple[str, tuple[int, ...], str, str, str | None]] = {
    ops.And: ("And", (7,), "BitwiseAnd", "LOGICAL_AND", None),
    ops.Or: ("Or", (7,), "BitwiseOr", "LOGICAL_OR", None),
    ops.Xor: ("Xor", (7,), "BitwiseXor", "NOT_EQUAL", "BITWISE_XOR"),
    ops.Not: ("Not", (1,), "BitwiseNot", "LOGICAL_NOT", None),
}


def _register_logic(op: type[Op], onnx: str, since: tuple[int, ...], bitwise: str, tfl: str, words: str | None) -> None:
    def lift(b: Builder, node: Node) -> Value:
        return b(op, *node.operands)

    def form_onnx(node: Node, opset: int) -> Form:
        return Form(onnx if node.operand(0).dtype is DType.BOOL else bitwise, tuple(node.operands))

    def form_tfl(node: Node) -> Form | None:
        name = tfl if node.operand(0).dtype is DType.BOOL else words
        return Form(name, tuple(node.operands)) if name else None

    lift_onnx(onnx, since=since)(lift)
    lift_onnx(bitwise, since=(18,))(lift)
    for name in (tfl, words):
        if name not in (None, "NOT_EQUAL"):
            lift_tfl(name)(lift)
    lower_onnx(op)(form_onnx)
    lower_tfl(op)(form_tfl)


for _op, _names in _LOGIC.items():
    _register_logic(_op, *_names)


@lift_tfl("SELECT")
def _select(b: Builder, node: Node) -> Value:
    """A condition of rank 1 chooses along the first axis."""
    condition, on_true, on_false = (node.operand(i) for i in range(3))
    if condition.tensor_type.rank == 1 and (on_true.tensor_type.rank or 0) > 1:
        condition = unsqueezed(b, condition, range(1, on_true.rank))
    return b(ops.Select, condition, on_true, on_false)


@decompose(ops.Compare, "onnx")
def _not_equal(b: Builder, node: Node) -> Value | None:
    if node.attr("comparison_direction") != "NE":
        return None
    return Term(b, node.operand(0)).equals(Term(b, node.operand(1))).apply(ops.Not).value


@decompose(ops.Select, "onnx")
def _select_of_uint64(b: Builder, node: Node) -> Value | None:
    """ONNX Runtime chooses between signed numbers."""
    if node.result.dtype is not DType.UINT64:
        return None
    on_true, on_false = (Term(b, node.operand(i)).to(DType.INT64) for i in (1, 2))
    return Term(b, node.operand(0)).choose(on_true, on_false).to(DType.UINT64).value


# --- shifts -----------------------------------------------------------------------------------------------------------


@lift_onnx("BitShift", since=(11, 28))
def _bit_shift(b: Builder, node: Node) -> Value:
    direction = node.attr("direction", "")
    if direction not in ("LEFT", "RIGHT"):
        raise InvalidModelError(f"no direction is called {direction!r}")
    right = ops.ShiftRightArithmetic if node.operand(0).dtype.is_signed else ops.ShiftRightLogical
    return b(ops.ShiftLeft if direction == "LEFT" else right, node.operand(0), node.operand(1))


@lift_tfl("RIGHT_SHIFT")
def _right_shift(b: Builder, node: Node) -> Value:
    """The kernel brings amounts into the range. Source: LiteRT kernels/right_shift.cc."""
    x, amount = node.operand(0), node.operand(1)
    numbers = static_ints(amount)
    if numbers is None or not all(0 <= n < x.dtype.bits for n in numbers):
        amount = Term(b, amount).max(0).min(x.dtype.bits - 1).value
    op = ops.ShiftRightArithmetic if x.dtype.is_signed else ops.ShiftRightLogical
    return b(op, x, amount, in_range=True)


def in_range(node: Node) -> bool:
    """Whether no amount of a shift lies outside of the bits."""
    numbers = static_ints(node.operand(1))
    bits = node.operand(0).dtype.bits
    return bool(node.attr("in_range")) or (numbers is not None and all(0 <= n < bits for n in numbers))


@lower_tfl(ops.ShiftRightArithmetic)
def _arithmetic_tfl(node: Node) -> Form | None:
    return Form("RIGHT_SHIFT", tuple(node.operands)) if in_range(node) else None


@lower_tfl(ops.ShiftRightLogical)
def _logical_tfl(node: Node) -> Form | None:
    unsigned = not node.operand(0).dtype.is_signed
    return Form("RIGHT_SHIFT", tuple(node.operands)) if unsigned and in_range(node) else None


@lower_onnx(ops.ShiftLeft)
def _left_onnx(node: Node, opset: int) -> Form | None:
    unsigned = not node.operand(0).dtype.is_signed
    return Form("BitShift", tuple(node.operands), {"direction": "LEFT"}) if unsigned and in_range(node) else None


@lower_onnx(ops.ShiftRightLogical)
def _logical_onnx(node: Node, opset: int) -> Form | None:
    unsigned = not node.operand(0).dtype.is_signed
    return Form("BitShift", tuple(node.operands), {"direction": "RIGHT"}) if unsigned and in_range(node) else None


def _wide_shift(b: Builder, node: Node) -> Value | None:
    """ONNX Runtime has no kernel for 16 bits."""
    x, amount = Term(b, node.operand(0)), Term(b, node.operand(1))
    if x.dtype is not DType.UINT16 or not in_range(node):
        return None
    return x.to(DType.UINT32).apply(node.op, amount.to(DType.UINT32), in_range=True).to(x.dtype).value


decompose(ops.ShiftRightLogical, "onnx")(_wide_shift)
decompose(ops.ShiftLeft, "onnx")(_wide_shift)


@decompose(ops.ShiftLeft, "onnx")
def _shift_left_onnx(b: Builder, node: Node) -> Value:
    """Signed numbers as unsigned ones; amounts brought into the range."""
    x, amount = Term(b, node.operand(0)), Term(b, node.operand(1))
    if x.dtype.is_signed:
        unsigned = DType(f"u{x.dtype.value}")
        return (
            x.to(unsigned).apply(ops.ShiftLeft, amount.to(unsigned), in_range=node.attr("in_range")).to(x.dtype).value
        )
    last = x.dtype.bits - 1
    moved = x.apply(ops.ShiftLeft, amount.min(last), in_range=True)
    return (amount > last).choose(moved.constant(0), moved).value


@decompose(ops.ShiftRightArithmetic, "onnx")
def _arithmetic_onnx(b: Builder, node: Node) -> Value | None:
    """A negative number is the complement of one that is not: those shift as unsigned numbers do."""
    x, amount = Term(b, node.operand(0)), Term(b, node.operand(1))
    if not x.dtype.is_signed or not in_range(node):
        return None
    unsigned, negative = DType(f"u{x.dtype.value}"), x < 0
    size = negative.choose(-1 - x, x).to(unsigned)
    moved = size.apply(ops.ShiftRightLogical, amount.to(unsigned), in_range=True).to(x.dtype)
    return negative.choose(-1 - moved, moved).value
