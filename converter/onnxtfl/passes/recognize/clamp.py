"""Bounds.

::

    Min(Max(x, low), high)    ->    Clamp(x, low, high)
"""

from __future__ import annotations

from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.graph import Node, Value, constant
from onnxtfl.ir.matching import made_by, scalar, single_use, with_constant
from onnxtfl.rewriting.patterns import Patterns

CLAMP = Patterns()


@CLAMP.on(ops.Min)
def clamp(b: Builder, node: Node) -> Value | None:
    """Between two numbers, the lower one first."""
    above = with_constant(node)
    inner = made_by(above[0], ops.Max) if above is not None else None
    below = with_constant(inner) if inner is not None else None
    if above is None or below is None or not single_use(above[0], b.graph) or below[0].type != node.result.type:
        return None
    bounds = [v.data for v in (below[1], above[1]) if v.data is not None and v.data.size == 1]
    low, high = scalar(below[1]), scalar(above[1])
    if low is None or high is None or low > high or len(bounds) < 2:
        return None
    return b(ops.Clamp, below[0], *(constant(data.reshape(())) for data in bounds))
