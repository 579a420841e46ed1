"""Parts of a tensor by position: Slice and its forms, DynamicUpdateSlice, SetDimensionSize."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from onnxtfl.ir.builder import Builder
from onnxtfl.ir.data import Array
from onnxtfl.ir.dims import (
    Dim,
    at_most,
    ceildiv,
    exceeds,
    fresh_symbol,
    is_static,
    known_sizes,
    lower_bound,
    positive_part,
)
from onnxtfl.ir.dims import Shape as Dims
from onnxtfl.ir.formula import by_expansion
from onnxtfl.ir.graph import Node, Value, constant
from onnxtfl.ir.op import INDICES, INTEGERS, Op, Operand, SharedAxes
from onnxtfl.ir.ops.arithmetic import Add, Sub
from onnxtfl.ir.ops.casts import Convert
from onnxtfl.ir.ops.concatenation import Concatenate
from onnxtfl.ir.ops.extremes import Max, Min
from onnxtfl.ir.ops.reshape import Reshape
from onnxtfl.ir.ops.scattering import ScatterND
from onnxtfl.ir.ops.shape import Shape
from onnxtfl.ir.shapes import entry_of, normalize_axes, normalize_axis, required_axes, static_ints
from onnxtfl.ir.types import DType, rank_of, shapes_compatible

HUGE = 1 << 31
"""Bounds of slices from here on mean the end of the axis."""


def slice_dim(size: Dim, start: Dim | None, limit: Dim | None, stride: Dim | None) -> Dim:
    """The number of positions of an axis in a slice; a fresh symbol if it depends on unknown bounds."""
    if not isinstance(stride, int):
        return fresh_symbol()
    if limit == 0 and stride > 0:
        return 0  # wherever it starts
    if start is None or limit is None:
        return fresh_symbol()
    if stride == 0:
        raise ValueError("a slice of stride 0")
    if is_static(bounds := (start, limit)):
        first, last = bounds
        if isinstance(size, int):
            return len(range(*slice(first, last, stride).indices(size)))
        if (first < 0) == (last < 0) and not range(first, last, stride):
            return 0  # counted from the same end
    begin, end = _position(size, start, stride > 0, True), _position(size, limit, stride > 0, False)
    if begin is None or end is None:
        return fresh_symbol()
    return positive_part(ceildiv(end - begin, stride))


def _position(size: Dim, at: Dim, forward: bool, is_start: bool) -> Dim | None:
    """The position of a bound of a slice, if the bound or the size of the axis is symbolic.

    None if clamping would depend on the size. Symbolic bounds are assumed to be inside.
    """
    if not isinstance(at, int):
        negative = all(c < 0 for _, c in at.terms)
        return size + at if negative else at
    if at >= HUGE:
        return size if forward else size - 1
    if at <= -HUGE:
        return 0 if forward else -1
    if at < 0:
        clamped = is_start == forward  # the first element forward, and the last one backward
        inside = lower_bound(size) >= -at or not clamped or at == -1
        return size + at if inside else None
    needed = at + 1 if is_start and not forward else at  # the first element of a slice backward exists
    inside = lower_bound(size) >= needed or (is_start and forward)
    return at if inside else None


class Slice(Op):
    """Every strides[i]-th position from starts[i] up to but without limits[i], along each axis i.

    Bounds are those of NumPy's x[start:limit:stride]: negative ones count from the end, those outside are clamped, and
    with a negative stride a limit under -size goes through position 0. Source: neutral-ops 3.122, 3.92 (widened:
    negative strides, bounds known only at run time).
    """

    operands = (
        Operand("input"),
        Operand("starts", INDICES, likely=(0, 1)),
        Operand("limits", INDICES, likely=(2**30, 2**30 + 1)),
        Operand("strides", INDICES, likely=(1, 2)),
    )
    core = True
    shared_axes = SharedAxes(vectors=(1, 2, 3))
    moves = slice(0, 1)
    propagates = True

    @staticmethod
    def shape(x: Value, *bounds: Value) -> Dims:
        for vector in bounds:
            if not shapes_compatible(vector.tensor_type.shape, (x.rank,)):
                raise ValueError(f"bounds of {vector.type} for rank {x.rank}")
        return tuple(slice_dim(d, *(entry_of(v, i) for v in bounds)) for i, d in enumerate(x.shape))

    @staticmethod
    def compute(x: Array, *bounds: Array) -> Array:
        return x[tuple(slice(int(a), int(b), int(c)) for a, b, c in zip(*bounds, strict=True))]


class DynamicUpdateSlice(Op):
    """`input` with the part from `starts` on replaced by `update`; starts are clamped so that it fits.

    Source: neutral-ops 3.46.
    """

    operands = (Operand("input"), Operand("update", like="input"), Operand("starts", INDICES))
    moves = slice(0, 2)
    shared_axes = SharedAxes(2, vectors=(2,))

    @staticmethod
    def shape(x: Value, update: Value, starts: Value) -> Dims:
        if rank_of(update.type) not in (None, x.rank):
            raise ValueError("the update has another rank")
        sizes = zip(update.tensor_type.shape or (), x.tensor_type.shape or (), strict=False)
        if any(exceeds(m, n) for m, n in sizes):
            raise ValueError(f"an update of {update.type} does not fit into {x.type}")
        return x.shape

    @staticmethod
    def compute(x: Array, update: Array, starts: Array) -> Array:
        room = [n - m for n, m in zip(x.shape, update.shape, strict=True)]
        begins = [min(max(int(s), 0), r) for s, r in zip(starts, room, strict=True)]
        result = x.copy()
        result[tuple(slice(b, b + m) for b, m in zip(begins, update.shape, strict=True))] = update
        return result


END = 1 << 62


@by_expansion(Operand("input"), Operand("start_indices", INDICES), moves=slice(0, 1))
def DynamicSlice(b: Builder, x: Value, starts: Value, slice_sizes: Sequence[int]) -> Value:
    """The part of `slice_sizes` that begins at `start_indices`, which are clamped so that it fits.

    Source: neutral-ops 3.45.
    """
    starts, sizes = b(Convert, starts, dtype=DType.INT64), np.asarray(slice_sizes, np.int64)
    begins = b(Max, b(Min, starts, b(Sub, b(Shape, x), sizes)), b.scalar(0, starts))
    return b(Reshape, b(Slice, x, begins, b(Add, begins, sizes), [1] * x.rank), sizes)


@by_expansion(
    Operand("input"),
    *(Operand(name, INDICES) for name in ("start_indices", "limit_indices", "strides")),
    Operand("axes", INDICES, optional=True),
)
def RealDynamicSlice(b: Builder, x: Value, starts: Value, limits: Value, strides: Value, axes: Value | None) -> Value:
    """Slice along `axes` (all where absent), with bounds known only at run time. Source: neutral-ops 3.92."""
    if axes is None:
        return b(Slice, x, starts, limits, strides)
    rows = np.asarray(normalize_axes(required_axes(axes), x.rank), np.int64).reshape(-1, 1)
    vectors = []
    for vector, default in ((starts, 0), (limits, END), (strides, 1)):
        blank = constant(np.full(x.rank, default, np.int64), vector.dtype)
        vectors.append(b(ScatterND, blank, rows, vector, kind="none", unique_indices=True))
    return b(Slice, x, *vectors)


@by_expansion(Operand("input"))
def SliceInDim(
    b: Builder, x: Value, dimension: int, start_index: int = 0, limit_index: int = END, stride: int = 1
) -> Value:
    """Slice along one `dimension`. Source: neutral-ops 3.123 (name only), XLA SliceInDim."""
    axis = normalize_axis(dimension, x.rank)
    bounds = ((start_index, 0), (limit_index, END), (stride, 1))
    return b(Slice, x, *([bound if i == axis else other for i in range(x.rank)] for bound, other in bounds))


@by_expansion(Operand("input"), Operand("size", INTEGERS))
def SetDimensionSize(b: Builder, x: Value, size: Value, dimension: int) -> Value:
    """The first `size` (one element) positions of one `dimension`. Source: neutral-ops 3.111."""
    axis = normalize_axis(dimension, x.rank)
    before, after = (
        constant(np.full(n, END if size.dtype is DType.INT64 else (1 << 31) - 1), size.dtype)
        for n in (axis, x.rank - 1 - axis)
    )
    limits = b(Concatenate, before, b(Reshape, size, [1]), after, axis=0)
    return b(Slice, x, np.zeros(x.rank, np.int64), limits, np.ones(x.rank, np.int64))


INT32_MAX = (1 << 31) - 1
"""A limit beyond every axis, for kernels with int32 limits."""


def slice_axes(b: Builder, x: Value, parts: Mapping[int, slice]) -> Value:
    """The slice of `x` along the axes in `parts`; no node if that is all of `x`."""
    cut = {axis: part for axis, part in parts.items() if part != slice(None) and not _is_whole(part, x.shape[axis])}
    if not cut:
        return x
    bounds = [(s.start or 0, END if s.stop is None else s.stop, s.step or 1) for s in cut.values()]
    places = dict(zip(cut, bounds, strict=True))
    vectors = zip(*(places.get(axis, (0, END, 1)) for axis in range(x.rank)), strict=True)
    return b(Slice, x, *(list(vector) for vector in vectors))


def _is_whole(part: slice, size: Dim) -> bool:
    """Whether a slice covers the whole axis."""
    reaches = part.stop is None or part.stop == size or at_most(size, part.stop)
    return not part.start and reaches and part.step in (None, 1)


def positions_read(node: Node) -> list[range] | None:
    """The positions that a Slice reads along each axis; None if a bound or a size is dynamic."""
    x, vectors = node.operand(0), [static_ints(node.operand(i)) for i in (1, 2, 3)]
    if not x.tensor_type.is_static or any(vector is None for vector in vectors):
        return None
    rows = zip(*(vector or () for vector in vectors), strict=True)
    return [range(*slice(*row).indices(n)) for row, n in zip(rows, known_sizes(x.shape), strict=True)]
