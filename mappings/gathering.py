"""Elements read by index."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from onnxtfl.rules import *


def _unbatched(node: Node) -> bool:
    return not node.attr("batch_dims")


def _by_element(node: Node) -> bool:
    """Whether each index of a Gather picks one element, since all other axes are batch dims."""
    x, indices, axis = node.operand(0), node.operand(1), node.attr("axis")
    batched = 0 < axis == node.attr("batch_dims") == x.rank - 1 == indices.rank - 1
    return batched and bool(x.shape[:axis] == indices.shape[:axis])


row(ops.Gather, onnx="Gather", attributes="axis", when=_unbatched, lifts=False)
row(ops.Gather, onnx="GatherElements", attributes="axis", when=_by_element, lifts=False)
_BATCH = {"batch_dims": Spelled("batch_dims", default=0)}
row(ops.GatherND, onnx="GatherND", attributes=_BATCH, integers=(1,), lifts=False)
row(ops.GatherND, tfl="GATHER_ND", integers=(1,), when=_unbatched)
row(ops.GatherElements, onnx="GatherElements", attributes="axis", lifts=False)


# --- Gather ----------------------------------------------------------------------------------------------------------


@lift_onnx("Gather", since=(1, 11, 13))
@lift_onnx("GatherElements", since=(11, 13))
def _gather(b: Builder, node: Node) -> Value:
    x, indices = node.operand(0), node.operand(1)
    axis = normalize_axis(node.attr("axis", 0), x.rank)
    op = ops.Gather if node.op.name == "onnx.Gather" else ops.GatherElements
    return b(op, x, nonnegative(b, indices, x.shape[axis], x), axis=axis)


@lower_tfl(ops.Gather)
def _to_tfl_gather(node: Node) -> Form:
    options = {"axis": node.attr("axis") % node.operand(0).rank, "batch_dims": node.attr("batch_dims")}
    return Form("GATHER", (node.operand(0), narrow(node.operand(1))), options)


@decompose(ops.Gather, "onnx")
def _batched_gather(b: Builder, node: Node) -> Value | None:
    """Batch dims: the axis is moved after them, then GatherND of single indices."""
    x, indices, batch = node.operand(0), node.operand(1), node.attr("batch_dims")
    if not batch:
        return None
    axis = normalize_axis(node.attr("axis"), x.rank)
    inner = list(range(batch, axis))
    x = transposed(b, x, (*range(batch), axis, *inner, *range(axis + 1, x.rank)))
    picked = b(ops.GatherND, x, unsqueezed(b, as_int64(b, indices), [-1]), batch_dims=batch)
    after = indices.rank + len(inner)
    order = (*range(batch), *range(indices.rank, after), *range(batch, indices.rank), *range(after, picked.rank))
    return transposed(b, picked, order)


@lift_tfl("GATHER")
def _from_tfl_gather(b: Builder, node: Node) -> Value:
    x, indices = node.operand(0), node.operand(1)
    axis, batch = node.attr("axis", 0) or 0, node.attr("batch_dims", 0) or 0
    batch = batch + indices.rank if batch < 0 else batch
    return b(ops.Gather, x, indices, axis=normalize_axis(axis, x.rank), batch_dims=batch)


@lift_tfl("EMBEDDING_LOOKUP")
def _embedding_lookup(b: Builder, node: Node) -> Value:
    return b(ops.Gather, node.operand(1), node.operand(0), axis=0)


# --- GatherND --------------------------------------------------------------------------------------------------------


@lift_onnx("GatherND", since=(11, 12, 13))
def _gather_nd(b: Builder, node: Node) -> Value:
    x, indices, batch = node.operand(0), node.operand(1), node.attr("batch_dims", 0)
    return b(ops.GatherND, x, resolved_rows(b, x, indices, batch), batch_dims=batch)


@decompose(ops.GatherND, order="axes")
def _gather_of_merged_axes(b: Builder, node: Node) -> Value | None:
    """Merge the indexed axes, and each index vector to one index: a Gather after the batch dims."""
    x, indices, batch = node.operand(0), node.operand(1), node.attr("batch_dims")
    if indices.dtype is not DType.INT64 and not indices.is_constant and not batch:
        return b(ops.GatherND, x, as_int64(b, indices))
    depth = indices.shape[-1]
    sizes = x.shape[batch : batch + depth] if isinstance(depth, int) else ()
    if not batch or not sizes or not all(isinstance(d, int) for d in sizes):
        return None
    merged = reshape(b, x, (*x.shape[:batch], product(sizes), *x.shape[batch + len(sizes) :]))
    return b(ops.Gather, merged, flat_positions(b, indices, sizes), axis=batch, batch_dims=batch)


# --- GatherElements --------------------------------------------------------------------------------------------------


@decompose(ops.GatherElements, "tfl")
def _gather_after_batch_dims(b: Builder, node: Node) -> Value:
    """All other axes are batch dims of a Gather along the last one; first they are cut to the indices' sizes."""
    x, indices = node.operand(0), node.operand(1)
    rank, axis = indices.rank, normalize_axis(node.attr("axis"), indices.rank)
    limits = [HUGE if i == axis or d == n else n for i, (d, n) in enumerate(zip(x.shape, indices.shape, strict=True))]
    if any(limit != HUGE for limit in limits):
        x = b(ops.Slice, x, [0] * rank, dim_vector(b, limits, indices), [1] * rank)
    order = moved_last(axis, rank)
    x, indices = (transposed(b, v, order) for v in (x, indices))
    return transposed(b, b(ops.Gather, x, indices, axis=rank - 1, batch_dims=rank - 1), inverse(order))


def _static(x: Value) -> list[int]:
    sizes = [d for d in x.shape if isinstance(d, int)]
    if len(sizes) < x.rank:
        raise UnsupportedError("sizes that are unknown before run time", hint="give --input-shape")
    return sizes


@lift_tfl("STABLEHLO_GATHER")
def _stablehlo_gather(b: Builder, node: Node) -> Value:
    """Windows of `slice_sizes` at the indices, which are clamped so that the windows fit.

    Indexed axes are moved to the front; the positions in the window along them are added to each index.
    """
    x, sizes = node.operand(0), int_list(node, "slice_sizes")
    mapped, collapsed = int_list(node, "start_index_map"), int_list(node, "collapsed_slice_dims")
    rest = [a for a in range(x.rank) if a not in mapped]
    room = np.asarray([_static(x)[a] - sizes[a] for a in mapped])
    starts = index_vectors(b, node, node.operand(1))
    starts = b(ops.Min, b(ops.Max, starts, b.scalar(0, starts)), room.astype(starts.dtype.numpy))
    batch = starts.rank - 1
    window = [sizes[a] for a in mapped]
    places = np.stack(np.meshgrid(*map(np.arange, window), indexing="ij"), axis=-1).astype(starts.dtype.numpy)
    spread = unsqueezed(b, starts, range(batch, batch + len(mapped)))
    ordered = transposed(b, x, [*mapped, *rest])
    ordered = sliced(b, ordered, {i: slice(0, sizes[a]) for i, a in enumerate(rest, len(mapped))})
    found = b(ops.GatherND, ordered, b(ops.Add, spread, places))
    order = [[*mapped, *rest].index(a) + batch for a in range(x.rank) if a not in collapsed]
    kept = [*range(batch), *order, *(batch + [*mapped, *rest].index(a) for a in collapsed)]
    flat = transposed(b, found, kept)
    flat = reshape(b, flat, flat.shape[: flat.rank - len(collapsed)])
    return _offsets_at(b, flat, batch, int_list(node, "offset_dims"))


def _offsets_at(b: Builder, x: Value, batch: int, offsets: Sequence[int]) -> Value:
    """Move the axes after the batch axes to `offsets`."""
    others = iter(range(batch))
    after = {axis: batch + i for i, axis in enumerate(offsets)}
    return transposed(b, x, [after[a] if a in after else next(others) for a in range(x.rank)])
