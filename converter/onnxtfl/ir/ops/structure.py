"""Ops that compute nothing."""

from __future__ import annotations

from collections.abc import Sequence

from onnxtfl.ir.graph import Node
from onnxtfl.ir.op import Elementwise, Operand
from onnxtfl.ir.types import Type

__all__ = ["Copy"]


class Copy(Elementwise):
    """The operand as a value of its own: an output that is also an input, a constant, or another output.

    Without `evaluate`, so that folding leaves it alone. Source: neutral-ops 3.31.
    """

    core = True
    operands = (Operand("input"),)

    @classmethod
    def infer(cls, node: Node) -> Sequence[Type]:
        return [node.operand(0).tensor_type]
