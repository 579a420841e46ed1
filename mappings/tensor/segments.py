"""Reductions over rows with the same segment id."""

from __future__ import annotations

import math

import numpy as np

from onnxtfl.build.rows import row
from onnxtfl.build.sizes import as_int32, int32_operands, slice_axes
from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.computations import joining
from onnxtfl.ir.dims import is_static, known_size, product
from onnxtfl.ir.facts import never_negative
from onnxtfl.ir.formula import Term
from onnxtfl.ir.graph import Graph, Node, Value, constant
from onnxtfl.ir.ops.loops import scan_attributes
from onnxtfl.ir.reshape import as_int64, dim_vector, iota, reshape, unsqueezed
from onnxtfl.ir.shapes import static_ints
from onnxtfl.ir.types import DType
from onnxtfl.rewriting.registry import decompose, lift_tfl

for _kind in ("sum", "prod", "max", "min"):
    row(ops.SegmentReduce, tfl=f"UNSORTED_SEGMENT_{_kind.upper()}", fixed={"kind": _kind}, integers=(1, 2))
decompose(ops.SegmentReduce, "tfl")(int32_operands(1, 2))


@decompose(ops.SegmentReduce, "onnx")
def _segments_by_scatter(b: Builder, node: Node) -> Value:
    """Scatter into the results of empty segments."""
    x, ids, count = (node.operand(i) for i in range(3))
    kind = node.attr("kind")
    flat_ids = reshape(b, as_int64(b, ids), (product(ids.shape),))
    flat = reshape(b, x, (flat_ids.shape[0], *x.shape[ids.rank :]))
    number, rows = _blank(kind, x.dtype), reshape(b, as_int64(b, count), (1,))
    spare = not never_negative(ids)
    if spare:  # rows with negative ids are ignored: they go to an additional row, which is removed
        below = b(ops.Compare, flat_ids, b.scalar(0, flat_ids), comparison_direction="LT")
        flat_ids = b(ops.Select, below, rows, flat_ids)
        rows = b(ops.Add, rows, np.ones(1, np.int64))
    blank = b(ops.BroadcastTo, b.scalar(number, x), b(ops.Concatenate, rows, dim_vector(b, flat.shape[1:], x), axis=0))
    kinds = {"sum": "add", "prod": "mul"}
    whole = b(ops.ScatterND, blank, unsqueezed(b, flat_ids, [1]), flat, kind=kinds.get(kind, kind))
    if not spare:
        return whole
    return slice_axes(b, whole, {0: slice(0, -1)})


MOST_SELECTED = 1 << 12
"""The most elements of [segments, rows, inner]; larger reductions loop over the rows."""


MOST_COMPARED = 1 << 22
"""The same for targets without loops, and of [segments, rows] for sums by a product."""


@decompose(ops.SegmentReduce, "gpu")
def _segments_at_once(b: Builder, node: Node) -> Value | None:
    """Reduce by masks, or add up floats by a product with these: the accelerator has no loops."""
    x, ids, known = node.operand(0), as_int32(b, node.operand(1)), static_ints(node.operand(2))
    if known is None or not (is_static(x.shape) and is_static(ids.shape)):
        return None
    rows, inner = math.prod(ids.shape), math.prod(x.shape[ids.rank :])
    adds = node.attr("kind") == "sum" and x.dtype is DType.FLOAT32 and inner > 1
    compared = known[0] * rows * (1 if adds else inner)
    if not 0 < compared <= MOST_COMPARED:
        return None
    flat, flat_ids = reshape(b, x, (rows, inner)), reshape(b, ids, (rows,))
    segments = constant(np.arange(known[0], dtype=np.int32))
    if adds:
        made = _sums_by_product(b, flat, flat_ids, segments)
    else:
        made = _segments_by_selection(b, flat, flat_ids, segments, node.attr("kind"))
    return reshape(b, made, (known[0], *x.shape[ids.rank :]))


def _sums_by_product(b: Builder, x: Value, ids: Value, segments: Value) -> Value:
    """The product of a mask [segments, rows] and `x` [rows, inner]."""
    own = Term(b, unsqueezed(b, segments, [1])).equals(Term(b, unsqueezed(b, ids, [0])))
    return b(ops.DotGeneral, own.to(x.dtype).value, x, lhs_contracting_dimensions=(1,), rhs_contracting_dimensions=(0,))


@decompose(ops.SegmentReduce)
def _segments_without_kernel(b: Builder, node: Node) -> Value | None:
    """Reduce without a kernel: by masks, or a large known number of segments row by row in a loop."""
    x, ids, count = node.operand(0), as_int32(b, node.operand(1)), node.result.shape[0]
    if not is_static(x.shape) or not is_static(ids.shape) or x.dtype.bits < 32:  # computed in 32 bits
        return None
    rows, inner = math.prod(ids.shape), math.prod(x.shape[ids.rank :])
    if not (rows and inner and count):
        return None
    flat, flat_ids, kind = reshape(b, x, (rows, inner)), reshape(b, ids, (rows,)), node.attr("kind")
    if isinstance(count, int) and count * rows * inner > MOST_SELECTED:
        found = _segments_by_loop(b, flat, flat_ids, count, kind)
    else:
        segments = as_int32(b, iota(b, reshape(b, node.operand(2), ())))
        found = _segments_by_selection(b, flat, flat_ids, segments, kind)
    return reshape(b, found, node.result.shape, found)


def _segments_by_selection(b: Builder, x: Value, ids: Value, segments: Value, kind: str) -> Value:
    """Reduce [segments, rows, inner], with neutral elements for other segments, to [segments, inner]."""
    own = Term(b, unsqueezed(b, segments, [1])).equals(Term(b, ids))
    own = Term(b, unsqueezed(b, own.value, [2]))
    return own.choose(Term(b, x), _blank(kind, x.dtype)).reduce(kind, [1], keepdims=False).value


def _segments_by_loop(b: Builder, x: Value, ids: Value, count: int, kind: str) -> Value:
    """Combine each row of `x` [rows, inner] with the partial result of its segment; negative ids are ignored."""
    (inner,) = x.shape[1:]
    start = constant(np.full((count, known_size(inner)), _blank(kind, x.dtype)), x.dtype)
    region = Graph("element")
    body = Builder(region)
    so_far, row, index = (
        region.add_input(t) for t in (start.type, x.tensor_type.with_shape((inner,)), ids.tensor_type.with_shape(()))
    )
    place = Term(body, index).max(0)
    old = body(ops.Gather, so_far, reshape(body, place.value, (1,)), axis=0)
    joined = body(joining(kind), old, row)
    joined = (Term(body, index) >= 0).choose(Term(body, joined), Term(body, old)).value
    starts = body(ops.Pad, reshape(body, place.value, (1,)), np.asarray([[0, 1]]))
    region.outputs = [body(ops.DynamicUpdateSlice, so_far, joined, starts)]
    return b.many(ops.Scan, None, start, x, ids, body=region, **scan_attributes(1, (0, 0)))[0]


def _blank(kind: str, dtype: DType) -> float:
    if kind in ("sum", "prod"):
        return int(kind == "prod")
    limits = np.finfo(np.float32) if dtype.is_float else np.iinfo(dtype.numpy)
    limit = limits.min if kind == "max" else limits.max
    return float(limit) if dtype.is_float else int(limit)


@lift_tfl("SEGMENT_SUM")
def _segment_sum(b: Builder, node: Node) -> Value:
    """Ids are ascending; the last one determines the number of segments."""
    x, ids = node.operand(0), node.operand(1)
    known = static_ints(ids)
    if known is not None:
        count = constant(np.asarray(known[-1] + 1 if known else 0, np.int32))
    else:
        last = Term(b, b(ops.Reduce, ids, [0], kind="max", keepdims=False))
        count = (
            last + 1 if is_static(ids.shape) else (last + 1).max(0)
        ).value  # the lowest integer if there are no ids
    return b(ops.SegmentReduce, x, ids, count, kind="sum")
