"""Boolean and bitwise logic under NumPy broadcasting: And Or Xor Not, shifts, PopulationCount."""

from __future__ import annotations

from functools import partial

import numpy as np

from onnxtfl.ir import intervals, numeric
from onnxtfl.ir.attributes import Flag
from onnxtfl.ir.data import Array
from onnxtfl.ir.formula import Term, by_formula
from onnxtfl.ir.graph import KNOWN_LIMIT, Node
from onnxtfl.ir.op import BOOLS, INTEGERS, Operand, computed_by
from onnxtfl.ir.ops.arithmetic import Binary, pair
from onnxtfl.ir.ops.elementwise import Unary
from onnxtfl.ir.types import DType


def _known_bools(node: Node) -> list[Array | None] | None:
    """The results of few constant bools, on which sizes may depend; None for others."""
    constants = [v.numpy() for v in node.present_operands if v.data is not None and v.dtype is DType.BOOL]
    if len(constants) < len(node.operands) or any(array.size > KNOWN_LIMIT for array in constants):
        return None
    return [np.asarray(node.op.evaluate({}, *constants), object)]


class Bits(Binary, register=False):
    """Logical ops of bools, bitwise ones of integers (added)."""

    operands = pair(BOOLS | INTEGERS)
    interval = intervals.some_bits
    commutative = True

    @classmethod
    def known_results(cls, node: Node) -> list[Array | None] | None:
        return _known_bools(node)


And = computed_by(
    Bits,
    "And",
    np.bitwise_and,
    "And, of bools or bits. Source: neutral-ops 3.4, ONNX BitwiseAnd.",
    interval=intervals.both_bits,
    reduction="all",
)
Or = computed_by(
    Bits,
    "Or",
    np.bitwise_or,
    "Or, of bools or bits. Source: neutral-ops 3.85, ONNX BitwiseOr.",
    reduction="any",
)
Xor = computed_by(
    Bits,
    "Xor",
    np.bitwise_xor,
    "Exclusive or, of bools or bits. Source: neutral-ops 3.141, ONNX BitwiseXor.",
)


class Not(Unary):
    """Logical negation of bools; every bit of integers flipped (added). Source: neutral-ops 3.84, ONNX BitwiseNot."""

    operands = (Operand("input", BOOLS | INTEGERS),)
    compute = np.invert
    interval = intervals.inverted

    @classmethod
    def known_results(cls, node: Node) -> list[Array | None] | None:
        return _known_bools(node)


class Shift(Binary, register=False):
    """The bits of lhs shifted by rhs places. Amounts outside [0, bits) shift every bit out (ONNX BitShift-28).

    `in_range`: no amount is outside, so that kernels which differ there may be used.
    """

    operands = (Operand("lhs", INTEGERS), Operand("rhs", INTEGERS, like="lhs", likely=(0, 8)))
    attributes = {"in_range": Flag(False)}
    widens = False


ShiftLeft = computed_by(
    Shift, "ShiftLeft", partial(numeric.shifted, kind="left"), "Shifted left, zeros enter. Source: neutral-ops 3.113."
)
ShiftRightLogical = computed_by(
    Shift,
    "ShiftRightLogical",
    partial(numeric.shifted, kind="logical"),
    "Shifted right, zeros enter. Source: neutral-ops 3.115 (XLA's).",
    interval=intervals.shifted_down,
)
ShiftRightArithmetic = computed_by(
    Shift,
    "ShiftRightArithmetic",
    partial(numeric.shifted, kind="arithmetic"),
    "Shifted right, the sign enters (zeros for unsigned types). Source: neutral-ops 3.114 (XLA's).",
    interval=lambda lhs, rhs: lhs.or_else(intervals.ZERO),
)


@by_formula(Unary, operands=(Operand("input", INTEGERS),), bounds=(0, 64))
def PopulationCount(x: Term) -> Term:
    """The number of ones in the binary form: the bits one by one, as the last bits of shifted elements.

    Source: neutral-ops 3.88.
    """
    raw = x.bits(DType(x.dtype.value.removeprefix("u")))
    bits = np.arange(raw.dtype.bits, dtype=raw.dtype.numpy).reshape(-1, *[1] * x.rank)
    return (raw.apply(ShiftRightLogical, bits, in_range=True) & 1).reduce("sum", [0], keepdims=False).to(x.dtype)
