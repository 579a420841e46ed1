"""Ops that return their operand: Copy Dropout."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from onnxtfl.ir.builder import Builder
from onnxtfl.ir.data import Array
from onnxtfl.ir.dims import Shape as Dims
from onnxtfl.ir.formula import by_expansion
from onnxtfl.ir.graph import Node, Value
from onnxtfl.ir.op import BOOLS, Elementwise, Operand
from onnxtfl.ir.ops.broadcasting import BroadcastTo
from onnxtfl.ir.ops.shape import Shape
from onnxtfl.ir.quantization import Quantization
from onnxtfl.ir.types import Type


@by_expansion(Operand("input"), results=(Operand("output"), Operand("mask", BOOLS)))
def Dropout(b: Builder, x: Value, ratio: float = 0.5) -> list[Value]:
    """At inference nothing is dropped: the operand, and a mask that is true everywhere. Source: neutral-ops 3.40."""
    return [x, b(BroadcastTo, np.asarray(True), b(Shape, x))]


class Copy(Elementwise):
    """A copy of the operand, for an output that is also an input, a constant or another output.

    Never folded, since an output has to stay a result of its own. Source: neutral-ops 3.31.
    """

    core = True
    moves = slice(0, 1)
    keeps_all = "in order"
    operands = (Operand("input"),)

    @classmethod
    def infer(cls, node: Node) -> Sequence[Type]:
        return [node.operand(0).tensor_type]

    @classmethod
    def folds(cls, node: Node) -> bool:
        return False

    @staticmethod
    def compute(x: Array) -> Array:
        return x

    @classmethod
    def kept(cls, node: Node, quantization: Quantization, shape: Dims | None) -> Quantization | None:
        return quantization
