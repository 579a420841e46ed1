"""Slices and updates of slices."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from onnxtfl.build.rows import row
from onnxtfl.build.runtime_axes import vector_of_rank
from onnxtfl.build.sizes import (
    HUGE,
    INT32_MAX,
    as_int32,
    clamp_to_int32,
    narrow_constant,
    on_fewer_axes,
    vector_length,
)
from onnxtfl.build.stablehlo import int_list
from onnxtfl.errors import UnsupportedError
from onnxtfl.ir import ops
from onnxtfl.ir.assumptions import assume
from onnxtfl.ir.budget import check_elements
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.data import Array
from onnxtfl.ir.dims import Dim, is_open, is_static, size_or
from onnxtfl.ir.formula import Term
from onnxtfl.ir.graph import Node, Value, constant
from onnxtfl.ir.ops.slicing import positions_read
from onnxtfl.ir.reshape import as_int64, concatenated, dim_value, dim_vector, reshape, spread
from onnxtfl.ir.shapes import known_dims, normalize_axes, static_ints
from onnxtfl.ir.shown_sizes import shown_dim
from onnxtfl.ir.source_names import shown_name
from onnxtfl.ir.types import DType
from onnxtfl.rewriting.registry import (
    Form,
    append_operand,
    decompose,
    lift_onnx,
    lift_tfl,
    lower_onnx,
    lower_tfl,
    upgrade,
)

# --- ONNX Slice ------------------------------------------------------------------------------------------------------


@upgrade("Slice", since=(1,))
def _slice_1(b: Builder, node: Node) -> None:
    starts, ends, axes = (node.attributes.pop(name, None) for name in ("starts", "ends", "axes"))
    for vector in (starts, ends, axes if axes is not None else tuple(range(len(starts or ())))):
        append_operand(node, constant(np.asarray(vector, np.int64)))


@lift_onnx("Slice", since=(10, 11, 13))
def _slice(b: Builder, node: Node) -> Value:
    x, starts, ends = (node.operand(i) for i in range(3))
    axes, steps = node.optional(3), node.optional(4)
    where = list(range(_length(starts, ends, steps))) if axes is None else _places(axes, x.rank)
    bounds = ((starts, 0), (_ends(b, ends, steps), HUGE), (steps, 1))
    if where is None:
        assert axes is not None
        return b(ops.Slice, x, *(vector_of_rank(b, vector, axes, x.rank, default) for vector, default in bounds))
    bounds = ((_starts(b, x, starts, steps, where), 0), *bounds[1:])
    return b(ops.Slice, x, *(spread(b, vector, where, x.rank, default) for vector, default in bounds))


def _places(axes: Value, rank: int) -> Sequence[int] | None:
    known = static_ints(axes)
    return None if known is None else normalize_axes(known, rank)


def _may_go_back(steps: Value | None) -> bool:
    """Whether a stride may be negative."""
    known = [] if steps is None else static_ints(steps)
    return known is None or any(s < 0 for s in known)


def _starts(b: Builder, x: Value, starts: Value, steps: Value | None, axes: Sequence[int]) -> Value:
    """Return the starts of a Slice; ONNX clamps starts of negative steps to the beginning of the axis.

    -1 is inside of every axis.
    """
    if steps is None or not _may_go_back(steps):
        return starts
    given, strides = (Term(b, as_int64(b, v)) for v in (starts, steps))
    sizes = Term(b, dim_vector(b, [x.shape[axis] for axis in axes], x))
    before = (given < -1) & (strides < 0)
    return given.max(before.choose(-sizes, -INT32_MAX)).value


_THROUGH = (INT32_MAX, (1 << 63) - 1)
"""Ends that ONNX Runtime reads as the end of the slice direction, also for negative steps (measured in 1.23)."""


def _ends(b: Builder, ends: Value, steps: Value | None) -> Value:
    """Return the ends of a Slice, -HUGE for those that include the beginning of the axis."""
    if steps is None or not _may_go_back(steps):
        return ends
    given, strides = (Term(b, as_int64(b, v)) for v in (ends, steps))
    through = given.equals(_THROUGH[0]) | given.equals(_THROUGH[1])
    return ((strides < 0) & through).choose(given.constant(-HUGE), given).value


def _length(*vectors: Value | None) -> int:
    for vector in vectors:
        shape = None if vector is None else vector.tensor_type.shape
        if is_static(shape) and len(shape) == 1:
            return shape[0]
    raise UnsupportedError("the number of sliced axes has to be static", code="E-SHAPE-002")


# --- Slice in TFLite -------------------------------------------------------------------------------------------------


@lower_tfl(ops.Slice)
def _to_tfl_slice(node: Node) -> Form | None:
    """SLICE has sizes: strides have to be 1, and each size known.

    It refuses a start beyond the end, which is possible for a dynamic axis. XNNPACK has no SLICE of the rest of an
    axis; it reads the masks of STRIDED_SLICE.
    """
    starts, strides = static_ints(node.operand(1)), static_ints(node.operand(3))
    shape, rank_1_integers = node.operand(0).shape, node.operand(0).rank == 1 and node.operand(0).dtype.is_integer
    if starts is None or strides is None or any(s != 1 for s in strides) or rank_1_integers:
        return None
    begins: list[int] = []
    sizes: list[int] = []
    for d, n, start in zip(shape, node.result.shape, starts, strict=True):
        size = size_or(n, -1)
        if size < 0 or (start != 0 and not is_static((d,))):
            return None
        begins.append(slice(start, None).indices(size_or(d, 0))[0])
        sizes.append(size)
    return Form("SLICE", (node.operand(0), clamp_to_int32(begins), clamp_to_int32(sizes)))


@lower_tfl(ops.Slice)
def _to_tfl_strided_slice(node: Node) -> Form:
    """STRIDED_SLICE clamps bounds like NumPy; masks mark bounds at the ends of an axis.

    XNNPACK reads a constant end of 0 as the end of the axis, so an empty range is written differently.
    """
    strides = static_ints(node.operand(3))
    begins, begin_mask = _masked(node, 1, strides)
    ends, end_mask = _masked(node, 2, strides)
    if not isinstance(begins, Value) and not isinstance(ends, Value) and strides is not None:
        is_empty = (ends == 0) & (np.asarray(strides) > 0) & [not end_mask >> i & 1 for i in range(ends.size)]
        begins = np.where(is_empty, INT32_MAX, begins).astype(np.int32)
        begin_mask &= ~sum(1 << i for i in np.flatnonzero(is_empty).tolist())
    others = {"ellipsis_mask": 0, "new_axis_mask": 0, "shrink_axis_mask": 0}
    operands = (node.operand(0), begins, ends, narrow_constant(node.operand(3)))
    return Form("STRIDED_SLICE", operands, {"begin_mask": begin_mask, "end_mask": end_mask, **others})


def _masked(node: Node, which: int, strides: Sequence[int] | None) -> tuple[Value | Array, int]:
    """Return the bounds, and a mask of those outside of int32, which become 0."""
    known = static_ints(node.operand(which))
    if known is None or strides is None:
        return narrow_constant(node.operand(which)), 0
    bounds, mask = [], 0
    for axis, (bound, stride, size) in enumerate(zip(known, strides, node.operand(0).shape, strict=True)):
        ahead = bound >= INT32_MAX and (stride > 0) == (which == 2)
        below = bound <= -INT32_MAX and (stride < 0) == (which == 2)
        if ahead and stride > 0 and isinstance(size, int):
            bounds.append(size)
        elif ahead or below:
            mask |= 1 << axis
            bounds.append(0)
        else:
            bounds.append(bound)
    return clamp_to_int32(bounds), mask


@decompose(ops.Slice, "tfl", "operands")
def _narrow_slice(b: Builder, node: Node) -> Value | None:
    """Clamp dynamic int64 bounds before the cast to int32."""
    vectors = [node.operand(i) for i in (1, 2, 3)]
    if all(v.is_constant or v.dtype is DType.INT32 for v in vectors):
        return None
    return b(ops.Slice, node.operand(0), *(_clamped(b, v) for v in vectors))


def _clamped(b: Builder, vector: Value) -> Value:
    known = known_dims(vector)
    if vector.is_constant or vector.dtype is DType.INT32 or (known is not None and not any(map(is_open, known))):
        return as_int32(b, vector)
    upper, lower = b.scalar(INT32_MAX, vector), b.scalar(-INT32_MAX, vector)
    return b(ops.Convert, b(ops.Min, b(ops.Max, vector, lower), upper), dtype=DType.INT32)


@decompose(ops.Slice, "tfl", "axes")
def _slice_of_merged_axes(b: Builder, node: Node) -> Value | None:
    """Merge unsliced axes, for kernels with a limit on the rank."""
    x, vectors = node.operand(0), [static_ints(node.operand(i)) for i in (1, 2, 3)]
    if x.tensor_type.shape is None or None in vectors:
        return None
    rows = np.asarray(vectors, np.int64).T
    rows[[d == n and s > 0 for d, n, s in zip(x.shape, node.result.shape, rows[:, 2], strict=True)]] = 0, HUGE, 1
    return on_fewer_axes(b, node, rows, (0, HUGE, 1), lambda part, table: b(ops.Slice, part, *table.T))


@decompose(ops.Slice, "gpu", order="operands", when=lambda node: node.operand(0).is_static)
def _slice_forward(b: Builder, node: Node) -> Value | None:
    """Slice by bounds inside of the tensor, and backwards by indices: the accelerator goes forward only."""
    x, read = node.operand(0), positions_read(node)
    if read is None or not all(read):
        return None
    given = np.asarray([static_ints(node.operand(i)) for i in (1, 2, 3)], np.int64)
    bounds = [(r[0], r[-1] + 1, r.step) if r.step > 0 else (0, n, 1) for r, n in zip(read, x.shape, strict=True)]
    if np.array_equal(np.asarray(bounds, np.int64).T, given):
        return None
    x = b(ops.Slice, x, *np.asarray(bounds, np.int64).T)
    for axis, positions in enumerate(read):
        if positions.step < 0:
            x = b(ops.Gather, x, np.asarray(positions, np.int32), axis=axis)
    return x


@lower_onnx(ops.Slice)
def _to_onnx_slice(node: Node, opset: int) -> Form:
    starts, limits, strides = (node.operand(i) for i in (1, 2, 3))
    known = [static_ints(v) for v in (starts, limits, strides)]
    if known[0] is None or known[1] is None or known[2] is None:
        axes = np.arange(node.operand(0).rank)
        return Form("Slice", (node.operand(0), starts, limits, axes.astype(starts.dtype.numpy), strides))
    whole = [s == 0 and n >= INT32_MAX and k == 1 for s, n, k in zip(*known, strict=True)]
    axes = np.asarray([i for i, w in enumerate(whole) if not w] or [0], np.int64)
    vectors = [np.asarray(v, np.int64)[axes] for v in known]
    vectors[1] = np.where((vectors[2] < 0) & np.isin(vectors[1], _THROUGH), INT32_MAX - 1, vectors[1])
    steps = (vectors[2],) if (vectors[2] != 1).any() else ()
    return Form("Slice", (node.operand(0), vectors[0], vectors[1], axes, *steps))


@lift_tfl("SLICE")
def _from_tfl_slice(b: Builder, node: Node) -> Value:
    """SLICE: size -1 means the rest of the axis."""
    x, begins, sizes = (node.operand(i) for i in range(3))
    if x.rank == 0:
        return x
    ones = np.ones(x.rank, np.int64)
    starts, counts = (Term(b, as_int64(b, v)) for v in (begins, sizes))
    limits = counts.equals(-1).choose(counts.constant(HUGE), starts + counts)
    return b(ops.Slice, x, starts.value, limits.value, ones)


# --- TFLite STRIDED_SLICE --------------------------------------------------------------------------------------------


def _counted_sizes(node: Node) -> dict[int, int]:
    """Return the size of the result per entry, for limits relative to the starts (`offset`)."""
    counts, strides = static_ints(node.operand(2)), static_ints(node.operand(3))
    if counts is None or strides is None or not node.attr("offset"):
        return {}
    pairs = enumerate(zip(counts, strides, strict=True))
    return {i: _steps(count, stride) for i, (count, stride) in pairs if stride}


def _count_from_zero(b: Builder, node: Node, items: Sequence[_Item]) -> None:
    """Replace limits relative to the starts (`offset`) by absolute ones."""
    x, count, mask = node.operand(0), vector_length(node.operand(1)), node.attr("begin_mask", 0) or 0
    axes = {entry: axis for _, axis, entry in items if entry is not None and axis is not None}
    _check_counts(node, items)
    sizes = Term(b, dim_vector(b, [x.shape[axes[i]] if i in axes else 1 for i in range(count)], x))
    starts, counts, strides = (Term(b, as_int64(b, node.operand(i))) for i in (1, 2, 3))
    first = (strides < 0).choose(sizes - 1, 0)
    masked = Term(b, constant(np.asarray([bool(mask >> i & 1) for i in range(count)])))
    begins = masked.choose(first, (starts < 0).choose(starts + sizes, starts))
    node.set_operand(2, (begins + counts).value)


def _check_counts(node: Node, items: Sequence[_Item]) -> None:
    """Raise UnsupportedError if the kernel would not fill a result with relative limits (`offset`).

    It takes the size of result axis i from entry i (also for axes without an entry), but copies up to the end of the
    axis or `end_mask`, and no element for an unmasked count of 0. Source: LiteRT
    kernels/strided_slice.cc (ResizeOutputTensor), reference/strided_slice.h (EndForAxis, which reads a limit of -1 as
    the last element).
    """
    if any(kind == "whole" for kind, _, _ in items):
        message = "offset with axes without an entry, whose sizes the kernel reads out of bounds"
        raise UnsupportedError(message, hint="write an entry of begin, end and strides for each axis")
    known, ends = [static_ints(node.operand(i)) for i in (1, 2, 3)], node.attr("end_mask", 0) or 0
    masked = [kind == "slice" and bool(ends >> i & 1) for i, (kind, _, _) in enumerate(items)]
    counts = known[1] or ()
    if any(kind == "slice" and n == 0 and not m for (kind, _, _), n, m in zip(items, counts, masked, strict=False)):
        return
    for i, (kind, axis, _) in enumerate(items):
        start, count, stride = (None if v is None else v[i] for v in known)
        size = 1 if axis is None else node.operand(0).shape[axis]
        if kind == "new":
            start, stride = 0, 1
        elif (node.attr("begin_mask", 0) or 0) >> i & 1:
            start = 0 if stride is None or stride > 0 else size - 1 if isinstance(size, int) else None
        if masked[i] and not _is_rest(start, count, stride, size):
            message = f"end_mask {ends} with offset: the kernel ignores it for the size of the result"
            raise UnsupportedError(message, hint=f"clear its bit {i}")
        if kind != "shrink" and not masked[i] and not _is_inside(start, count, stride, size):
            message = f"offset with {count} elements of axis {i} of {shown_dim(size)}"
            message += f" from {'any' if start is None else start} on: the kernel leaves what is beyond unwritten"
            raise UnsupportedError(message, hint="use a count within the axis")
        if kind != "shrink" and not is_static((start, count, size)):
            assume(f"the counts of {shown_name(node)} are within the axes", is_minor=True)


def _is_rest(start: int | None, count: int | None, stride: int | None, size: Dim) -> bool:
    """Whether the count covers the rest of the axis from the start, as far as known."""
    if not stride or not is_static(known := (start, count, size)):
        return False
    start, count, size = known
    lowest, limit = (0, size) if stride > 0 else (-1, -1)
    first = min(max(start + size if start < 0 else start, lowest), size + lowest)
    return len(range(first, limit, stride)) == _steps(count, stride)


def _steps(count: int, stride: int) -> int:
    """Return the number of steps over `count` elements."""
    return max(-(-count // stride), 0)


def _is_inside(start: int | None, count: int | None, stride: int | None, size: Dim) -> bool:
    """Whether start + count is within the axis, as far as known."""
    if not isinstance(size, int) or not count or (stride is not None and (count < 0) != (stride < 0)):
        return True
    if start is None:
        return abs(count) <= size
    begin = start + size if start < 0 else start
    return 0 <= begin < size and (begin + count <= size if count > 0 else begin + count >= 0)


@lift_tfl("STRIDED_SLICE")
def _from_tfl_strided_slice(b: Builder, node: Node) -> Value:
    """Slice the axes, then reshape: remove the shrunk axes and insert new ones."""
    x = node.operand(0)
    items = _items(node, x.rank, _length(*(node.operand(i) for i in (1, 2, 3))))
    counted = _counted_sizes(node)
    if node.attr("offset"):
        _count_from_zero(b, node, items)
    kept = [item for item in items if item[1] is not None]
    vectors = [_bounds(b, node, kept, which) for which in range(3)]
    sliced = b(ops.Slice, x, *vectors)
    sizes = iter(sliced.shape)
    shape: list[Dim] = []
    for i, (kind, axis, _) in enumerate(items):
        size: Dim = 1 if axis is None else next(sizes)
        if kind != "shrink":
            shape.append(counted.get(i, size))
    return reshape(b, sliced, shape)


_Item = tuple[str, "int | None", "int | None"]


def _items(node: Node, rank: int, count: int) -> list[_Item]:
    """Return the meaning of each entry: ("slice" | "shrink" | "whole" | "new", axis of the operand, entry).

    An ellipsis is at least one axis, and entries beyond the axes are ignored (LiteRT kernels/strided_slice.cc). For
    a bit of `new_axis_mask` without an entry the kernel adds no axis and reads only a part of `x`.
    """
    ellipsis, new, shrink = (node.attr(f"{n}_mask", 0) or 0 for n in ("ellipsis", "new_axis", "shrink_axis"))
    new &= ~ellipsis
    if new >> count & ((1 << rank) - 1):
        message = f"new_axis_mask {new} has bits for more than the {count} entries of begin, end and strides"
        raise UnsupportedError(message, hint=f"clear its bits from {count} on")
    items: list[_Item] = []
    axis, most = 0, rank + sum(new >> i & 1 for i in range(count))
    for entry in range(count):
        if len(items) >= most:
            break
        if ellipsis >> entry & 1:
            later = sum(not (new >> i & 1) for i in range(entry + 1, count))
            end = min(max(axis + 1, rank - later), rank)
            items += [("whole", a, None) for a in range(axis, end)]
            axis = end
        elif new >> entry & 1:
            items.append(("new", None, None))
        else:
            items.append(("shrink" if shrink >> entry & 1 else "slice", axis, entry))
            axis += 1
    return items + [("whole", a, None) for a in range(axis, rank)]


def _bounds(b: Builder, node: Node, items: Sequence[_Item], which: int) -> Value:
    """Return the starts (0), limits (1) or strides (2) for all axes of the operand."""
    mask = (node.attr("begin_mask", 0), node.attr("end_mask", 0), 0)[which] or 0
    entries: list[Term] = []
    for kind, axis, entry in items:
        if entry is None or axis is None:
            entries.append(_number(b, (0, HUGE, 1)[which]))
            continue
        begins_anywhere = (node.attr("begin_mask", 0) or 0) >> entry & 1
        if kind == "shrink" and begins_anywhere:  # LiteRT reads beyond the axis for a negative stride
            entries.append(_number(b, (0, 1, 1)[which]))
        elif kind == "shrink" and which:
            entries.append(_number(b, 1) if which == 2 else _one_after(_at(b, node, 0, entry)))
        else:
            masked = mask >> entry & 1 and kind != "shrink"
            bound = (_end_of_axis if masked else _entry)(b, node, which, entry)
            entries.append(bound if which != 1 or begins_anywhere else _nothing_before(b, node, axis, entry, bound))
    if not entries:  # of a scalar
        return constant(np.zeros(0, np.int64))
    return entries[0].apply(ops.Concatenate, *entries[1:], axis=0).value


def _number(b: Builder, number: int) -> Term:
    return Term(b, constant(np.asarray([number], np.int64)))


def _at(b: Builder, node: Node, which: int, entry: int) -> Term:
    """Return an entry of the starts (0), limits (1) or strides (2) as int64 [1]."""
    return Term(b, as_int64(b, node.operand(which + 1))).apply(ops.Slice, [entry], [entry + 1], [1])


def _end_of_axis(b: Builder, node: Node, which: int, entry: int) -> Term:
    """Return the bound for a masked entry: the end of the axis at which steps start, or the other."""
    forward, backward = (0, HUGE)[which], (HUGE, -HUGE)[which]
    stride = _at(b, node, 2, entry)
    return (stride > 0).choose(stride.constant(forward), backward)


def _entry(b: Builder, node: Node, which: int, entry: int) -> Term:
    """Return an entry of the bounds; a limit that ONNX Runtime would read differently is adjusted."""
    strides, bound = static_ints(node.operand(3)), _at(b, node, which, entry)
    goes_forward = strides is not None and strides[entry] > 0
    return bound if which != 1 or goes_forward else bound.min(INT32_MAX - 1)


def _nothing_before(b: Builder, node: Node, axis: int, entry: int, limit: Term) -> Term:
    """Return a `limit` for an empty slice if negative steps start before the axis; ONNX Runtime would start at 0.

    The last position, -1, is before an empty axis only, of which every slice is empty.
    """
    known, strides = static_ints(node.operand(1)), static_ints(node.operand(3))
    if (known is not None and known[entry] >= -1) or (strides is not None and strides[entry] > 0):
        return limit
    length = Term(b, dim_value(b, node.operand(0).shape[axis], node.operand(0)))
    before = ((_at(b, node, 0, entry) + length) < 0) & (_at(b, node, 2, entry) < 0)
    return before.choose(limit.constant(INT32_MAX - 1), limit)


def _one_after(start: Term) -> Term:
    """Return the limit for the single element at `start`."""
    return start.equals(-1).choose(start.constant(HUGE), start + 1)


row(ops.DynamicUpdateSlice, tfl="DYNAMIC_UPDATE_SLICE", integers=(2,))


def _update_by_parts(b: Builder, x: Value, update: Value, starts: Value, axes: Sequence[int]) -> Value:
    """Concatenate the parts before and after `update` along the first axis, recursively between them."""
    if not axes:
        return update
    axis, size = axes[0], dim_value(b, update.shape[axes[0]], update)
    room = b(ops.Sub, dim_value(b, x.shape[axis], x), size)
    begin = b(ops.Max, b(ops.Min, b(ops.Gather, starts, [axis], axis=0), room), b.scalar(0, DType.INT64))
    end = b(ops.Add, begin, size)

    def part(start: Value | Sequence[int], stop: Value | Sequence[int]) -> Value:
        return b(ops.RealDynamicSlice, x, start, stop, [1], [axis])

    between = _update_by_parts(b, part(begin, end), update, starts, axes[1:])
    return b(ops.Concatenate, part([0], begin), between, part(end, [INT32_MAX]), axis=axis)


@decompose(ops.DynamicUpdateSlice)
def _update_by_scattering(b: Builder, node: Node) -> Value:
    """Scatter the update to its coordinates, with starts clamped so that it fits."""
    x, update, starts = (node.operand(i) for i in range(3))
    if not is_static(update.shape):
        differing = [i for i, (d, n) in enumerate(zip(x.shape, update.shape, strict=True)) if d != n]
        return _update_by_parts(b, x, update, as_int64(b, starts), differing)
    sizes = [int(d) for d in update.shape]
    depth = max((i + 1 for i, (d, n) in enumerate(zip(x.shape, sizes, strict=True)) if d != n), default=0)
    if depth == 0:
        return update
    room = b(ops.Sub, dim_vector(b, x.shape[:depth], x), np.asarray(sizes[:depth], np.int64))
    wanted = b(ops.Slice, as_int64(b, starts), [0], [depth], [1])
    begins = b(ops.Max, b(ops.Min, wanted, room), b.scalar(0, DType.INT64))
    check_elements(depth * math.prod(sizes[:depth]), "the positions of the update")
    grid = np.moveaxis(np.indices(sizes[:depth]), 0, -1)
    return b(ops.ScatterND, x, b(ops.Add, constant(grid), begins), update, kind="none", unique_indices=True)


# --- StableHLO -------------------------------------------------------------------------------------------------------


@lift_tfl("STABLEHLO_SLICE")
def _stablehlo_slice(b: Builder, node: Node) -> Value:
    bounds = [int_list(node, name) for name in ("start_indices", "limit_indices", "strides")]
    return b(ops.Slice, node.operand(0), *bounds) if node.operand(0).rank else node.operand(0)


@lift_tfl("STABLEHLO_DYNAMIC_SLICE")
def _stablehlo_dynamic_slice(b: Builder, node: Node) -> Value:
    """A part of `slice_sizes`; the starts are clamped so that it is inside."""
    x, sizes = node.operand(0), int_list(node, "slice_sizes")
    return b(ops.DynamicSlice, x, _start_vector(b, node, 1), slice_sizes=tuple(sizes)) if x.rank else x


@lift_tfl("STABLEHLO_DYNAMIC_UPDATE_SLICE")
def _stablehlo_dynamic_update_slice(b: Builder, node: Node) -> Value:
    x, update = node.operand(0), node.operand(1)
    return b(ops.DynamicUpdateSlice, x, update, _start_vector(b, node, 2)) if x.rank else update


def _start_vector(b: Builder, node: Node, first: int) -> Value:
    """The start indices as an int64 vector: the operands from `first` are scalars, or one is a vector."""
    parts = [Term(b, node.operand(i)) for i in range(first, len(node.operands))]
    parts = [part.min((1 << 63) - 1) if part.dtype is DType.UINT64 else part for part in parts]
    sizes = [part.value.shape or (1,) for part in parts]
    flat = [reshape(b, as_int64(b, part.value), size) for part, size in zip(parts, sizes, strict=True)]
    return concatenated(b, flat, 0)
