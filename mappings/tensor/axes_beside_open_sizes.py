"""Reshapes beside several dynamic sizes, for XNNPACK, which reshapes to constant shapes only, with one dynamic size.

::

    Reshape(%x: [B,T,64], [B,T,4,16])    ->    %u = Transpose(Mul(%x, ones: [1,1,1,1]))    [B,T,1,64]
                                               Concatenate(Split(%u, 3, 4), axis 2)        [B,T,4,16]
    Reshape(%x: [B,T,4,16], [B,T,64])    ->    %w = Concatenate(Split(%x, 2, 4), axis 3)   [B,T,1,64]
                                               Reduce(%w, [2], sum)                        [B,T,64]

Heads of attention are such axes, beside a batch and a length. Values stay as they are (a negative zero may become 0).
With a batch of 1 to 4, 16 to 128 positions and 4 to 16 heads, transformers take 0.97 to 1.04 of the time.
"""

from __future__ import annotations

import math

import numpy as np

from onnxtfl.build.runs import joined, run_of
from onnxtfl.dataclass import dataclass
from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.dims import Shape, known_size, known_sizes, size_or
from onnxtfl.ir.graph import Node, Value
from onnxtfl.ir.matching import made_by
from onnxtfl.ir.quantized import is_real
from onnxtfl.ir.reshape import transposed
from onnxtfl.rewriting.registry import decompose, decompose_late

MOST_PARTS = 16
"""The most parts of an axis: each is a slice."""
MOST_SPLIT = 4
"""The most parts of a SPLIT of XNNPACK."""
MOST_AXES = 5
"""The most axes of a tensor: kernels reduce up to six."""


@dataclass(frozen=True)
class Regrouped:
    """Neighboring axes of known sizes, from `axis` of the operand on, that become others."""

    axis: int
    before: tuple[int, ...]
    after: tuple[int, ...]

    @property
    def is_simple(self) -> bool:
        """Whether an axis is split in two, or two are merged, none of size 0 or 1, and by few parts."""
        if sorted(map(len, (self.before, self.after))) != [1, 2] or min(*self.before, *self.after) < 2:
            return False
        return self.count <= MOST_PARTS and math.prod(self.before) == math.prod(self.after)

    @property
    def count(self) -> int:
        """The size of the first of the two axes."""
        return max(self.before, self.after, key=len)[0]


def _regrouped(before: Shape, after: Shape) -> list[Regrouped] | None:
    """The changes of a Reshape between dynamic sizes, the last ones first; None if it does not keep these."""
    (kept, runs), (same, others) = map(_runs, (before, after))
    if kept != same:
        return None
    axis, found = 0, list[Regrouped]()
    for run, other in zip(runs, others, strict=True):
        if run != other:
            found.append(Regrouped(axis, run, other))
        axis += len(run) + 1
    return found[::-1]


def _runs(shape: Shape) -> tuple[list[object], list[tuple[int, ...]]]:
    """The dynamic sizes in order, and the known ones before, between and after them."""
    opened = [i for i, size in enumerate(shape) if not isinstance(size, int)]
    ends = zip([-1, *opened], [*opened, len(shape)], strict=True)
    return [shape[i] for i in opened], [tuple(known_sizes(shape[start + 1 : end])) for start, end in ends]


def _is_of_sizes(node: Node) -> bool:
    """Whether this is a Reshape of a computed value (not an input) to sizes that are computed at run time."""
    x, after = node.operand(0), node.result.tensor_type.shape
    if x.producer is None:
        return False
    is_known = x.tensor_type.shape is None or after is None or node.operand(1).is_constant
    return not is_known and x.dtype.is_float and is_real(x.type)


def _beside_open_sizes(b: Builder, node: Node) -> Value | None:
    """Split and merge axes by joining parts of them. Axes of size 1 are left to passes that find them in pairs."""
    x = node.operand(0)
    changes = _regrouped(x.shape, node.result.shape)
    if not changes or max(x.rank, node.result.rank) > MOST_AXES or not all(change.is_simple for change in changes):
        return None
    for change in changes:
        axis, count = change.axis, change.count
        if len(change.after) > 1:
            x = _moved(b, _with_unit_axis(b, x, axis), axis + 1, axis, count)
        else:
            x = b(ops.Reduce, _moved(b, x, axis, axis + 1, count), [axis], kind="sum", keepdims=False)
    return x


def _with_unit_axis(b: Builder, x: Value, axis: int) -> Value:
    """Insert an axis of size 1 into `x` at `axis`: ones with more axes insert the first one."""
    led = b(ops.Mul, x, np.ones((1,) * (x.rank + 1), x.dtype.numpy))
    return transposed(b, led, [*range(1, axis + 1), 0, *range(axis + 1, led.rank)])


def _moved(b: Builder, x: Value, source: int, axis: int, count: int) -> Value:
    """Join `count` equal parts of axis `source` along `axis`."""
    return joined(b, _parts(b, x, source, count), axis)


def _parts(b: Builder, x: Value, axis: int, count: int) -> list[Value]:
    """The `count` equal parts of an axis of known size: XNNPACK splits a tensor in up to four, and slices it."""
    if count <= MOST_SPLIT:
        return b.many(ops.Split, x, axis=axis, count=count)
    size = known_size(x.shape[axis]) // count
    return [run_of(b, x, axis, i * size, (i + 1) * size) for i in range(count)]


def _repeated_parts(b: Builder, node: Node) -> Value | None:
    """Join the parts of an axis, each as often as a broadcast along the next axis repeats it.

    ::

        %r = Reshape(%x: [B,2,T,16], [B,2,1,T,16])    ->    %p, %q = Split(%x, 1, 2)
        Reshape(BroadcastTo(%r), [B,4,T,16])                Concatenate(%p, %p, %q, %q, axis 1)
    """
    wide = made_by(_before_reshapes(node.operand(0)), ops.BroadcastTo)
    made = made_by(wide.operand(0), ops.Reshape) if wide is not None else None
    if wide is None or made is None or made.operand(0).tensor_type.shape is None:
        return None
    x, after = made.operand(0), (made.result.tensor_type.shape, wide.result.tensor_type.shape, node.result.shape)
    for axis, size in enumerate(x.shape):
        before, trailing, count = x.shape[: axis + 1], x.shape[axis + 1 :], _at(after[1], axis + 1)
        if not 0 < count <= MOST_PARTS or not isinstance(size, int) or not 0 < size <= MOST_PARTS:
            continue
        if after == ((*before, 1, *trailing), (*before, count, *trailing), (*before[:-1], size * count, *trailing)):
            return joined(b, [part for part in _parts(b, x, axis, size) for _ in range(count)], axis)
    return None


def _at(shape: Shape | None, axis: int) -> int:
    """The known size of an axis, else 0."""
    return size_or(shape[axis], 0) if shape is not None and axis < len(shape) else 0


def _before_reshapes(value: Value) -> Value:
    """The value of which `value` is a reshape of reshapes; itself if it is none."""
    while (node := made_by(value, ops.Reshape)) is not None:
        value = node.operand(0)
    return value


decompose(ops.Reshape, "xnnpack", when=_is_of_sizes)(_beside_open_sizes)
decompose(ops.Reshape, "xnnpack", when=_is_of_sizes, benefit=1)(_repeated_parts)


@decompose_late(ops.Reshape, "xnnpack", when=_is_of_sizes)
def _left_beside_open_sizes(b: Builder, node: Node) -> Value | None:
    """Likewise for reshapes that are left after moves of axes; those that insert an axis of size 1 are not in pairs."""
    x, shape = node.operand(0), node.result.shape
    unit = next((i for i in range(len(shape)) if shape[:i] + shape[i + 1 :] == x.shape and shape[i] == 1), None)
    if unit is not None and len(shape) <= MOST_AXES:
        return _with_unit_axis(b, x, unit)
    return _repeated_parts(b, node) or _beside_open_sizes(b, node)
