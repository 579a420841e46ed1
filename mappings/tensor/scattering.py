"""Scatter ops: writes of elements by index."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from functools import partial

import numpy as np

from onnxtfl.build.indices import flat_positions, nonnegative, resolved_rows, strides_of
from onnxtfl.build.sizes import as_int32, int32_operands, narrow_constant, slice_axes, widen_constant
from onnxtfl.build.stablehlo import body_as_it_is, combining_op, int_list
from onnxtfl.errors import UnsupportedError
from onnxtfl.ir import ops
from onnxtfl.ir.budget import check_elements
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.computations import Computation, joining, scattered
from onnxtfl.ir.data import Array
from onnxtfl.ir.dimension_numbers import Starts, scattered_windows
from onnxtfl.ir.dims import Dim, exceeds, is_static, known_size, product
from onnxtfl.ir.formula import Term
from onnxtfl.ir.graph import Graph, Node, Value, constant
from onnxtfl.ir.op import Op
from onnxtfl.ir.quantized import real_of_stored_zero
from onnxtfl.ir.reshape import as_int64, concatenated, dim_value, dim_vector, iota, reshape, unsqueezed
from onnxtfl.ir.shapes import normalize_axis, static_ints
from onnxtfl.ir.types import DType
from onnxtfl.rewriting.registry import Form, decompose, lift_onnx, lift_tfl, lower_onnx, lower_tfl, regions_of

MOST_PAIRS = 1 << 24
"""The most elements for which every update is compared with every other."""


# --- scattering -------------------------------------------------------------------------------------------------------


def _joins_few(node: Node, most: int) -> bool:
    """Whether updates are combined with elements, for a known number of indexed axes, and few enough to compare all."""
    depth = node.operand(1).shape[-1]
    if node.operands[0] is None or node.attr("kind") == "none" or not isinstance(depth, int):
        return False
    count, inner = product(node.operand(1).shape[:-1]), product(node.operand(0).shape[depth:])
    numbers = count * count * inner
    return not exceeds(numbers, most)


@decompose(ops.ScatterND, "onnx", when=lambda node: _joins_few(node, MOST_PAIRS))
def _joined_first(b: Builder, node: Node) -> Value:
    """Combine each update with all others at its position and the old element, so that their order does not matter."""
    x, indices, updates = (node.operand(i) for i in range(3))
    kind, depth = node.attr("kind"), indices.size(-1)
    count, inner = product(indices.shape[:-1]), product(x.shape[depth:])
    rows = reshape(b, indices, (count, depth), indices)
    is_equal = b(ops.Compare, unsqueezed(b, rows, [1]), unsqueezed(b, rows, [0]), comparison_direction="EQ")
    same = b(ops.Reduce, is_equal, [2], kind="all", keepdims=False)
    joined = _joined(b, reshape(b, updates, (count, inner), updates), same, kind)
    joined = reshape(b, joined, updates.shape, updates)
    return b(ops.ScatterND, x, indices, b(_join(kind), b(ops.GatherND, x, indices), joined), kind="none")


_REDUCTIONS = {"add": "sum", "mul": "prod"}


def _join(kind: str) -> type[Op]:
    return joining(_REDUCTIONS.get(kind, kind))


def _joined(b: Builder, updates: Value, same: Value, kind: str) -> Value:
    """Return for each of the `updates` [n, inner] the reduction of all at the same position (`same` [n, n])."""
    blank = b.scalar(kind == "mul", updates) if kind in _REDUCTIONS else unsqueezed(b, updates, [1])
    others = b(ops.Select, unsqueezed(b, same, [2]), unsqueezed(b, updates, [0]), blank)
    return b(ops.Reduce, others, [1], kind=_REDUCTIONS.get(kind, kind), keepdims=False)


MAX_CONSTANT_ROWS = 1 << 20
"""The most positions that become a constant index."""


# --- ONNX ------------------------------------------------------------------------------------------------------------


@lift_onnx("Scatter", since=(9, 11))
@lift_onnx("ScatterElements", since=(11, 13, 16, 18))
def _scatter_elements(b: Builder, node: Node) -> Value:
    x, indices, updates = (node.operand(i) for i in range(3))
    rank = x.tensor_type.rank if x.tensor_type.rank is not None else indices.rank
    axis = normalize_axis(node.attr("axis", 0), rank)
    places = nonnegative(b, indices, x.shape[axis], x)
    unique = indices.shape[axis] in (0, 1) or _selected(indices) == (ops.TopK, axis)
    kind = node.attr("reduction", "none")
    return b(ops.ScatterElements, x, places, updates, axis=axis, kind=kind, unique_indices=unique)


@lift_onnx("ScatterND", since=(11, 13, 16, 18))
def _scatter_nd(b: Builder, node: Node) -> Value:
    x, indices, updates = (node.operand(i) for i in range(3))
    unique = product(indices.shape[:-1]) in (0, 1) or _selected(indices)[0] is ops.NonZero
    places = resolved_rows(b, x, indices, 0)
    return b(ops.ScatterND, x, places, updates, kind=node.attr("reduction", "none"), unique_indices=unique)


def _selected(indices: Value) -> tuple[type[Op] | None, int | None]:
    """Return the op that produced the (distinct) positions in `indices`, and their axis: TopK or NonZero."""
    source, turned = indices, False
    while source.producer is not None and source.producer.op in (ops.Convert, ops.Copy, ops.Transpose):
        if source.producer.op is ops.Transpose:
            if turned or source.rank != 2:
                return None, None
            turned = True
        source = source.producer.operand(0)
    node = source.producer
    if node is not None and node.op is ops.NonZero and turned:
        return ops.NonZero, None
    if node is not None and node.op is ops.TopK and not turned and source is node.results[1]:
        return ops.TopK, normalize_axis(node.attr("axis"), source.rank)
    return None, None


@lift_onnx("TensorScatter", since=(24,))
def _tensor_scatter(b: Builder, node: Node) -> Value:
    """Write `update` into a cache along `axis` from write_indices[batch]; a circular cache wraps around."""
    cache, update, begins = node.operand(0), node.operand(1), node.optional(2)
    axis = normalize_axis(node.attr("axis", -2), cache.rank)
    length = update.shape[axis]
    steps = iota(b, dim_value(b, length, update))
    if begins is None:
        begins = b(ops.BroadcastTo, b.scalar(0, DType.INT64), dim_vector(b, cache.shape[:1], cache))
    places = b(ops.Add, unsqueezed(b, as_int64(b, begins), [1]), steps)
    if node.attr("mode", "linear") == "circular":
        places = b(ops.FloorMod, places, dim_value(b, cache.shape[axis], cache))
    shape = [d if i in (0, axis) else 1 for i, d in enumerate(update.shape)]
    places = b(ops.BroadcastTo, reshape(b, places, shape, update), dim_vector(b, update.shape, update))
    return b(ops.ScatterElements, cache, places, update, axis=axis, kind="none", unique_indices=True)


@lower_onnx(ops.ScatterND)
@lower_onnx(ops.ScatterElements)
def _to_onnx(node: Node, opset: int) -> Form | None:
    kind = node.attr("kind")
    if node.operands[0] is None or opset < {"none": 13, "add": 16, "mul": 16}.get(kind, 18) or _combines_halves(node):
        return None
    attributes = {"axis": node.attr("axis")} if node.op is ops.ScatterElements else {}
    reduction = {} if kind == "none" else {"reduction": kind}
    name = "ScatterElements" if attributes else "ScatterND"
    return Form(name, (node.operand(0), widen_constant(node.operand(1)), node.operand(2)), attributes | reduction)


def _combines_halves(node: Node) -> bool:
    """Whether 16-bit floats are combined, which ONNX Runtime has no CPU kernel for."""
    return node.attr("kind") != "none" and node.operand(2).dtype in (DType.FLOAT16, DType.BFLOAT16)


@decompose(ops.ScatterND, "onnx", "elements", when=_combines_halves)
@decompose(ops.ScatterElements, "onnx", "elements", when=_combines_halves)
def _combined_in_float32(b: Builder, node: Node) -> Value:
    wide = [v and b(ops.Convert, v, dtype=DType.FLOAT32) for v in (node.operands[0], node.operand(2))]
    operands = (wide[0], node.operand(1), wide[1], *node.operands[3:])
    return b(ops.Convert, b(node.op, *operands, **node.attributes), dtype=node.result.dtype)


@decompose(ops.ScatterND, "onnx", "operands")
def _wide_indices(b: Builder, node: Node) -> Value | None:
    """ScatterND for ONNX: zeros as a tensor, int64 indices."""
    indices, updates, shape = node.operand(1), node.operand(2), node.optional(3)
    x = node.operands[0]
    if x is None and shape is not None:
        x = b(ops.BroadcastTo, b.scalar(0, updates), shape)
    elif indices.dtype is DType.INT64 or indices.is_constant:
        return None
    return b(ops.ScatterND, x, as_int64(b, indices), updates, **node.attributes)


# --- TFLite ----------------------------------------------------------------------------------------------------------


@lower_tfl(ops.ScatterND)
def _to_tfl_scatter_nd(node: Node) -> Form | None:
    """SCATTER_ND adds updates to zeros."""
    indices, updates, shape = node.operand(1), node.operand(2), node.optional(3)
    if node.operands[0] is not None or shape is None or node.attr("kind") != "add":
        return None
    return Form("SCATTER_ND", (narrow_constant(indices), updates, narrow_constant(shape)))


decompose(ops.ScatterND, "tfl", "operands")(int32_operands(1, 3))


@decompose(ops.ScatterND)
def _scatter_onto_given_zeros(b: Builder, node: Node) -> Value | None:
    """Create the zeros explicitly, if SCATTER_ND cannot."""
    shape = node.optional(3)
    if node.operands[0] is not None or shape is None:
        return None
    if node.attr("kind") == "add" and node.operand(2).dtype not in _NARROW:
        return None
    zeros = b(ops.BroadcastTo, b.scalar(0, node.operand(2)), shape)
    return b(ops.ScatterND, zeros, node.operand(1), node.operand(2), kind=node.attr("kind"))


@decompose(ops.ScatterND, "tfl", "axes")
def _sums_by_segments(b: Builder, node: Node) -> Value | None:
    """Compute SCATTER_ND onto zeros without that kernel: segment sums of the rows by position."""
    indices, updates, sizes = node.operand(1), node.operand(2), static_ints(node.optional(3))
    if node.operands[0] is not None or node.attr("kind") != "add" or sizes is None or updates.dtype in _NARROW:
        return None
    depth = indices.size(-1)
    rows, places = product(indices.shape[:-1]), flat_positions(b, indices, sizes[:depth], indices)
    count, ids = constant(np.asarray(math.prod(sizes[:depth]), np.int32)), reshape(b, places, (rows,), indices)
    flat = reshape(b, updates, (rows, *sizes[depth:]), updates)
    return reshape(b, b(ops.SegmentReduce, flat, as_int32(b, ids), count, kind="sum"), sizes)


def _writes_known_rows(node: Node) -> bool:
    x, indices = node.operands[0], node.operand(1)
    if x is None or node.attr("kind") != "none" or not indices.is_constant or not is_static(x.shape):
        return False
    return 0 not in indices.shape and known_size(product(x.shape[: indices.size(-1)])) <= MAX_CONSTANT_ROWS


@decompose(ops.ScatterND, "tfl", when=_writes_known_rows, benefit=3)
def _scatter_by_gathering(b: Builder, node: Node) -> Value:
    """For constant indices, gather each row of the result from the operand or the updates."""
    x, indices, updates = (node.operand(i) for i in range(3))
    depth = indices.size(-1)
    sizes, inner = [int(d) for d in x.shape[:depth]], x.shape[depth:]
    rows = math.prod(sizes)
    flat = (indices.numpy().astype(np.int64) * strides_of(sizes)).sum(-1).reshape(-1)
    sources = np.arange(rows)
    sources[flat] = rows + np.arange(len(flat))
    parts = [reshape(b, x, (rows, *inner)), reshape(b, updates, (len(flat), *inner))]
    return reshape(b, _picked(b, parts, sources), x.shape)


def _picked(b: Builder, parts: Sequence[Value], sources: Array) -> Value:
    """Return the rows `sources` of two concatenated tensors, as slices if there are few contiguous ranges."""
    starts = [0, *(np.flatnonzero(np.diff(sources) != 1) + 1), len(sources)]
    if len(starts) > 10:
        return b(ops.Gather, b(ops.Concatenate, *parts, axis=0), sources, axis=0)
    first, pieces = int(parts[0].shape[0]), []
    for start, stop in itertools.pairwise(starts):
        which = int(sources[start] >= first)
        begin = int(sources[start]) - which * first
        pieces.append(slice_axes(b, parts[which], {0: slice(begin, begin + int(stop - start))}))
    return concatenated(b, pieces, 0)


def _has_kinds(node: Node, *kinds: str) -> bool:
    """Whether `kind` is one of these and the kernels have the dtype; the order of updates does not matter."""
    x = node.operands[0]
    return x is not None and x.dtype not in _NARROW and node.attr("kind") in kinds and not _has_an_order(node)


@decompose(ops.ScatterND, "tfl", when=lambda node: _has_kinds(node, "add", "none"))
def _scatter_by_adding(b: Builder, node: Node) -> Value:
    """Add updates by SCATTER_ND, unless the node is SCATTER_ND already."""
    return _scatter_onto_zeros(b, node.operand(0), node.operand(1), node.operand(2), node.attr("kind"))


def _scatter_onto_zeros(b: Builder, x: Value, indices: Value, updates: Value, kind: str) -> Value:
    """add: x + SCATTER_ND(updates); none: Select(written, SCATTER_ND(updates), x)."""
    shape = dim_vector(b, x.shape, x)
    if kind == "add":
        return b(ops.Add, x, b(ops.ScatterND, None, indices, updates, shape, kind="add"))
    written = b(ops.ScatterND, None, indices, updates, shape, kind="add")
    return b(ops.Select, _touched(b, x, indices), written, x)


def _has_an_order(node: Node) -> bool:
    return node.operands[0] is not None and node.attr("kind") == "none" and not node.attr("unique_indices")


@decompose(ops.ScatterND, "tfl", when=_has_an_order, benefit=2)
def _last_written(b: Builder, node: Node) -> Value:
    """kind none with possibly equal positions: the last update is written.

    Each row of the result is gathered: its last update (updates are numbered after the rows), else the old row.
    """
    x, indices, updates = (node.operand(i) for i in range(3))
    depth, count = indices.size(-1), product(indices.shape[:-1])
    places, inner = product(x.shape[:depth]), x.shape[depth:]
    ids = _flat_ids(b, x, indices)
    news = reshape(b, updates, (count, *inner), indices, x)
    if _few_pairs(x, ids, 0, places):
        return _last_of_pairs(b, node)
    rows = reshape(b, as_int32(b, dim_value(b, places, x)), (1,))
    numbers = b(ops.Add, iota(b, as_int32(b, dim_value(b, count, indices))), rows)
    last = b(ops.SegmentReduce, numbers, ids, reshape(b, rows, ()), kind="max")
    sources = b(ops.Max, last, iota(b, rows))
    both = b(ops.Concatenate, reshape(b, x, (places, *inner), x), news, axis=0)
    return reshape(b, b(ops.Gather, both, sources, axis=0), x.shape, x)


def _has_an_order_of_few(node: Node) -> bool:
    """Whether updates with an order are known to be few enough to compare all."""
    x, indices = node.operands[0], node.operand(1)
    if x is None or not _has_an_order(node) or x.dtype in _NARROW or not is_static((*indices.shape, *x.shape)):
        return False
    return math.prod(int(d) for d in indices.shape[:-1]) ** 2 <= MOST_PAIRS


@decompose(ops.ScatterND, "gpu", when=_has_an_order_of_few, benefit=2)
def _last_written_of_few(b: Builder, node: Node) -> Value:
    return _last_of_pairs(b, node)


def _flat_ids(b: Builder, x: Value, indices: Value) -> Value:
    """The position that each index vector has among the merged indexed axes of `x`, as an int32 vector."""
    places = flat_positions(b, indices, x.shape[: indices.size(-1)], x)
    return as_int32(b, reshape(b, places, (product(indices.shape[:-1]),), indices))


def _last_of_pairs(b: Builder, node: Node) -> Value:
    """Scatter onto zeros without the updates that a later one overwrites."""
    x, indices, updates = (node.operand(i) for i in range(3))
    depth, count = indices.size(-1), product(indices.shape[:-1])
    ids = _flat_ids(b, x, indices)
    kept = _without_earlier(b, ids, reshape(b, updates, (count, *x.shape[depth:]), indices, x), 0)
    return _scatter_onto_zeros(b, x, indices, reshape(b, kept, updates.shape), "none")


def _few_pairs(x: Value, ids: Value, axis: int, places: Dim) -> bool:
    """Whether comparing all pairs of updates along `axis` is faster than UNSORTED_SEGMENT_MAX and GATHER.

    These take four times as long per position as a comparison. False if SCATTER_ND lacks the dtype.
    """
    if x.dtype not in (DType.FLOAT32, DType.INT32, DType.INT64) or not is_static((*ids.shape, places)):
        return False
    pairs = math.prod(int(d) for d in ids.shape) * ids.size(axis)
    return 4 * pairs <= known_size(places)


def _without_earlier(b: Builder, ids: Value, updates: Value, axis: int) -> Value:
    """Set those of `updates` [*ids, ...] to 0 that a later one along `axis` at the same position overwrites."""
    count, inner = ids.size(axis), ids.rank - axis - 1
    same = Term(b, unsqueezed(b, ids, [axis + 1])).equals(Term(b, unsqueezed(b, ids, [axis])))
    order = np.triu(np.ones((count, count), np.bool_), 1).reshape(count, count, *(1,) * inner)
    replaced = (same & Term(b, constant(order))).reduce("any", [axis + 1], keepdims=False).value
    blocks = (1,) * (updates.rank - ids.rank)
    return b(ops.Select, reshape(b, replaced, (*ids.shape, *blocks)), b.scalar(0, updates), updates)


_NARROW = (DType.BOOL, DType.INT8, DType.UINT8, DType.INT16, DType.UINT16)


def _is_narrow(node: Node) -> bool:
    return node.operands[0] is not None and node.result.dtype in _NARROW


@decompose(ops.ScatterND, "tfl", when=_is_narrow, benefit=1)
def _widened(b: Builder, node: Node) -> Value:
    """Compute in int32; for bools, add is max and mul is min."""
    x, indices, updates = (node.operand(i) for i in range(3))
    kind = node.attr("kind")
    if x.dtype is DType.BOOL:
        kind = {"add": "max", "mul": "min"}.get(kind, kind)
    wide = [b(ops.Convert, v, dtype=DType.INT32) for v in (x, updates)]
    return b(ops.Convert, b(ops.ScatterND, wide[0], indices, wide[1], kind=kind), dtype=x.dtype)


def _touched(b: Builder, x: Value, rows: Value) -> Value:
    """Return whether each position is written, as bools that broadcast to `x`."""
    depth = rows.size(-1)
    ones = b(ops.BroadcastTo, b.scalar(1, DType.INT32), dim_vector(b, rows.shape[:-1], rows))
    counts = b(ops.ScatterND, None, rows, ones, dim_vector(b, x.shape[:depth], x), kind="add")
    hit = b(ops.Compare, counts, b.scalar(0, counts), comparison_direction="GT")
    return reshape(b, hit, (*x.shape[:depth], *(1,) * (x.rank - depth)), x)


@decompose(ops.ScatterND, "tfl", when=lambda node: _has_kinds(node, "mul", "max", "min"))
def _scatter_by_segments(b: Builder, node: Node) -> Value | None:
    """mul, max, min: reduce the updates at each position as a segment, then combine with the operand."""
    x, indices, updates = (node.operand(i) for i in range(3))
    kind, depth = node.attr("kind"), indices.size(-1)
    if x.dtype not in _SEGMENTED:
        return _scatter_by_pairs(b, node)
    sizes, inner, rows = x.shape[:depth], x.shape[depth:], product(indices.shape[:-1])
    ids = _flat_ids(b, x, indices)
    flat = reshape(b, updates, (rows, *inner), indices)
    count = reshape(b, dim_value(b, product(sizes), x), ())
    joined = b(ops.SegmentReduce, flat, ids, count, kind=_REDUCTIONS.get(kind, kind))
    joined = reshape(b, joined, x.shape, x)
    joined = b(_join(kind), x, joined)
    return joined if kind == "mul" else b(ops.Select, _touched(b, x, indices), joined, x)


_SEGMENTED = (DType.FLOAT16, DType.FLOAT32, DType.INT32)
MAX_PAIRS = 1 << 22
"""The most elements of a comparison of all pairs of updates."""


def _scatter_by_pairs(b: Builder, node: Node) -> Value | None:
    """For dtypes without segment kernels: combine each update with all others at its position, then write the first."""
    x, indices, updates = (node.operand(i) for i in range(3))
    kind, depth = node.attr("kind"), indices.size(-1)
    count, inner = product(indices.shape[:-1]), product(x.shape[depth:])
    if exceeds(count * count * inner, MAX_PAIRS):
        return None
    ids = _flat_ids(b, x, indices)
    same = b(ops.Compare, unsqueezed(b, ids, [1]), unsqueezed(b, ids, [0]), comparison_direction="EQ")
    flat = reshape(b, updates, (count, inner), indices, x)
    joined = _joined(b, flat, same, kind)
    written = b(ops.Select, unsqueezed(b, _first_of(b, same, count, indices), [1]), joined, b.scalar(0, flat))
    rows, shape = reshape(b, indices, (count, depth), indices), dim_vector(b, x.shape, x)
    blocks = reshape(b, written, (count, *x.shape[depth:]), indices, x)
    full = b(ops.ScatterND, None, rows, blocks, shape, kind="add")
    return b(ops.Select, _touched(b, x, rows), b(_join(kind), x, full), x)


def _first_of(b: Builder, same: Value, count: Dim, indices: Value) -> Value:
    """Return for each update whether no earlier one is the same (`same` [count, count]; count may be 0)."""
    if isinstance(count, int):
        check_elements(count, "the numbers of the updates")
    numbers = iota(b, as_int32(b, dim_value(b, count, indices)))
    before = Term(b, unsqueezed(b, numbers, [0])) < Term(b, unsqueezed(b, numbers, [1]))
    earlier = (Term(b, same) & before).to(DType.INT32).reduce("sum", [1], keepdims=False)
    return earlier.equals(0).value


@decompose(ops.ScatterElements, "tfl")
def _scatter_at_coordinates(b: Builder, node: Node) -> Value:
    """ScatterND of single elements into the flattened operand."""
    x, indices, updates = (node.operand(i) for i in range(3))
    axis, kind, count = normalize_axis(node.attr("axis"), x.rank), node.attr("kind"), product(indices.shape)
    if not is_static(x.shape[1:]):
        return _scatter_at_full_coordinates(b, node)
    strides, total = strides_of(x.shape), product(x.shape)
    if indices.is_constant:
        grid = list(np.indices([int(d) for d in indices.shape], sparse=True))
        grid[axis] = indices.numpy().astype(np.int64)
        flat = sum(g * s for g, s in zip(grid, strides, strict=True))
        rows: Value = constant(np.asarray(flat).reshape(-1, 1))
    else:
        rows = reshape(b, _flat_places(b, as_int32(b, indices), axis, strides), (count, 1), indices)
    flat_x, unique = reshape(b, x, (total,)), node.attr("unique_indices")
    if kind == "none" and not (unique or indices.is_constant) and _few_pairs(x, indices, axis, total):
        kept = reshape(b, _without_earlier(b, as_int32(b, indices), updates, axis), (count,))
        return reshape(b, _scatter_onto_zeros(b, flat_x, rows, kept, kind), x.shape)
    flat_updates = reshape(b, updates, (count,))
    return reshape(b, b(ops.ScatterND, flat_x, rows, flat_updates, kind=kind, unique_indices=unique), x.shape, x)


def _scatter_at_full_coordinates(b: Builder, node: Node) -> Value:
    """ScatterND of single elements, with full coordinates."""
    x, indices, updates = (node.operand(i) for i in range(3))
    axis, columns = normalize_axis(node.attr("axis"), x.rank), []
    for i in range(x.rank):
        column = as_int32(b, indices)
        if i != axis:
            steps = _steps(b, indices, i)
            column = b(ops.BroadcastTo, steps, dim_vector(b, indices.shape, indices))
        columns.append(unsqueezed(b, column, [-1]))
    flags = {name: node.attr(name) for name in ("kind", "unique_indices")}
    return b(ops.ScatterND, x, b(ops.Concatenate, *columns, axis=x.rank), updates, **flags)


def _steps(b: Builder, like: Value, axis: int) -> Value:
    """Return int32 0, 1, ... along one axis, with size 1 along the others."""
    steps = iota(b, as_int32(b, dim_value(b, like.shape[axis], like)))
    return reshape(b, steps, [steps.shape[0] if k == axis else 1 for k in range(like.rank)])


def _flat_places(b: Builder, indices: Value, axis: int, strides: Array) -> Value:
    """Return for each element of `indices` the position in the flattened operand that it writes."""
    places = indices
    if strides[axis] != 1:
        places = b(ops.Mul, places, b.scalar(int(strides[axis]), indices))
    if is_static(indices.shape):
        check_elements(math.prod(int(d) for d in indices.shape), "the positions of the updates")
        grid = np.indices([int(d) for d in indices.shape], sparse=True)
        base = sum(
            (g * s for i, (g, s) in enumerate(zip(grid, strides, strict=True)) if i != axis), np.zeros((), np.int64)
        )
        return b(ops.Add, places, constant(np.asarray(base, indices.dtype.numpy))) if np.any(base) else places
    for i, stride in enumerate(strides):
        if i != axis and indices.shape[i] != 1:
            places = b(ops.Add, places, b(ops.Mul, _steps(b, indices, i), b.scalar(int(stride), indices)))
    return places


@lift_tfl("SCATTER_ND")
def _from_tfl_scatter_nd(b: Builder, node: Node) -> Value:
    """The kernel adds stored integers to a stored 0, which represents -scale * zero point."""
    indices, updates, shape = (node.operand(i) for i in range(3))
    base = -real_of_stored_zero(updates)
    above = updates if base == 0 else b(ops.Add, updates, b.scalar(base, updates))
    total = b(ops.ScatterND, None, indices, above, shape, kind="add")
    return total if base == 0 else b(ops.Sub, total, b.scalar(base, updates))


@lift_tfl("STABLEHLO_SCATTER")
def _scatter(b: Builder, node: Node) -> Value:
    starts = Starts(tuple(int_list(node, "scatter_dims_to_operand_dims")), int(node.attr("index_vector_dim")))
    scatter = partial(scattered, b, computation=_computation(node.attr("update_computation_subgraph_index")))
    windows, inserted = int_list(node, "update_window_dims"), int_list(node, "inserted_window_dims")
    x, indices, updates = (node.operand(i) for i in range(3))
    return scattered_windows(b, x, indices, updates, starts, windows, inserted, scatter)


_COMPUTATIONS: dict[type[Op], Computation] = {
    ops.Add: Computation.ADD,
    ops.Sub: Computation.SUB,
    ops.Mul: Computation.MUL,
    ops.Div: Computation.DIV,
    ops.Max: Computation.MAX,
    ops.Min: Computation.MIN,
    ops.And: Computation.AND,
    ops.Or: Computation.OR,
    ops.Xor: Computation.XOR,
}


def _computation(body: object) -> Computation:
    """Return how the body combines the old element and the update."""
    if isinstance(body, Graph) and body.first is None and body.outputs[0] is body.inputs[1]:
        return Computation.UPDATE
    op = combining_op(body)
    found = None if op is None else _COMPUTATIONS.get(op)
    in_order = isinstance(body, Graph) and body.first is not None and body.first.operands == body.inputs
    if found is None or not (in_order or (op is not None and op.commutative)):
        raise UnsupportedError("a scatter whose computation is not one op of the old element and the update")
    return found


regions_of("tfl.STABLEHLO_SCATTER")(body_as_it_is)
