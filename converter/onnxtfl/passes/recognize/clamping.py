"""Clamp from Max and Min."""

from __future__ import annotations

from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.graph import Node, Value, constant
from onnxtfl.ir.matching import made_by, single_use, splat_value, with_constant
from onnxtfl.rewriting.patterns import Patterns

CLAMP = Patterns()
"""For targets that have a Clamp with any bounds."""


@CLAMP.on(ops.Min)
def clamp(b: Builder, node: Node) -> Value | None:
    """Min(Max(x, low), high) -> Clamp(x, low, high), for constants low <= high."""
    above = with_constant(node)
    inner = made_by(above[0], ops.Max) if above is not None else None
    below = with_constant(inner) if inner is not None else None
    if above is None or below is None or not single_use(above[0], b.graph) or below[0].type != node.result.type:
        return None
    bounds = [v.data for v in (below[1], above[1]) if v.data is not None and v.data.size == 1]
    low, high = splat_value(below[1]), splat_value(above[1])
    if low is None or high is None or low > high or len(bounds) < 2:
        return None
    return b(ops.Clamp, below[0], *(constant(data.reshape(())) for data in bounds))
