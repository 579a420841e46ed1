"""Operands of one element, and the broadcasting of old opsets."""

from __future__ import annotations

from onnxtfl.ir.builder import Builder
from onnxtfl.ir.graph import Node, Value
from onnxtfl.ir.matching import scalar
from onnxtfl.ir.op import is_single
from onnxtfl.ir.reshape import unsqueezed


def align_by_axis(b: Builder, node: Node) -> None:
    """Upgrade a binary op of before opset 7 in place.

    There `axis` says where the axes of the second operand begin; without it they end with the first's.
    """
    axis, wanted = node.attributes.pop("axis", None), node.attributes.pop("broadcast", 0)
    if not wanted or axis is None:
        return
    lhs, rhs = node.operand(0), node.operand(1)
    trailing = lhs.rank - axis % lhs.rank - rhs.rank if lhs.rank else 0
    if trailing > 0:
        node.set_operand(1, unsqueezed(b, rhs, range(rhs.rank, rhs.rank + trailing)))


def number_for_all(x: Value, operand: Value) -> float | None:
    """The one number that `operand` is for every element of `x`; None where there is no such number."""
    return scalar(operand) if is_single(operand) and operand.rank <= (x.tensor_type.rank or 0) else None
