"""The indices of a MaxPool: positions in the flattened operand, as ONNX counts them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from onnxtfl.build.indices import strides_of
from onnxtfl.build.open_windows import bare, grown, padding_at_run_time, seen_of_open
from onnxtfl.build.sizes import sliced
from onnxtfl.build.windows import padded
from onnxtfl.ir import ops
from onnxtfl.ir.budget import check_elements
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.data import Array
from onnxtfl.ir.dims import Dim, product
from onnxtfl.ir.formula import Term
from onnxtfl.ir.graph import Node, Value, constant
from onnxtfl.ir.op import attributes_of
from onnxtfl.ir.reshape import dim_value, positions, reshape, unsqueezed, with_unit_axis
from onnxtfl.ir.spatial import Window
from onnxtfl.ir.types import DType


def in_fortran_order(b: Builder, indices: Value, x: Value) -> Value:
    """Positions in the flattened `x` whose spatial axes, the last ones, have the first as the fastest."""
    spatial, result, place = x.shape[2:], Term(b, indices), Term(b, indices)

    def times(*dims: Dim) -> Term:
        return Term(b, dim_value(b, product(dims), x))

    for i, size in enumerate(spatial):
        weight, other = times(*spatial[i + 1 :]), times(*spatial[:i])
        result = result + place.apply(ops.FloorDiv, weight) % times(size) * (other - weight)
    return result.value


def pool_with_indices(b: Builder, node: Node, lowest: float) -> list[Value]:
    """The taps side by side: their largest, and the position of the first such tap in the flattened operand.

    `lowest`: the padding.

    That number is a sum: of the tap's offset, of the window's place, and of the other axes' part.
    """
    x, window, dims = node.operand(0), ops.pool_window(attributes_of(node)), node.attr("dims")
    sizes = [d for d in x.shape if isinstance(d, int)]
    if len(sizes) != x.rank:
        return _open_pool_with_indices(b, node, window, lowest)
    spatial = [sizes[d] for d in dims]
    overhang = [max(0, n) for n in window.overhang(spatial)]
    counts = window.static_counts(spatial)
    pad = padded(b, x, dims, (*window.before, *overhang), lowest)
    others = math.prod(size for a, size in enumerate(sizes) if a not in dims)
    check_elements(others * math.prod(counts), "the indices of the windows")
    seen = (dict(zip(dims, bare(window).seen(tap, counts)[1:], strict=True)) for tap in window.taps())
    taps = [sliced(b, pad, parts) for parts in seen]
    stack = b(ops.Concatenate, *(with_unit_axis(b, t, x.rank) for t in taps), axis=x.rank)
    best = b(ops.Reduce, stack, [x.rank], kind="max", keepdims=False)
    which = b(ops.ArgMax, stack, axis=x.rank, keepdims=False)
    offsets, places = _flat_parts(sizes, dims, window, counts)
    return [best, b(ops.Add, b(ops.Gather, offsets, which, axis=0), places)]


def _open_pool_with_indices(b: Builder, node: Node, window: Window, lowest: float) -> list[Value]:
    """The same over open sizes: the numbers of all elements are padded and sliced as the elements are."""
    x, dims = node.operand(0), node.attr("dims")
    amounts = padding_at_run_time(b, x, dims, window)
    count = Term(b, b(ops.Shape, x, dtype=DType.INT32)).reduce("prod", [0])
    numbers = reshape(b, positions(b, count.value), x.shape, x)
    sides = [grown(b, v, dims, amounts, value) for v, value in ((x, lowest), (numbers, 0))]
    parts = [dict(zip(dims, seen_of_open(window, tap), strict=True)) for tap in window.taps()]
    elements, places = ([sliced(b, side, part) for part in parts] for side in sides)
    stacks = [b(ops.Concatenate, *(unsqueezed(b, t, [x.rank]) for t in v), axis=x.rank) for v in (elements, places)]
    best = b(ops.Reduce, stacks[0], [x.rank], kind="max", keepdims=False)
    which = Term(b, b(ops.ArgMax, stacks[0], axis=x.rank, keepdims=True))
    chosen = Term(b, constant(np.arange(len(parts)))).equals(which)
    number = chosen.choose(Term(b, stacks[1]), 0).reduce("sum", [x.rank], keepdims=False)
    return [best, number.to(DType.INT64).value]


def _flat_parts(
    sizes: Sequence[int], dims: Sequence[int], window: Window, counts: Sequence[int]
) -> tuple[Array, Array]:
    """The offset of each tap, and the number of the first tap's element at each place, in the flattened operand."""
    weights, steps = strides_of(sizes), [np.arange(size) for size in sizes]
    for i, axis in enumerate(dims):
        steps[axis] = np.arange(counts[i]) * window.strides[i] - window.before[i]
    offsets = np.asarray(list(window.taps())) * window.dilations @ weights[list(dims)]
    places = sum(step * weight for step, weight in zip(np.ix_(*steps), weights, strict=True))
    return offsets.astype(np.int64), np.asarray(places, np.int64)
