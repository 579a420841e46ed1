"""Ops that combine the places of a cache: what follows the new tokens there has no meaning, and does not count.

::

    %y = Reduce(%x: [1, 4, N, P + N]) sum over [3]        %y = Reduce(Select(%is_filled, %x, 0)) sum over [3]
    %y = DotGeneral(%p, %v) over P + N              ->    %y = DotGeneral(Select(%is_filled, %p, 0), %v) over C

A product stays as it is where one of its operands is 0 there, as the result of a softmax is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.declaration import SharedAxes
from onnxtfl.ir.dims import Dim
from onnxtfl.ir.graph import Node, Value
from onnxtfl.ir.numeric import highest, lowest
from onnxtfl.ir.op import Elementwise
from onnxtfl.ir.shapes import normalize_axis, static_ints
from onnxtfl.ir.types import DType

IsFilled = Callable[[Dim], Value]
"""Returns the bools of which places along an axis of this size in the source hold tokens."""
Neutral = Callable[[DType], float]
_NEUTRAL: dict[str, Neutral] = {
    "sum": lambda dtype: 0, "prod": lambda dtype: 1, "any": lambda dtype: 0, "all": lambda dtype: 1,
    "max": lambda dtype: lowest(dtype.numpy), "min": lambda dtype: highest(dtype.numpy),
}  # fmt: skip
"""The element that does not change a reduction."""
_KEEP_ZEROS = (ops.Reshape, ops.Transpose, ops.BroadcastTo, ops.Slice, ops.Convert, ops.Neg, ops.Div)
_SEPARATE = (
    ops.Concatenate, ops.Range, ops.Reshape, ops.BroadcastTo, ops.Slice, ops.Gather, ops.GatherND, ops.GatherElements,
    ops.Transpose, ops.Shape, ops.Copy, ops.Trilu, ops.Tile, ops.ScatterND, ops.ScatterElements,
)  # fmt: skip
"""Ops that do not combine elements, nor depend on how many there are: their indices are those of filled places."""


def operands_without_unfilled(
    node: Node, operands: Sequence[Value | None], b: Builder, places: Callable[[Dim], bool], is_filled: IsFilled
) -> list[Value | None] | None:
    """The new `operands` of a node so that only filled places count in its result; None for an op that has no such.

    ``places``: whether an axis of this size in the source has the places of a cache.
    """
    if _is_elementwise(node) or node.op in _SEPARATE:
        return list(operands)
    if not any(places(dim) for v in node.present_operands for dim in v.tensor_type.shape or ()):
        return list(operands)
    axes, neutral = _combined(node)
    if axes is None:
        return None
    x = node.operand(0)
    combined = [axis for axis in axes if places(x.shape[axis])]
    if not combined:
        return list(operands)
    if neutral is None:
        return None
    new = operands[0]
    assert new is not None
    if node.op is ops.DotGeneral and any(_is_zero(v, places) for v in node.present_operands):
        return list(operands)
    for axis in combined:
        shape = [1] * x.rank
        shape[axis] = -1
        new = b(ops.Select, b(ops.Reshape, is_filled(x.shape[axis]), shape), new, b.scalar(neutral(x.dtype), new))
    return [new, *operands[1:]]


def _is_elementwise(node: Node) -> bool:
    """Whether an element of the result depends on those at the same place of all operands only."""
    return issubclass(node.op, Elementwise) or node.op.shared_axes == SharedAxes(None)


def _combined(node: Node) -> tuple[Sequence[int] | None, Neutral | None]:
    """The axes of the first operand whose elements a node combines, None if unknown, and the neutral element."""
    rank = node.operand(0).rank
    if node.op is ops.DotGeneral:
        return node.attr("lhs_contracting_dimensions"), _NEUTRAL["sum"]
    if node.op is ops.Reduce:
        axes = range(rank) if node.optional(1) is None else static_ints(node.operand(1))
        known = None if axes is None else [normalize_axis(axis, rank) for axis in axes]
        return known, _NEUTRAL.get(node.attr("kind"))
    if node.op in (ops.ArgMax, ops.ArgMin):
        return [normalize_axis(node.attr("axis"), rank)], _NEUTRAL["max" if node.op is ops.ArgMax else "min"]
    if node.op is ops.CumSum:
        axes = static_ints(node.operand(1))
        found = None if axes is None else [normalize_axis(axes[0], rank)]
        return ([], None) if found is not None and not node.attr("reverse") else (found, _NEUTRAL["sum"])
    if node.op is ops.Pad:
        padding = static_ints(node.operand(1))
        return (None if padding is None else [k // 2 for k, count in enumerate(padding) if count]), None
    axis = node.attributes.get("axis")
    return (None if axis is None else [normalize_axis(axis, rank)]), None


def _is_zero(value: Value, places: Callable[[Dim], bool]) -> bool:
    """Whether a value of the source is 0 at places without tokens once a softmax over places has a mask."""
    node = value.producer
    if node is None or not any(map(places, value.shape)):
        return False
    if node.op is ops.Softmax and places(node.result.shape[node.attr("axis") % node.result.rank]):
        return True
    read = (_is_zero(v, places) for v in node.operands[:2] if v is not None)
    if node.op in (ops.Add, ops.Sub):
        return all(read)
    return any(read) if node.op is ops.Mul else node.op in _KEEP_ZEROS and next(read)


def with_ends(b: Builder, value: Value, ends: tuple[int, int], fill: float) -> Value:
    """`value` with elements of `fill` before and after those along its last axis."""
    if ends == (0, 0):
        return value
    padding = np.zeros((value.rank, 2), np.int64)
    padding[-1] = ends
    return b(ops.Pad, value, padding, b.scalar(fill, value))
