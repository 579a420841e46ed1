"""Losses: BCELoss."""

from __future__ import annotations

from typing import ClassVar

from onnxtfl.ir.builder import Builder
from onnxtfl.ir.derived import Derived
from onnxtfl.ir.graph import Node, Value
from onnxtfl.ir.op import FLOATS, Attributes, Operand
from onnxtfl.ir.ops.arithmetic import Add, Clamp, Mul, Sub
from onnxtfl.ir.ops.elementwise import Log, Neg
from onnxtfl.ir.ops.reductions import Reduce


class BCELoss(Derived):
    """-(target * log(input) + (1 - target) * log(1 - input)) * weight, and its `reduction` (none, sum, mean).

    Logarithms are not below -100. Source: neutral-ops 3.16; torch.nn.BCELoss.
    """

    operands = (Operand("input", FLOATS), Operand("target", FLOATS), Operand("weight", FLOATS, optional=True))
    defaults: ClassVar[Attributes] = {"reduction": "mean"}

    @classmethod
    def expand(cls, b: Builder, node: Node) -> list[Value]:
        x, target, weight = node.operand(0), node.operand(1), node.optional(2)
        one, least = b.scalar(1, x), b.scalar(-100, x)
        yes = b(Mul, target, b(Clamp, b(Log, x), least))
        no = b(Mul, b(Sub, one, target), b(Clamp, b(Log, b(Sub, one, x)), least))
        loss = b(Neg, b(Add, yes, no))
        loss = loss if weight is None else b(Mul, loss, weight)
        reduction = node.attr("reduction")
        if reduction not in ("none", "sum", "mean"):
            raise ValueError(f"no reduction is called {reduction!r}")
        return [loss if reduction == "none" else b(Reduce, loss, kind=reduction)]
