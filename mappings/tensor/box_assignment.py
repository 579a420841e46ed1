"""ScatterND whose indices are a box, as exporters write `x[:, 1:, 2:5] = updates`, joins the updates and what is around
them.
"""

from __future__ import annotations

from collections.abc import Sequence

from onnxtfl.build.affine_indices import columns_of
from onnxtfl.build.sizes import slice_axes
from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.graph import Node, Value
from onnxtfl.ir.reshape import reshape
from onnxtfl.rewriting.registry import decompose


def _box(node: Node) -> list[slice] | None:
    """The elements of each indexed axis that are written, if each updates one after the other along its own axis."""
    x = node.operands[0]
    if x is None or node.attr("kind") != "none" or not x.is_static:
        return None
    columns = columns_of(node.operand(1)) or []
    slices, counted = [], -1
    for column, size in zip(columns, x.shape, strict=False):
        axes = [axis for axis, step in enumerate(column.steps) if step]
        if [column.steps[axis] for axis in axes] not in ([], [1]) or (axes and axes[0] <= counted):
            return None
        counted = axes[0] if axes else counted
        if column.start < 0 or column.last >= int(size):
            return None
        slices.append(slice(column.start, column.last + 1))
    written = [s.stop - s.start for s in slices if s.stop - s.start != 1]
    return slices if slices and written == [n for n in columns[0].shape if n != 1] else None


@decompose(ops.ScatterND, "tfl", when=lambda node: _box(node) is not None, benefit=4)
def _assign_box(b: Builder, node: Node) -> Value:
    """Concatenate on each axis, from the last one, what is before the updates, the updates, and what is after them."""
    x, updates, box = node.operand(0), node.operand(2), _box(node) or []
    sizes = [int(d) for d in x.shape]
    shape = [s.stop - s.start for s in box]
    result = reshape(b, updates, (*shape, *sizes[len(box) :]))
    for axis in reversed(range(len(box))):
        result = _between(b, x, result, box[: axis + 1], sizes[axis])
    return result


def _between(b: Builder, x: Value, middle: Value, box: Sequence[slice], size: int) -> Value:
    """Concatenate `middle` with the rest of `x` along the last axis of `box`, within the slices of the others."""
    *outer, own = box
    axis, chosen = len(outer), {i: s for i, s in enumerate(outer) if (s.start, s.stop) != (0, x.shape[i])}
    rests = [slice(0, own.start), slice(own.stop, size)]
    before, after = ([slice_axes(b, x, {**chosen, axis: s})] if s.start < s.stop else [] for s in rests)
    parts = [*before, middle, *after]
    return b(ops.Concatenate, *parts, axis=axis) if len(parts) > 1 else middle
