"""Elements read by index."""

from __future__ import annotations

import itertools

import numpy as np

from onnxtfl.build.indices import flat_positions, nonnegative, resolved_rows
from onnxtfl.build.operands import moved_last
from onnxtfl.build.qlinear import MICROSOFT
from onnxtfl.build.rows import Spelled, row
from onnxtfl.build.runs import joined_runs, run_of
from onnxtfl.build.sizes import HUGE, narrow_constant, range_below, slice_axes
from onnxtfl.build.stablehlo import int_list
from onnxtfl.errors import UnsupportedError
from onnxtfl.ir import ops
from onnxtfl.ir.budget import check_elements
from onnxtfl.ir.builder import Builder, Operand
from onnxtfl.ir.data import Array
from onnxtfl.ir.dimension_numbers import Starts, gathered
from onnxtfl.ir.dims import exceeds, is_static, known_size, product
from onnxtfl.ir.formula import Term
from onnxtfl.ir.graph import Node, Value, constant
from onnxtfl.ir.permutations import inverse
from onnxtfl.ir.reshape import (
    as_int64,
    broadcast,
    dim_value,
    dim_vector,
    iota,
    reshape,
    transposed,
    unsqueezed,
)
from onnxtfl.ir.shapes import normalize_axis, static_ints
from onnxtfl.ir.types import DType
from onnxtfl.rewriting.registry import Form, decompose, lift_onnx, lift_tfl, lower_tfl

MOST_INDICES = 1 << 16
"""The most constant indices that are looked at."""


def _unbatched(node: Node) -> bool:
    return not node.attr("batch_dims")


def _by_element(node: Node) -> bool:
    """Whether each index of a Gather selects one element, since all other axes are batch dims."""
    x, indices, axis = node.operand(0), node.operand(1), node.attr("axis")
    batched = 0 < axis == node.attr("batch_dims") == x.rank - 1 == indices.rank - 1
    return batched and bool(x.shape[:axis] == indices.shape[:axis])


row(ops.Gather, onnx="Gather", attributes="axis", when=_unbatched, lifts=False)
row(ops.Gather, onnx="GatherElements", attributes="axis", when=_by_element, lifts=False)
_BATCH = {"batch_dims": Spelled("batch_dims", default=0)}
row(ops.GatherND, onnx="GatherND", attributes=_BATCH, integers=(1,), lifts=False)
row(ops.GatherND, tfl="GATHER_ND", integers=(1,), when=lambda node: _unbatched(node) and node.operand(1).shape[-1] != 0)
row(ops.GatherElements, onnx="GatherElements", attributes="axis", lifts=False)


# --- Gather ----------------------------------------------------------------------------------------------------------


@lift_onnx("Gather", since=(1, 11, 13))
@lift_onnx("GatherElements", since=(11, 13))
def _gather(b: Builder, node: Node) -> Value:
    x, indices = node.operand(0), node.operand(1)
    axis = normalize_axis(node.attr("axis", 0), x.rank)
    op = ops.Gather if node.op.name == "onnx.Gather" else ops.GatherElements
    return b(op, x, nonnegative(b, indices, x.shape[axis], x), axis=axis)


@lift_onnx("UnfoldTensor", since=(1,), domain=MICROSOFT)
def _unfold(b: Builder, node: Node) -> Value:
    """Return all slices of `size` elements along axis `dim`, `step` apart; a new last axis has their elements."""
    x, size, step = node.operand(0), int(node.attr("size")), int(node.attr("step", 1))
    axis = normalize_axis(node.attr("dim", -1), x.rank)
    length = x.shape[axis]
    if size < 1 or step < 1 or exceeds(size, length):
        raise ValueError(f"slices of {size} elements, {step} from each other, of {length}")
    check_elements(size, "the elements of a slice")
    first = iota(b, dim_value(b, (length - size) // step + 1, x))
    rows = Term(b, unsqueezed(b, first, [1])) * step + Term(b, constant(np.arange(size)[None]))
    slices = b(ops.Gather, x, rows.value, axis=axis)
    return transposed(b, slices, [*(i for i in range(x.rank + 1) if i != axis + 1), axis + 1])


def _reads_vectors(node: Node) -> bool:
    """Whether the indices of an unbatched Gather can be flattened at conversion: strings move by their own rule."""
    x, indices = node.operand(0), node.operand(1)
    known = is_static(indices.tensor_type.shape) and is_static(node.result.tensor_type.shape)
    return known and indices.rank != 1 and not node.attr("batch_dims") and x.dtype is not DType.STRING


@decompose(ops.Gather, "tfl", order="operands", when=_reads_vectors, benefit=1)
def _gather_by_vector(b: Builder, node: Node) -> Value:
    """Gather by the flattened indices: LiteRT's GPU accelerator reads a vector only, and for others RESHAPE is free."""
    indices = reshape(b, node.operand(1), (product(node.operand(1).shape),))
    picked = b(ops.Gather, node.operand(0), indices, **node.attributes)
    return reshape(b, picked, node.result.shape)


@lower_tfl(ops.Gather)
def _to_tfl_gather(node: Node) -> Form | None:
    if _reads_vectors(node):
        return None
    options = {"axis": node.attr("axis") % node.operand(0).rank, "batch_dims": node.attr("batch_dims")}
    if node.operand(0).is_quantized and not node.result.is_quantized:  # scales of blocks
        return Form("EMBEDDING_LOOKUP", (node.operand(1), node.operand(0))) if not any(options.values()) else None
    return Form("GATHER", (node.operand(0), narrow_constant(node.operand(1))), options)


@decompose(ops.Gather, "tfl")
def _narrow_indices(b: Builder, node: Node) -> Value | None:
    """Cast the indices of quantized tables to int32; sizes are below 2**31."""
    x, indices = node.operand(0), node.operand(1)
    if not x.is_quantized or indices.dtype is not DType.INT64:
        return None
    return b(ops.Gather, x, b(ops.Convert, indices, dtype=DType.INT32), **node.attributes)


@decompose(ops.Gather, "tfl", order="operands")
@decompose(ops.Gather, "xnnpack")
def _gathered_run(b: Builder, node: Node) -> Value | None:
    """Replace consecutive constant indices by a Slice: TFLite Micro has no GATHER of int16, XNNPACK no GATHER."""
    x, axis, known = node.operand(0), node.attr("axis") % node.operand(0).rank, static_ints(node.operand(1))
    if not known or known[0] < 0 or node.attr("batch_dims") or x.dtype is DType.STRING:
        return None
    if known != [*range(known[0], known[0] + len(known))]:
        return None
    part = run_of(b, x, axis, known[0], known[-1] + 1)
    return reshape(b, part, node.result.shape, x)


@decompose(ops.Gather, "xnnpack", benefit=-1)
@decompose(ops.Gather, "ethos-u")
def _gathered_slices(b: Builder, node: Node) -> Value | None:
    """Concatenate the slices of the runs of consecutive constant indices, if these are few."""
    x, known = node.operand(0), static_ints(node.operand(1))
    if known is None or node.attr("batch_dims") or x.tensor_type.shape is None:
        return None
    joined = joined_runs(b, x, normalize_axis(node.attr("axis"), x.rank), known)
    return None if joined is None else reshape(b, joined, node.result.shape, joined)


@decompose(ops.Gather, "tfl", order="axes")
def _gathered_strings(b: Builder, node: Node) -> Value | None:
    """Gather strings from the flattened table, or by one slice: TFLite's string tables have one axis."""
    x, indices, axis = node.operand(0), node.operand(1), node.attr("axis")
    if x.dtype is not DType.STRING or x.rank == 1 or node.attr("batch_dims"):
        return None
    known = static_ints(indices)
    if known is not None and len(known) == 1:
        return reshape(b, slice_axes(b, x, {axis: slice(known[0], known[0] + 1)}), node.result.shape, x)
    size, inner = x.shape[axis], product(x.shape[axis + 1 :])
    if not isinstance(size, int) or not isinstance(inner, int):
        raise UnsupportedError("strings along axes of dynamic size", code="E-SHAPE-001")
    outer = product(x.shape[:axis])
    rows = Term(b, iota(b, dim_vector(b, [outer], x)))
    rows = Term(b, reshape(b, rows.value, (outer, 1, 1), x)) * (size * inner)
    picked = Term(b, reshape(b, as_int64(b, indices), (1, product(indices.shape), 1), indices)) * inner
    places = (rows + picked).apply(ops.Add, np.arange(inner))
    flat, each = (reshape(b, v, (product(v.shape),), x, indices) for v in (x, places.value))
    return reshape(b, b(ops.Gather, flat, each, axis=0), node.result.shape, x, indices)


def _has_known_batches(node: Node) -> bool:
    shapes = (node.operand(i).tensor_type.shape for i in (0, 1))
    return bool(node.attr("batch_dims")) and all(is_static(shape) for shape in shapes)


@decompose(ops.Gather, "gpu", order="operands", when=_has_known_batches)
def _gather_of_joined_batches(b: Builder, node: Node) -> Value:
    """Gather from the tables of all batch entries one after the other, with the indices moved by the sizes before."""
    x, indices, batch = node.operand(0), node.operand(1), node.attr("batch_dims")
    axis = normalize_axis(node.attr("axis"), x.rank)
    x = transposed(b, x, (*range(batch), axis, *range(batch, axis), *range(axis + 1, x.rank)))
    count, size, rest = product(x.shape[:batch]), x.shape[batch], x.shape[batch + 1 :]
    rows = Term(b, reshape(b, indices, (count, product(indices.shape[batch:]))))
    if count != 1:
        before = np.arange(known_size(count))[:, None] * known_size(size)
        rows = rows + Term(b, constant(before.astype(indices.dtype.numpy)))
    table, places = reshape(b, x, (count * size, *rest)), reshape(b, rows.value, (product(indices.shape),))
    picked = b(ops.Gather, table, places, axis=0)
    whole = reshape(b, picked, (*indices.shape, *rest))
    inner = [indices.rank + i for i in range(axis - batch)]
    others = [i for i in range(indices.rank, whole.rank) if i not in inner]
    return transposed(b, whole, (*range(batch), *inner, *range(batch, indices.rank), *others))


@decompose(ops.Gather, "onnx")
def _batched_gather(b: Builder, node: Node) -> Value | None:
    """Move the axis after the batch dims, then use GatherND with one index each."""
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


# --- GatherND --------------------------------------------------------------------------------------------------------


@lift_onnx("GatherND", since=(1,), domain=MICROSOFT)
@lift_onnx("GatherND", since=(11, 12, 13))
def _gather_nd(b: Builder, node: Node) -> Value:
    x, indices, batch = node.operand(0), node.operand(1), node.attr("batch_dims", 0)
    return b(ops.GatherND, x, resolved_rows(b, x, indices, batch), batch_dims=batch)


def _has_narrow_indices(node: Node) -> bool:
    indices = node.operand(1)
    return indices.dtype is not DType.INT64 and not indices.is_constant and not node.attr("batch_dims")


@decompose(ops.GatherND, order="axes", when=_has_narrow_indices, benefit=1)
def _gather_by_int64(b: Builder, node: Node) -> Value:
    return b(ops.GatherND, node.operand(0), as_int64(b, node.operand(1)))


@decompose(ops.GatherND, order="axes", when=lambda node: node.operand(1).shape[-1] == 0)
def _gather_all(b: Builder, node: Node) -> Value:
    """Replace a gather with empty index vectors by `x` (of each batch entry)."""
    x, indices, batch = node.operand(0), node.operand(1), node.attr("batch_dims")
    between = (1,) * (indices.rank - 1 - batch)
    whole = reshape(b, x, (*x.shape[:batch], *between, *x.shape[batch:]))
    return broadcast(b, whole, (*indices.shape[:-1], *x.shape[batch:]), indices, x)


def _has_batches(node: Node) -> bool:
    """Whether there are batch dims, and a known number (at least one) of indexed axes."""
    depth = node.operand(1).shape[-1]
    return bool(node.attr("batch_dims")) and exceeds(depth, 0)


def _has_a_known_depth(node: Node) -> bool:
    depth = node.operand(1).shape[-1]
    return exceeds(depth, 0)


def _places_by_axis(indices: Array) -> list[Array] | None:
    """The vectors of positions along each indexed axis whose combinations the index vectors are, else None.

    Each varies along one or more adjacent axes of `indices`, those of an earlier one before those of a later one.
    """
    *sizes, depth = indices.shape
    splits = range(len(sizes) + 1)
    for ends in itertools.combinations_with_replacement(splits, depth - 1):
        bounds = list(itertools.pairwise((0, *ends, len(sizes))))
        found = []
        for i, (start, stop) in enumerate(bounds):
            part = indices[(*(slice(None) if start <= a < stop else 0 for a in range(len(sizes))), i)]
            shape = [n if start <= a < stop else 1 for a, n in enumerate(sizes)]
            if not (indices[..., i] == part.reshape(shape)).all():
                break
            found.append(part)
        else:
            return found
    return None


@decompose(ops.GatherND, "xnnpack")
def _slices_along_each_axis(b: Builder, node: Node) -> Value | None:
    """Join slices along one axis after the other where constant index vectors are all combinations of few runs."""
    x, indices = node.operand(0), node.operand(1)
    if node.attr("batch_dims") or indices.data is None or not 0 < indices.data.size <= MOST_INDICES:
        return None
    places = _places_by_axis(indices.numpy())
    for axis, along in enumerate(places or []):
        joined = joined_runs(b, x, axis, along.reshape(-1).tolist())
        if joined is None:
            return None
        x = joined
    return reshape(b, x, node.result.shape, x) if places else None


@decompose(ops.GatherND, "gpu", order="axes", when=_has_a_known_depth)
@decompose(ops.GatherND, order="axes", when=_has_batches)
def _gather_of_merged_axes(b: Builder, node: Node) -> Value:
    """Merge the indexed axes to one, and each index vector to one index, for a Gather with batch dims."""
    x, indices, batch = node.operand(0), node.operand(1), node.attr("batch_dims")
    sizes = x.shape[batch : batch + indices.size(-1)]
    merged = reshape(b, x, (*x.shape[:batch], product(sizes), *x.shape[batch + len(sizes) :]))
    return b(ops.Gather, merged, flat_positions(b, indices, sizes, x), axis=batch, batch_dims=batch)


# --- GatherElements --------------------------------------------------------------------------------------------------


MOST_SLICED = 5
"""Kernels slice up to this rank; higher ranks need mergeable axes and known limits."""


@decompose(ops.GatherElements, "tfl")
def _gather_after_batch_dims(b: Builder, node: Node) -> Value:
    """Gather along the last axis with all other axes as batch dims, cropped to the sizes of the indices."""
    x, indices = node.operand(0), node.operand(1)
    rank, axis = indices.rank, normalize_axis(node.attr("axis"), indices.rank)
    limits = [HUGE if i == axis or d == n else n for i, (d, n) in enumerate(zip(x.shape, indices.shape, strict=True))]
    if rank <= MOST_SLICED or is_static(limits):
        if any(limit != HUGE for limit in limits):
            x = b(ops.Slice, x, [0] * rank, dim_vector(b, limits, indices), [1] * rank)
    else:
        for i, limit in enumerate(limits):
            x = x if limit == HUGE else b(ops.Gather, x, range_below(b, limit, indices), axis=i)
    order = moved_last(axis, rank)
    x, indices = (transposed(b, v, order) for v in (x, indices))
    return transposed(b, b(ops.Gather, x, indices, axis=rank - 1, batch_dims=rank - 1), inverse(order))


@lift_tfl("STABLEHLO_GATHER")
def _stablehlo_gather(b: Builder, node: Node) -> Value:
    starts = Starts(tuple(int_list(node, "start_index_map")), int(node.attr("index_vector_dim")))
    sizes, collapsed = int_list(node, "slice_sizes"), int_list(node, "collapsed_slice_dims")
    offsets = int_list(node, "offset_dims")
    return gathered(b, node.operand(0), node.operand(1), starts, sizes, collapsed, offsets)


# --- Compress --------------------------------------------------------------------------------------------------------


@lift_onnx("Compress", since=(9, 11, 28))
def _compress(b: Builder, node: Node) -> Value:
    """Select slices along an axis (or elements of the flattened tensor) where the condition is true.

    Entries of the condition beyond the axis are ignored. Source: ONNX Runtime, compress.cc.
    """
    x, condition, axis = node.operand(0), node.operand(1), node.attributes.get("axis")
    if axis is None:
        x, axis = reshape(b, x, (product(x.shape),)), 0
    size, length = x.shape[normalize_axis(axis, x.rank)], condition.shape[0]
    if is_static((size, length)):
        condition = b(ops.Slice, condition, [0], [min(size, length)], [1])
    elif length != size:
        places_of_all = Term(b, iota(b, dim_value(b, length, condition)))
        condition = (Term(b, condition) & (places_of_all < Term(b, dim_value(b, size, x)))).value
    if condition.is_constant:
        places: Operand = np.flatnonzero(condition.numpy())
    else:
        places = b(ops.Reshape, b(ops.NonZero, condition), [-1])
    return b(ops.Gather, x, places, axis=normalize_axis(axis, x.rank))
