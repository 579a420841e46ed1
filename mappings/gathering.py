"""Ops that pick by index: Gather, GatherND, GatherElements, NonZero, OneHot.

ONNX: Gather GatherND GatherElements NonZero OneHot Compress. TFLite: GATHER GATHER_ND EMBEDDING_LOOKUP WHERE ONE_HOT.
"""

from __future__ import annotations

import numpy as np

from onnxtfl.errors import UnsupportedError
from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder, Operand
from onnxtfl.ir.dims import product
from onnxtfl.ir.graph import Node, Value, constant
from onnxtfl.ir.shapes import normalize_axis, static_ints
from onnxtfl.ir.types import DType
from onnxtfl.rules import (
    HUGE,
    Form,
    as_int64,
    decompose,
    dim_vector,
    flat_positions,
    lift_onnx,
    lift_tfl,
    lower_onnx,
    lower_tfl,
    narrow,
    nonnegative,
    reshape,
    resolved_rows,
    unsqueezed,
)

# --- Gather ----------------------------------------------------------------------------------------------------------


@lift_onnx("Gather", since=(1, 11, 13))
def _gather(b: Builder, node: Node) -> Value:
    x, indices, axis = node.operand(0), node.operand(1), node.attr("axis", 0)
    if x.tensor_type.shape is None:
        raise UnsupportedError("the axis of a tensor of unknown rank cannot be found", hint="give --input-shape")
    axis = normalize_axis(axis, x.rank)
    return b(ops.Gather, x, nonnegative(b, indices, x.shape[axis], x), axis=axis)


@lower_tfl(ops.Gather)
def _to_tfl_gather(node: Node) -> Form:
    options = {"axis": node.attr("axis") % node.operand(0).rank, "batch_dims": node.attr("batch_dims")}
    return Form("GATHER", (node.operand(0), _indices(node.operand(1))), options)


def _indices(value: Value) -> Operand:
    """Constant indices as int32, of whatever rank."""
    return narrow(value) if value.is_constant and value.dtype is DType.INT64 else value


@lower_onnx(ops.Gather)
def _to_onnx_gather(node: Node, opset: int) -> Form | None:
    if node.attr("batch_dims"):
        return None
    return Form("Gather", (node.operand(0), node.operand(1)), {"axis": node.attr("axis")})


@decompose(ops.Gather, "onnx")
def _batched_gather(b: Builder, node: Node) -> Value | None:
    """Batch dims: the axis moved behind them, then GatherND of single positions."""
    x, indices, batch = node.operand(0), node.operand(1), node.attr("batch_dims")
    if not batch:
        return None
    axis = normalize_axis(node.attr("axis"), x.rank)
    inner = list(range(batch, axis))
    if inner:
        x = b(ops.Transpose, x, permutation=(*range(batch), axis, *inner, *range(axis + 1, x.rank)))
    picked = b(ops.GatherND, x, unsqueezed(b, as_int64(b, indices), [-1]), batch_dims=batch)
    if not inner:
        return picked
    middle = indices.rank - batch
    places = range(indices.rank, indices.rank + len(inner))
    behind = range(indices.rank + len(inner), picked.rank)
    return b(ops.Transpose, picked, permutation=(*range(batch), *places, *range(batch, batch + middle), *behind))


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


@lower_tfl(ops.GatherND)
def _to_tfl_gather_nd(node: Node) -> Form | None:
    return None if node.attr("batch_dims") else Form("GATHER_ND", (node.operand(0), _indices(node.operand(1))))


@lower_onnx(ops.GatherND)
def _to_onnx_gather_nd(node: Node, opset: int) -> Form:
    batch = node.attr("batch_dims")
    indices = node.operand(1)
    wide = np.asarray(indices.numpy(), np.int64) if indices.is_constant else indices
    return Form("GatherND", (node.operand(0), wide), {"batch_dims": batch} if batch else {})


@decompose(ops.GatherND)
def _gather_of_merged_axes(b: Builder, node: Node) -> Value | None:
    """The indexed axes merged to one, the rows to one number each: then it is a Gather behind the batch dims."""
    x, indices, batch = node.operand(0), node.operand(1), node.attr("batch_dims")
    if indices.dtype is not DType.INT64 and not indices.is_constant and not batch:
        return b(ops.GatherND, x, as_int64(b, indices))
    depth = indices.shape[-1]
    sizes = x.shape[batch : batch + depth] if isinstance(depth, int) else ()
    if not batch or not sizes or not all(isinstance(d, int) for d in sizes):
        return None
    merged = reshape(b, x, (*x.shape[:batch], product(sizes), *x.shape[batch + len(sizes) :]))
    return b(ops.Gather, merged, flat_positions(b, indices, sizes), axis=batch, batch_dims=batch)


@lift_tfl("GATHER_ND")
def _from_tfl_gather_nd(b: Builder, node: Node) -> Value:
    return b(ops.GatherND, node.operand(0), node.operand(1))


# --- GatherElements --------------------------------------------------------------------------------------------------


@lift_onnx("GatherElements", since=(11, 13))
def _gather_elements(b: Builder, node: Node) -> Value:
    x, indices = node.operand(0), node.operand(1)
    rank = x.tensor_type.rank if x.tensor_type.rank is not None else indices.rank
    axis = normalize_axis(node.attr("axis", 0), rank)
    return b(ops.GatherElements, x, nonnegative(b, indices, x.shape[axis], x), axis=axis)


@lower_onnx(ops.GatherElements)
def _to_onnx_gather_elements(node: Node, opset: int) -> Form:
    return Form("GatherElements", (node.operand(0), node.operand(1)), {"axis": node.attr("axis")})


@decompose(ops.GatherElements, "tfl")
def _gather_behind_batch_dims(b: Builder, node: Node) -> Value:
    """All other axes are batch dims of a Gather along the last one; first they are cut to the indices' sizes."""
    x, indices = node.operand(0), node.operand(1)
    rank, axis = indices.rank, normalize_axis(node.attr("axis"), indices.rank)
    limits = [HUGE if i == axis or d == n else n for i, (d, n) in enumerate(zip(x.shape, indices.shape, strict=True))]
    if any(limit != HUGE for limit in limits):
        x = b(ops.Slice, x, [0] * rank, dim_vector(b, limits, indices), [1] * rank)
    if axis == rank - 1:
        return b(ops.Gather, x, indices, axis=axis, batch_dims=axis)
    order = (*(i for i in range(rank) if i != axis), axis)
    turned = [b(ops.Transpose, v, permutation=order) for v in (x, indices)]
    picked = b(ops.Gather, *turned, axis=rank - 1, batch_dims=rank - 1)
    return b(ops.Transpose, picked, permutation=tuple(int(i) for i in np.argsort(order)))


# --- NonZero, Compress -----------------------------------------------------------------------------------------------


@lift_onnx("NonZero", since=(9, 13))
def _nonzero(b: Builder, node: Node) -> Value:
    x = node.operand(0)
    if x.tensor_type.rank == 0:
        return b(ops.Slice, b(ops.NonZero, reshape(b, truth(b, x), (1,))), [0, 0], [0, HUGE], [1, 1])
    return b(ops.NonZero, truth(b, x))


def truth(b: Builder, x: Value) -> Value:
    """Whether each number is not zero."""
    return x if x.dtype is DType.BOOL else b(ops.Compare, x, b.scalar(0, x), comparison_direction="NE")


@lower_tfl(ops.NonZero)
def _to_tfl_where(node: Node) -> Form | None:
    return Form("WHERE", (node.operand(0),)) if node.attr("rows") else None


@lower_onnx(ops.NonZero)
def _to_onnx_nonzero(node: Node, opset: int) -> Form | None:
    return None if node.attr("rows") else Form("NonZero", (node.operand(0),))


@decompose(ops.NonZero, "tfl")
def _nonzero_in_rows(b: Builder, node: Node) -> Value | None:
    """WHERE takes booleans, and gives a row for each."""
    x = node.operand(0)
    if node.attr("rows"):
        return None if x.dtype is DType.BOOL else b(ops.NonZero, truth(b, x), rows=True)
    return b(ops.Transpose, b(ops.NonZero, truth(b, x), rows=True), permutation=(1, 0))


@decompose(ops.NonZero, "onnx")
def _nonzero_in_columns(b: Builder, node: Node) -> Value | None:
    """NonZero gives a column for each."""
    if not node.attr("rows"):
        return None
    return b(ops.Transpose, b(ops.NonZero, node.operand(0)), permutation=(1, 0))


@lift_tfl("WHERE")
def _where(b: Builder, node: Node) -> Value:
    return b(ops.NonZero, truth(b, node.operand(0)), rows=True)


@lift_onnx("Compress", since=(9, 11, 28))
def _compress(b: Builder, node: Node) -> Value:
    """The slices along an axis (or the numbers of the flattened tensor) where the condition holds."""
    x, condition, axis = node.operand(0), node.operand(1), node.attributes.get("axis")
    if axis is None:
        x, axis = reshape(b, x, (product(x.shape),)), 0
    if condition.is_constant:
        places: Operand = np.flatnonzero(condition.numpy())
    else:
        places = b(ops.Reshape, b(ops.NonZero, condition), [-1])
    return b(ops.Gather, x, places, axis=normalize_axis(axis, x.rank))


# --- OneHot ----------------------------------------------------------------------------------------------------------


@lift_onnx("OneHot", since=(9, 11, 28))
def _one_hot(b: Builder, node: Node) -> Value:
    """Indices in [-depth, depth) count; `values` holds off and on."""
    indices, depth, values = (node.operand(i) for i in range(3))
    places = indices if indices.dtype in (DType.INT32, DType.INT64) else b(ops.Convert, indices, dtype=DType.INT64)
    size = b(ops.Convert, depth, dtype=places.dtype) if depth.dtype is not places.dtype else depth
    if size.rank:
        size = reshape(b, size, ())
    if not (places.is_constant and (places.numpy() >= 0).all()):
        negative = b(ops.Compare, places, b.scalar(0, places), comparison_direction="LT")
        places = b(ops.Select, negative, b(ops.Add, places, size), places)
    off, on = _pair(b, values)
    return b(ops.OneHot, places, size, on, off, axis=normalize_axis(node.attr("axis", -1), indices.rank + 1))


def _pair(b: Builder, values: Value) -> tuple[Value, Value]:
    if values.is_constant:
        off, on = values.numpy().reshape(2)
        return constant(np.asarray(off), values.dtype), constant(np.asarray(on), values.dtype)
    off_, on_ = (b(ops.Gather, values, np.asarray(i, np.int64), axis=0) for i in range(2))
    return off_, on_


@lower_tfl(ops.OneHot)
def _to_tfl_one_hot(node: Node) -> Form:
    indices, depth, on, off = (node.operand(i) for i in range(4))
    axis, rank = node.attr("axis"), indices.rank
    return Form("ONE_HOT", (indices, narrow(depth), on, off), {"axis": -1 if axis in (-1, rank) else axis})


@decompose(ops.OneHot)
def _one_hot_by_comparing(b: Builder, node: Node) -> Value | None:
    """The positions along the new axis, compared with the indices."""
    indices, depth, on, off = (node.operand(i) for i in range(4))
    rank, axis = indices.rank + 1, normalize_axis(node.attr("axis"), indices.rank + 1)
    known = static_ints(depth)
    zero, one = b.scalar(0, indices), b.scalar(1, indices)
    if known is not None:
        places: Value = constant(np.arange(known[0]), indices.dtype)
    else:
        size = b(ops.Convert, depth, dtype=indices.dtype) if depth.dtype is not indices.dtype else depth
        places = b(ops.Range, zero, reshape(b, size, ()), one)
    places = reshape(b, places, [places.shape[0] if i == axis else 1 for i in range(rank)])
    hit = b(ops.Compare, unsqueezed(b, indices, [axis]), places, comparison_direction="EQ")
    return b(ops.Select, hit, on, off)


@lower_onnx(ops.OneHot)
def _to_onnx_one_hot(node: Node, opset: int) -> Form | None:
    indices, depth, on, off = (node.operand(i) for i in range(4))
    if not on.is_constant or not off.is_constant or not depth.is_constant:
        return None
    if not indices.is_constant and indices.dtype.is_signed:
        return None  # ONNX counts negative indices from the end
    values = np.stack([off.numpy().reshape(()), on.numpy().reshape(())])
    return Form(
        "OneHot", (indices, np.asarray(depth.numpy(), np.int64).reshape(()), values), {"axis": node.attr("axis")}
    )


@lift_tfl("ONE_HOT")
def _from_tfl_one_hot(b: Builder, node: Node) -> Value:
    axis = node.attr("axis", -1)
    indices, depth, on, off = (node.operand(i) for i in range(4))
    return b(ops.OneHot, indices, depth, on, off, axis=normalize_axis(axis, indices.rank + 1))
