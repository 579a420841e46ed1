"""Picking by index.

::

    Gather(x, indices) along the last axis, all others batch dims   ->   GatherElements(x, indices) along the last axis
"""

from __future__ import annotations

from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.graph import Node, Value
from onnxtfl.rewriting.patterns import Patterns

INDEXING = Patterns()


@INDEXING.on(ops.Gather)
def gather_elements(b: Builder, node: Node) -> Value | None:
    """Every index picks one number from its own row."""
    x, indices, axis = node.operand(0), node.operand(1), node.attr("axis")
    known = x.tensor_type.shape is not None and indices.tensor_type.shape is not None
    if not known or axis == 0 or node.attr("batch_dims") != axis or x.rank != axis + 1 or indices.rank != x.rank:
        return None
    if x.shape[:axis] != indices.shape[:axis]:
        return None
    return b(ops.GatherElements, x, indices, axis=axis)
