"""64-bit unsigned numbers that are only moved, as signed ones of the same bits: no TFLite kernel moves them otherwise.

This comes before the other decompositions of these ops, which do not look at element types.
"""

from __future__ import annotations

from collections.abc import Sequence

from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.graph import Node, Value
from onnxtfl.ir.op import Op
from onnxtfl.ir.types import DType
from onnxtfl.rules import decompose

MOVING: tuple[type[Op], ...] = (
    ops.Transpose, ops.BroadcastTo, ops.Concatenate, ops.Split, ops.Slice, ops.Pad, ops.Tile, ops.Reverse,
    ops.ReverseSequence, ops.Gather, ops.GatherND, ops.GatherElements, ops.ScatterND, ops.ScatterElements,
    ops.DynamicUpdateSlice, ops.DepthToSpace, ops.SpaceToDepth,
)  # fmt: skip
_SAME_ON_BITS = ("none", "add", "mul")


def _as_signed(b: Builder, node: Node) -> Sequence[Value] | None:
    if node.results[0].dtype is not DType.UINT64 or node.attr("kind", "none") not in _SAME_ON_BITS:
        return None
    operands = [
        b(ops.BitcastConvert, v, dtype=DType.INT64) if v is not None and v.dtype is DType.UINT64 else v
        for v in node.operands
    ]
    return [b(ops.BitcastConvert, v, dtype=DType.UINT64) for v in b.many(node.op, *operands, **node.attributes)]


for moving in MOVING:
    decompose(moving, "tfl")(_as_signed)
