"""Boolean and bitwise logic under NumPy broadcasting: And Or Xor Not, shifts, PopulationCount."""

from __future__ import annotations

import numpy as np

from onnxtfl.ir import numeric
from onnxtfl.ir.data import Array
from onnxtfl.ir.op import BOOLS, INTEGERS, Operand
from onnxtfl.ir.ops.arithmetic import Binary, pair
from onnxtfl.ir.ops.elementwise import Unary


class _Bits(Binary, register=False):
    operands = pair(BOOLS | INTEGERS)


class And(_Bits):
    """Logical and of bools; bitwise of integers (added). Source: neutral-ops 3.4, ONNX BitwiseAnd."""

    compute = np.bitwise_and


class Or(_Bits):
    """Logical or of bools; bitwise of integers (added). Source: neutral-ops 3.85, ONNX BitwiseOr."""

    compute = np.bitwise_or


class Xor(_Bits):
    """Logical exclusive or of bools; bitwise of integers (added). Source: neutral-ops 3.141, ONNX BitwiseXor."""

    compute = np.bitwise_xor


class Shift(Binary, register=False):
    """The bits of lhs moved by rhs places. Amounts outside [0, bits) move every bit out (ONNX BitShift-28).

    `in_range`: no amount lies outside, so that kernels which differ there serve.
    """

    operands = pair(INTEGERS)
    defaults = {"in_range": False}
    widens = False


class ShiftLeft(Shift):
    """Moved left, zeros from the right. Source: neutral-ops 3.113."""

    @staticmethod
    def compute(x: Array, amount: Array) -> Array:
        return numeric.shifted(x, amount, "left")


class ShiftRightLogical(Shift):
    """Moved right, zeros from the left. Source: neutral-ops 3.115 (XLA's)."""

    @staticmethod
    def compute(x: Array, amount: Array) -> Array:
        return numeric.shifted(x, amount, "logical")


class ShiftRightArithmetic(Shift):
    """Moved right, the sign from the left (zeros for unsigned types). Source: neutral-ops 3.114 (XLA's)."""

    @staticmethod
    def compute(x: Array, amount: Array) -> Array:
        return numeric.shifted(x, amount, "logical" if x.dtype.kind == "u" else "arithmetic")


class Not(Unary):
    """Logical negation of bools; every bit of integers flipped (added). Source: neutral-ops 3.84, ONNX BitwiseNot."""

    operands = (Operand("input", BOOLS | INTEGERS),)
    compute = np.invert


class PopulationCount(Unary):
    """The number of ones in the binary form. Source: neutral-ops 3.88; into the core: shifts, masks and sums."""

    operands = (Operand("input", INTEGERS),)
    core = False

    @staticmethod
    def compute(x: Array) -> Array:
        raw = np.ascontiguousarray(x)[..., None].view(np.uint8)
        return np.asarray(np.unpackbits(raw, axis=-1).sum(-1))
