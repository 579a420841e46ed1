"""Index tensors that count along axes, without computing their elements: an assignment to a slice has one index vector
for each element of the slice.

::

    Concatenate(Reshape(BroadcastTo([[0], [1]], [2, 5])), Reshape(BroadcastTo([3, 4, 5, 6, 7], [2, 5])))
      =  [i, 3 + j] for each i < 2, j < 5
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from onnxtfl.dataclass import dataclass
from onnxtfl.ir import ops
from onnxtfl.ir.data import Array
from onnxtfl.ir.graph import Node, Value
from onnxtfl.ir.shapes import normalize_axis

MOST_ELEMENTS = 1 << 20
"""The most elements of a constant that are read."""


@dataclass(frozen=True)
class AffineIndices:
    """A tensor of integers of `shape` whose element at i is start + the sum of steps[axis] * i[axis]; a step is 0 along
    axes of size 1.
    """

    shape: tuple[int, ...]
    start: int
    steps: tuple[int, ...]

    @classmethod
    def of(cls, array: Array) -> AffineIndices | None:
        """`array`, if it is affine; it is not empty."""
        wide, origin = array.astype(np.int64), (0,) * array.ndim
        start, steps = int(wide[origin]), []
        for axis, size in enumerate(wide.shape):
            second = (*origin[:axis], 1, *origin[axis + 1 :])
            steps.append(int(wide[second]) - start if size > 1 else 0)
        expected: Array = np.asarray(start)
        for axis, (size, step) in enumerate(zip(wide.shape, steps, strict=True)):
            expected = expected + (np.arange(size) * step).reshape(-1, *[1] * (wide.ndim - axis - 1))
        return cls(wide.shape, start, tuple(steps)) if np.array_equal(wide, expected) else None

    @property
    def last(self) -> int:
        """The element at the largest index."""
        return self.start + sum((size - 1) * step for size, step in zip(self.shape, self.steps, strict=True))

    def reshaped(self, shape: Sequence[int]) -> AffineIndices | None:
        """The same with axes of size 1 inserted or removed; None for other shapes."""
        moved = [(size, step) for size, step in zip(self.shape, self.steps, strict=True) if size != 1]
        if [size for size, _ in moved] != [size for size in shape if size != 1]:
            return None
        steps = iter([step for _, step in moved])
        return AffineIndices(tuple(shape), self.start, tuple(next(steps) if size != 1 else 0 for size in shape))


def affine_of(value: Value) -> AffineIndices | None:
    """`value`; None if it is not known to be affine. All sizes are static, and none is 0."""
    type_, node = value.tensor_type, value.producer
    if not type_.is_static or 0 in value.shape or not type_.dtype.is_integer:
        return None
    if value.data is not None:
        return AffineIndices.of(value.numpy()) if value.data.size <= MOST_ELEMENTS else None
    shape = tuple(map(int, value.shape))
    if node is None or node.op not in (ops.Convert, ops.Reshape, ops.BroadcastTo):
        return None
    inner = affine_of(node.operand(0))
    if inner is None or node.op is ops.Convert:
        return inner
    if node.op is ops.Reshape:
        return inner.reshaped(shape)
    return AffineIndices(shape, inner.start, (0,) * (len(shape) - len(inner.steps)) + inner.steps)


def columns_of(indices: Value) -> list[AffineIndices] | None:
    """The entries of index vectors [..., depth] as affine tensors [...]; None if they are not known to be such."""
    if not indices.is_static or 0 in indices.shape or not indices.rank:
        return None
    node, found = indices.producer, list[AffineIndices | None]()
    if indices.data is not None:
        array = indices.numpy() if indices.data.size <= MOST_ELEMENTS else None
        found = [] if array is None else [AffineIndices.of(array[..., k]) for k in range(array.shape[-1])]
    elif node is None:
        return None
    elif node.op is ops.Concatenate and normalize_axis(node.attr("axis"), indices.rank) == indices.rank - 1:
        parts = [columns_of(v) for v in node.present_operands]
        for part in parts:
            found += part or [None]
    elif node.op is ops.FloorMod:
        return _unwrapped(node)
    else:
        only = affine_of(indices) if indices.shape[-1] == 1 else None
        found = [None if only is None else only.reshaped(only.shape[:-1])]
    columns = [column for column in found if column is not None]
    return columns if columns and len(columns) == len(found) else None


def _unwrapped(node: Node) -> list[AffineIndices] | None:
    """The entries of index vectors before negative ones count from the end, if there are none."""
    columns, sizes = columns_of(node.operand(0)), node.operand(1)
    if columns is None or sizes.data is None:
        return None
    limits = np.broadcast_to(sizes.numpy().reshape(-1), (len(columns),))
    is_within = all(
        0 <= c.start <= c.last < n and min(c.steps, default=0) >= 0 for c, n in zip(columns, limits, strict=True)
    )
    return columns if is_within else None
