"""Slices that are all parts of an axis are one Split, as before TFLite's delegate, which makes few parts at once.

::

    %a = Slice(%x: [5,8]) row 0                    %a, %b, %c, %d, %e = Split(%x)
    ...                                     ->
    %e = Slice(%x) row 4
"""

from __future__ import annotations

from collections.abc import Sequence

from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.graph import Graph, Node, Value
from onnxtfl.ir.shapes import static_ints

FEWEST = 5
"""The fewest parts; the delegate makes up to four."""


def join_slices(graph: Graph) -> bool:
    """Replace the slices of each tensor that are at least `FEWEST` equal parts of an axis; return whether any are."""
    seen, changed = set[Value](), False
    for node in list(graph.nodes):
        x = node.operand(0) if node.op is ops.Slice and node.graph is graph else None
        if x is not None and x not in seen:
            seen.add(x)
            changed |= _joined(graph, node, x)
    return changed


def _joined(graph: Graph, first: Node, x: Value) -> bool:
    slices = [user for user in x.users() if user.op is ops.Slice and user.graph is graph]
    if len(slices) < FEWEST or not x.is_static:
        return False
    placed = {(axis, start): node for node in slices if (found := _part(x, node)) for axis, start in [found]}
    axis = next(iter(placed), (0, 0))[0]
    size = first.result.size(axis)
    parts = [placed.get((axis, start)) for start in range(0, x.size(axis), size or 1)]
    nodes = [node for node in parts if node is not None and node.result.type == first.result.type]
    if len(nodes) < max(FEWEST, len(parts)) or len(nodes) * size != x.size(axis):
        return False
    b = Builder(graph, first, cause=first, maker="joined slices")
    for node, value in zip(nodes, b.many(ops.Split, x, axis=axis, count=len(nodes)), strict=True):
        value.type = node.result.type
        graph.replace(node, [value])
    return True


def _part(x: Value, node: Node) -> tuple[int, int] | None:
    """The only axis that a Slice cuts, and where it begins; None for other slices."""
    starts, strides = static_ints(node.operand(1)), static_ints(node.operand(3))
    if starts is None or strides is None or min(starts) < 0 or set(strides) != {1} or x.rank != node.result.rank:
        return None
    cut = _cut_axes(x.shape, node.result.shape)
    return (cut[0], starts[cut[0]]) if len(cut) == 1 else None


def _cut_axes(before: Sequence[int], after: Sequence[int]) -> list[int]:
    return [axis for axis, (size, part) in enumerate(zip(before, after, strict=True)) if size != part]
