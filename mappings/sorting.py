"""TopK, Sort, Unique.

ONNX: TopK Unique. TFLite: TOPK_V2 UNIQUE."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from onnxtfl.rules import *


@lift_tfl("BUCKETIZE")
def _bucketize(b: Builder, node: Node) -> Value:
    """How many boundaries are not above the number. Source: LiteRT kernels/bucketize.cc (std::upper_bound)."""
    x, boundaries = node.operand(0), np.asarray(node.attr("boundaries") or (), np.float32)
    wide = x if x.dtype.is_float else b(ops.Convert, x, dtype=DType.FLOAT32)
    reached = b(
        ops.Compare,
        unsqueezed(b, wide, [x.rank]),
        boundaries.astype(wide.dtype.numpy),
        comparison_direction="GE",
    )
    counted = b(ops.Convert, reached, dtype=DType.INT32)
    return b(ops.Reduce, counted, [x.rank], kind="sum", keepdims=False)


# --- TopK ------------------------------------------------------------------------------------------------------------


@upgrade("TopK", since=(1,))
def _top_k_1(b: Builder, node: Node) -> None:
    append_operand(node, constant(np.asarray([node.attributes.pop("k")], np.int64)))


@lift_onnx("TopK", since=(10, 11, 24))
def _top_k(b: Builder, node: Node) -> Sequence[Value]:
    x, k = node.operand(0), node.operand(1)
    axis = node.attr("axis", -1)
    axis = axis if x.tensor_type.rank is None else normalize_axis(axis, x.rank)
    order = {"largest": bool(node.attr("largest", 1)), "sorted": bool(node.attr("sorted", 1))}
    return b.many(ops.TopK, x, k, axis=axis, **order)


@lower_tfl(ops.TopK)
def _to_tfl_top_k(node: Node) -> Form | None:
    """The largest along the last axis, indices in int32."""
    x, k = node.operand(0), node.operand(1)
    if not node.attr("largest") or node.attr("axis") not in (-1, x.rank - 1) or node.attr("dtype") is not DType.INT32:
        return None
    known = static_ints(k)
    return Form("TOPK_V2", (x, k if known is None else np.asarray(known[0], np.int32)))


@decompose(ops.TopK, "tfl")
def _top_k_as_kernels_take_it(b: Builder, node: Node) -> Sequence[Value] | None:
    """Steps towards what TOPK_V2 does: the axis last, indices in int32, the largest of the numbers turned round."""
    x, k = node.operand(0), node.operand(1)
    axis, options = normalize_axis(node.attr("axis"), x.rank), {"sorted": node.attr("sorted")}
    if axis != x.rank - 1:
        order = (*(i for i in range(x.rank) if i != axis), axis)
        turned = b(ops.Transpose, x, permutation=order)
        results = b.many(ops.TopK, turned, k, **{**node.attributes, "axis": x.rank - 1})
        back = tuple(int(i) for i in np.argsort(order))
        return [b(ops.Transpose, v, permutation=back) for v in results]
    if node.attr("dtype") is not DType.INT32:
        values, indices = b.many(ops.TopK, x, k, **{**node.attributes, "dtype": DType.INT32})
        return [values, b(ops.Convert, indices, dtype=node.attr("dtype"))]
    if not node.attr("largest"):
        values, indices = b.many(
            ops.TopK, _turned_round(b, x), k, axis=axis, largest=True, dtype=DType.INT32, **options
        )
        return [_turned_round(b, values), indices]
    if not k.is_constant and (k.dtype is not DType.INT32 or k.rank):
        return b.many(ops.TopK, x, b(ops.Reshape, as_int32(b, k), np.zeros(0, np.int64)), **node.attributes)
    if x.rank > 2 and x.tensor_type.is_static:
        rows = reshape(b, x, (product(x.shape[:-1]), x.shape[-1]))
        results = b.many(ops.TopK, rows, k, **{**node.attributes, "axis": 1})
        return [reshape(b, v, r.shape, x) for v, r in zip(results, node.results, strict=True)]
    if x.dtype in (DType.INT16, DType.UINT16):
        values, indices = b.many(ops.TopK, b(ops.Convert, x, dtype=DType.INT32), k, **node.attributes)
        return [b(ops.Convert, values, dtype=x.dtype), indices]
    if x.dtype is DType.UINT64:
        values, indices = b.many(
            ops.TopK, _shifted(b, b(ops.BitcastConvert, x, dtype=DType.INT64)), k, **node.attributes
        )
        return [b(ops.BitcastConvert, _shifted(b, values), dtype=DType.UINT64), indices]
    return None


def _shifted(b: Builder, bits: Value) -> Value:
    """The bits of uint64 numbers as int64 numbers in the same order, and back: the highest bit changed."""
    return b(ops.Add, bits, b.scalar(-(1 << 63), DType.INT64))


def _turned_round(b: Builder, x: Value) -> Value:
    """Numbers in the opposite order: negated, integers complemented (which never overflows)."""
    if x.dtype.is_float:
        return b(ops.Neg, x)
    return b(ops.Sub, b.scalar(-1 if x.dtype.is_signed else (1 << x.dtype.bits) - 1, x), x)


@lower_onnx(ops.TopK)
def _to_onnx_top_k(node: Node, opset: int) -> Form | None:
    x, k = node.operand(0), node.operand(1)
    if node.attr("dtype") is not DType.INT64:
        return None
    attributes = {"axis": node.attr("axis"), "largest": int(node.attr("largest")), "sorted": int(node.attr("sorted"))}
    known = static_ints(k)
    if known is None and (k.rank != 1 or k.dtype is not DType.INT64):
        return None
    return Form("TopK", (x, k if known is None else np.asarray(known, np.int64)), attributes)


@decompose(ops.TopK, "onnx")
def _top_k_of_int64(b: Builder, node: Node) -> Sequence[Value] | None:
    x, k, dtype = node.operand(0), node.operand(1), node.attr("dtype")
    if dtype is DType.INT64 and (k.is_constant or (k.rank == 1 and k.dtype is DType.INT64)):
        return None
    k = k if k.is_constant else reshape(b, as_int64(b, k), (1,))
    values, indices = b.many(ops.TopK, x, k, **{**node.attributes, "dtype": DType.INT64})
    return [values, indices if dtype is DType.INT64 else b(ops.Convert, indices, dtype=dtype)]


@lift_tfl("TOPK_V2")
def _from_tfl_top_k(b: Builder, node: Node) -> Sequence[Value]:
    x = node.operand(0)
    return b.many(ops.TopK, x, node.operand(1), axis=x.rank - 1, dtype=node.results[1].dtype)


@decompose(ops.Sort)
def _sort(b: Builder, node: Node) -> Sequence[Value]:
    """All of TopK, and the other operands gathered the same way."""
    x, others = node.operand(0), node.operands[1:]
    axis = normalize_axis(node.attr("dimension"), x.rank)
    count = dim_value(b, x.shape[axis], x)
    values, order = b.many(ops.TopK, x, count, axis=axis, largest=node.attr("descending"), sorted=True)
    return [values, *(b(ops.GatherElements, v, order, axis=axis) for v in others if v is not None)]


# --- Unique ----------------------------------------------------------------------------------------------------------


@lift_onnx("Unique", since=(11, 28))
def _unique(b: Builder, node: Node) -> Sequence[Value]:
    x, axis = node.operand(0), node.attributes.get("axis")
    if axis is None:
        x = reshape(b, x, (product(x.shape),))
    elif x.rank == 1:
        axis = None
    results = b.many(ops.Unique, x, axis=axis, sorted=bool(node.attr("sorted", 1)))
    return results[: len(node.results)]


@lower_tfl(ops.Unique)
def _to_tfl_unique(node: Node) -> Form | None:
    """UNIQUE gives the values as they first occur, and which one each is."""
    dtype = node.attr("dtype")
    if node.attr("axis") is not None or node.attr("sorted") or node.operand(0).rank != 1 or _wanted(node, 1, 3):
        return None
    return Form("UNIQUE", (node.operand(0),), {"idx_out_type": dtype.name}, results=(0, 2))


def _wanted(node: Node, *indices: int) -> bool:
    outputs = node.graph.output_set() if node.graph is not None else set()
    return any(node.results[i].uses or node.results[i] in outputs for i in indices)


@decompose(ops.Unique, "tfl", "elements")
def _unique_of_uint64(b: Builder, node: Node) -> Sequence[Value] | None:
    x = node.operand(0)
    if x.dtype is not DType.UINT64:
        return None
    signed = _shifted(b, b(ops.BitcastConvert, x, dtype=DType.INT64))
    values, *places = b.many(ops.Unique, signed, **node.attributes)
    return [b(ops.BitcastConvert, _shifted(b, values), dtype=DType.UINT64), *places]


@decompose(ops.Unique, "tfl")
def _unique_from_unsorted(b: Builder, node: Node) -> Sequence[Value] | None:
    """All four results from the plain two: order by sorting, first places and counts by segments."""
    x, index = node.operand(0), node.attr("dtype")
    if node.attr("axis") is not None or (not node.attr("sorted") and not _wanted(node, 1, 3)):
        return None
    values, _, inverse, _ = b.many(ops.Unique, x, sorted=False, dtype=DType.INT32)
    count = b(ops.Shape, values, dtype=DType.INT32)
    if node.attr("sorted"):
        values, order = b.many(ops.TopK, values, count, axis=0, largest=False, dtype=DType.INT32)
        inverse = b(ops.Gather, _inverse_order(b, order, count), inverse, axis=0)
    total = reshape(b, as_int32(b, dim_value(b, x.shape[0], x)), ())
    places = b(ops.Range, b.scalar(0, DType.INT32), total, b.scalar(1, DType.INT32))
    scalar = reshape(b, count, ())
    first = b(ops.SegmentReduce, places, inverse, scalar, kind="min")
    ones = b(ops.BroadcastTo, b.scalar(1, DType.INT32), b(ops.Shape, x, dtype=DType.INT32))
    counts = b(ops.SegmentReduce, ones, inverse, scalar, kind="sum")
    return [
        values,
        *(b(ops.Convert, v, dtype=index) if index is not DType.INT32 else v for v in (first, inverse, counts)),
    ]


def _inverse_order(b: Builder, order: Value, count: Value) -> Value:
    """Where each position went: the order, itself sorted, gives the places."""
    return b.many(ops.TopK, order, count, axis=0, largest=False, dtype=DType.INT32)[1]


@decompose(ops.Unique, "tfl", "axes")
def _unique_slices(b: Builder, node: Node) -> Sequence[Value] | None:
    """Along an axis: slices are numbered by comparing all with all, and those numbers are made unique."""
    x, axis = node.operand(0), node.attr("axis")
    if axis is None or x.tensor_type.shape is None:
        return None
    axis = normalize_axis(axis, x.rank)
    n = x.shape[axis]
    if not isinstance(n, int) or not all(isinstance(d, int) for d in x.shape):
        raise UnsupportedError("unique slices need a shape known before run time", hint="give --input-shape")
    order = (axis, *(i for i in range(x.rank) if i != axis))
    rows = reshape(b, b(ops.Transpose, x, permutation=order), (n, product(x.shape) // n))
    ids = _row_ranks(b, rows) if node.attr("sorted") else _first_equal(b, rows)
    _, first, inverse, counts = b.many(ops.Unique, ids, sorted=True, dtype=node.attr("dtype"))
    return [b(ops.Gather, x, first, axis=axis), first, inverse, counts]


def _first_equal(b: Builder, rows: Value) -> Value:
    """For each row the place of the first one that equals it; these come in order of occurrence."""
    equal = b(ops.Compare, unsqueezed(b, rows, [1]), unsqueezed(b, rows, [0]), comparison_direction="EQ")
    same = b(ops.Reduce, equal, [2], kind="all", keepdims=False)
    return b(ops.ArgMax, b(ops.Convert, same, dtype=DType.INT32), axis=1, keepdims=False, dtype=DType.INT32)


def _row_ranks(b: Builder, rows: Value) -> Value:
    """For each row how many rows come before it, number by number."""
    left, right = unsqueezed(b, rows, [1]), unsqueezed(b, rows, [0])
    more = b(ops.Convert, b(ops.Compare, left, right, comparison_direction="GT"), dtype=DType.INT32)
    less = b(ops.Convert, b(ops.Compare, left, right, comparison_direction="LT"), dtype=DType.INT32)
    sign = b(ops.Sub, more, less)
    differs = b(ops.Convert, b(ops.Compare, sign, b.scalar(0, sign), comparison_direction="NE"), dtype=DType.INT32)
    place = b(ops.ArgMax, differs, axis=2, keepdims=True, dtype=DType.INT32)
    decisive = b(ops.GatherElements, sign, place, axis=2)
    behind = b(ops.Compare, decisive, b.scalar(0, sign), comparison_direction="GT")
    return b(ops.Reduce, b(ops.Convert, behind, dtype=DType.INT32), [1, 2], kind="sum", keepdims=False)


@lower_onnx(ops.Unique)
def _to_onnx_unique(node: Node, opset: int) -> Form | None:
    if node.attr("dtype") is not DType.INT64:
        return None
    axis = node.attr("axis")
    return Form(
        "Unique", (node.operand(0),), {"sorted": int(node.attr("sorted"))} | ({} if axis is None else {"axis": axis})
    )


@decompose(ops.Unique, "onnx", "elements")
def _unique_in_int64(b: Builder, node: Node) -> Sequence[Value] | None:
    if node.attr("dtype") is DType.INT64:
        return None
    values, *places = b.many(ops.Unique, node.operand(0), **{**node.attributes, "dtype": DType.INT64})
    return [values, *(b(ops.Convert, v, dtype=node.attr("dtype")) for v in places)]


@lift_tfl("UNIQUE")
def _from_tfl_unique(b: Builder, node: Node) -> Sequence[Value]:
    results = b.many(ops.Unique, node.operand(0), sorted=False, dtype=node.results[1].dtype)
    return [results[0], results[2]]
