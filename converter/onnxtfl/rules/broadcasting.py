"""The broadcasting of old opsets."""

from __future__ import annotations

from onnxtfl.ir.builder import Builder
from onnxtfl.ir.graph import Node
from onnxtfl.ir.reshape import unsqueezed


def align_by_axis(b: Builder, node: Node) -> None:
    """Rewrite a binary op of an opset below 7 for NumPy broadcasting, in place.

    Attribute `axis` is the axis of the first operand at which the second's begin; without it the trailing axes align.
    """
    axis, wanted = node.attributes.pop("axis", None), node.attributes.pop("broadcast", 0)
    if not wanted or axis is None:
        return
    lhs, rhs = node.operand(0), node.operand(1)
    trailing = lhs.rank - axis % lhs.rank - rhs.rank if lhs.rank else 0
    if trailing > 0:
        node.set_operand(1, unsqueezed(b, rhs, range(rhs.rank, rhs.rank + trailing)))
