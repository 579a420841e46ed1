"""Reductions over rows with the same segment id."""

from __future__ import annotations

import numpy as np

from onnxtfl.rules import *

# --- segments --------------------------------------------------------------------------------------------------------

_SEGMENTS = {"sum": "SUM", "prod": "PROD", "max": "MAX", "min": "MIN"}


@lower_tfl(ops.SegmentReduce)
def _to_tfl_segments(node: Node) -> Form:
    x, ids, count = (node.operand(i) for i in range(3))
    return Form(f"UNSORTED_SEGMENT_{_SEGMENTS[node.attr('kind')]}", (x, narrow(ids), narrow(count)))


decompose(ops.SegmentReduce, "tfl")(int32_operands(1, 2))


@decompose(ops.SegmentReduce, "onnx")
def _segments_by_scatter(b: Builder, node: Node) -> Value:
    """Written onto what a segment without numbers is."""
    x, ids, count = (node.operand(i) for i in range(3))
    kind = node.attr("kind")
    flat_ids = reshape(b, as_int64(b, ids), (product(ids.shape),))
    flat = reshape(b, x, (flat_ids.shape[0], *x.shape[ids.rank :]))
    number, rows = _blank(kind, x.dtype), reshape(b, as_int64(b, count), (1,))
    spare = not never_negative(ids)
    if spare:  # numbers below 0 are left out: they go to one row more, which is cut off
        below = b(ops.Compare, flat_ids, b.scalar(0, flat_ids), comparison_direction="LT")
        flat_ids = b(ops.Select, below, rows, flat_ids)
        rows = b(ops.Add, rows, np.ones(1, np.int64))
    blank = b(ops.BroadcastTo, b.scalar(number, x), b(ops.Concatenate, rows, dim_vector(b, flat.shape[1:], x), axis=0))
    kinds = {"sum": "add", "prod": "mul"}
    whole = b(ops.ScatterND, blank, unsqueezed(b, flat_ids, [1]), flat, kind=kinds.get(kind, kind))
    if not spare:
        return whole
    return sliced(b, whole, {0: slice(0, -1)})


def _blank(kind: str, dtype: DType) -> float:
    if kind in ("sum", "prod"):
        return int(kind == "prod")
    numbers = np.finfo(np.float32) if dtype.is_float else np.iinfo(dtype.numpy)
    return (
        float(numbers.min if kind == "max" else numbers.max)
        if dtype.is_float
        else int(numbers.min if kind == "max" else numbers.max)
    )


@lift_tfl("UNSORTED_SEGMENT_SUM", "UNSORTED_SEGMENT_PROD", "UNSORTED_SEGMENT_MAX", "UNSORTED_SEGMENT_MIN")
def _from_tfl_segments(b: Builder, node: Node) -> Value:
    kind = node.op.name.rpartition("_")[2].lower()
    return b(ops.SegmentReduce, node.operand(0), node.operand(1), node.operand(2), kind=kind)


@lift_tfl("SEGMENT_SUM")
def _segment_sum(b: Builder, node: Node) -> Value:
    """Ids come in order; there are as many segments as the last one says."""
    x, ids = node.operand(0), node.operand(1)
    known = static_ints(ids)
    if known is not None:
        count = constant(np.asarray(known[-1] + 1 if known else 0, np.int32))
    else:
        last = b(ops.Reduce, ids, [0], kind="max", keepdims=False)
        count = b(ops.Add, last, b.scalar(1, last))
    return b(ops.SegmentReduce, x, ids, count, kind="sum")
