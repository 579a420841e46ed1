"""Order along an axis: TopK, Sort, Unique, BUCKETIZE."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
from onnxtfl.mappings.tensor.comparators import sorted_order
from onnxtfl.mappings.tensor.ranking import top_k_by_comparing

from onnxtfl.build.operands import moved_last, on_permuted, to_operand
from onnxtfl.build.qlinear import MICROSOFT
from onnxtfl.build.rows import ResultType, row
from onnxtfl.build.sizes import as_int32, with_dtype
from onnxtfl.errors import UnsupportedError
from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.dims import product
from onnxtfl.ir.formula import Term
from onnxtfl.ir.graph import Node, Value, constant
from onnxtfl.ir.reshape import as_int64, dim_value, iota, reshape, transpose_and_merge, unsqueezed
from onnxtfl.ir.shapes import normalize_axis, static_ints
from onnxtfl.ir.types import DType
from onnxtfl.rewriting.registry import (
    Form,
    decompose,
    lift_onnx,
    lift_tfl,
    lower_onnx,
    lower_tfl,
    ordered_onnx,
    regions_of,
    upgrade,
)


@lift_tfl("BUCKETIZE")
def _bucketize(b: Builder, node: Node) -> Value:
    """Return the number of boundaries <= x; all for NaN.

    Source: LiteRT kernels/bucketize.cc (std::upper_bound).
    """
    x, boundaries = Term(b, node.operand(0)), np.asarray(node.attr("boundaries") or (), np.float32)
    real = x if x.dtype.is_float else x.to(DType.FLOAT32)
    below = Term(b, unsqueezed(b, real.value, [x.rank])) < Term(b, constant(boundaries, real.dtype))
    return (below.to(DType.INT32) * -1 + 1).reduce("sum", [x.rank], keepdims=False).value


# --- TopK ------------------------------------------------------------------------------------------------------------

upgrade("TopK", since=(1,))(to_operand("k"))
ordered_onnx("TopK", sorted=1)
row(ops.TopK, onnx="TopK", since=(10, 11, 24), attributes="axis largest sorted", axes=("axis",), lowers=False)
row(ops.TopK, tfl="TOPK_V2", tfl_options={"dtype": ResultType("", index=1)}, lowers=False)


@lower_tfl(ops.TopK)
def _to_tfl_top_k(node: Node) -> Form | None:
    """TOPK_V2: the largest elements along the last axis, with int32 indices."""
    x, k = node.operand(0), node.operand(1)
    if not node.attr("largest") or node.attr("axis") not in (-1, x.rank - 1) or node.attr("dtype") is not DType.INT32:
        return None
    known = static_ints(k)
    return Form("TOPK_V2", (x, k if known is None else np.asarray(known[0], np.int32)))


def _along_the_last_axis(node: Node) -> bool:
    rank = node.operand(0).rank
    return normalize_axis(node.attr("axis"), rank) == rank - 1


@decompose(ops.TopK, "tfl", when=lambda node: not _along_the_last_axis(node), benefit=5)
def _top_k_with_its_axis_last(b: Builder, node: Node) -> Sequence[Value]:
    rank = node.operand(0).rank
    return on_permuted(b, node, moved_last(normalize_axis(node.attr("axis"), rank), rank))


decompose(ops.TopK, "tfl", when=lambda node: node.attr("dtype") is not DType.INT32, benefit=4)(
    partial(with_dtype, dtype=DType.INT32)
)


@decompose(ops.TopK, "tfl", when=lambda node: not node.attr("largest"), benefit=3)
def _smallest(b: Builder, node: Node) -> Sequence[Value]:
    """Return the smallest elements: the largest ones in reverse order."""
    x, k = node.operand(0), node.operand(1)
    values, indices = b.many(ops.TopK, _in_reverse_order(b, x), k, **{**node.attributes, "largest": True})
    return [_in_reverse_order(b, values), indices]


def _has_other_count(node: Node) -> bool:
    k = node.operand(1)
    return not k.is_constant and (k.dtype is not DType.INT32 or k.rank > 0)


@decompose(ops.TopK, "tfl", when=_has_other_count, benefit=2)
def _top_k_of_an_int32(b: Builder, node: Node) -> Sequence[Value]:
    k = reshape(b, as_int32(b, node.operand(1)), ())
    return b.many(ops.TopK, node.operand(0), k, **node.attributes)


def _is_of_matrices(node: Node) -> bool:
    x = node.operand(0)
    return x.rank > 2 and x.tensor_type.is_static and _along_the_last_axis(node)


@decompose(ops.TopK, "tfl", when=_is_of_matrices, benefit=1)
def _top_k_of_rows(b: Builder, node: Node) -> Sequence[Value]:
    """Merge all axes but the last."""
    x = node.operand(0)
    rows = reshape(b, x, (product(x.shape[:-1]), x.shape[-1]))
    results = b.many(ops.TopK, rows, node.operand(1), **{**node.attributes, "axis": 1})
    return [reshape(b, v, r.shape, x) for v, r in zip(results, node.results, strict=True)]


@decompose(ops.TopK, "tfl", when=lambda node: node.operand(0).dtype in (DType.INT16, DType.UINT16))
def _top_k_of_int16(b: Builder, node: Node) -> Sequence[Value]:
    x = node.operand(0)
    values, indices = b.many(ops.TopK, b(ops.Convert, x, dtype=DType.INT32), node.operand(1), **node.attributes)
    return [b(ops.Convert, values, dtype=x.dtype), indices]


decompose(ops.TopK, "tfl")(top_k_by_comparing)


def _in_reverse_order(b: Builder, x: Value) -> Value:
    """Negate `x`; integers are complemented, which never overflows."""
    if x.dtype.is_float:
        return b(ops.Neg, x)
    return b(ops.Sub, b.scalar(-1 if x.dtype.is_signed else (1 << x.dtype.bits) - 1, x), x)


@lower_onnx(ops.TopK)
def _to_onnx_top_k(node: Node, opset: int) -> Form | None:
    x, k, known = node.operand(0), node.operand(1), static_ints(node.operand(1))
    if node.attr("dtype") is not DType.INT64 or (known is None and (k.rank != 1 or k.dtype is not DType.INT64)):
        return None
    attributes = {"axis": node.attr("axis"), "largest": int(node.attr("largest")), "sorted": int(node.attr("sorted"))}
    return Form("TopK", (x, k if known is None else np.asarray(known, np.int64)), attributes)


@decompose(ops.TopK, "onnx")
def _top_k_of_int64(b: Builder, node: Node) -> Sequence[Value] | None:
    k = node.operand(1)
    if not k.is_constant and (k.rank != 1 or k.dtype is not DType.INT64):
        return b.many(ops.TopK, node.operand(0), reshape(b, as_int64(b, k), (1,)), **node.attributes)
    return with_dtype(b, node, DType.INT64)


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


@lift_onnx("Unique", since=(1,), domain=MICROSOFT)
def _unique_in_order(b: Builder, node: Node) -> Sequence[Value]:
    """Return the distinct elements in order of occurrence, the index of each element among them, and their counts."""
    values, _, inverse, counts = b.many(ops.Unique, node.operand(0), axis=None, sorted=False)
    return [values, inverse, counts][: len(node.results)]


@lower_tfl(ops.Unique)
def _to_tfl_unique(node: Node) -> Form | None:
    """UNIQUE: the values in order of occurrence, and the index of each element among them."""
    dtype = node.attr("dtype")
    if node.attr("axis") is not None or node.attr("sorted") or node.operand(0).rank != 1 or _wanted(node, 1, 3):
        return None
    return Form("UNIQUE", (node.operand(0),), {"idx_out_type": dtype.name}, results=(0, 2))


def _wanted(node: Node, *indices: int) -> bool:
    outputs = node.graph.output_set() if node.graph is not None else set()
    return any(node.results[i].uses or node.results[i] in outputs for i in indices)


def _is_of_bools(node: Node) -> bool:
    return node.operand(0).dtype is DType.BOOL


@decompose(ops.Unique, None, "elements", when=_is_of_bools)
def _unique_bools(b: Builder, node: Node) -> Sequence[Value]:
    values, *others = b.many(ops.Unique, b(ops.Convert, node.operand(0), dtype=DType.UINT8), **node.attributes)
    return [b(ops.Convert, values, dtype=DType.BOOL), *others]


@decompose(ops.Unique, "tfl", when=lambda node: not _is_of_bools(node))
def _unique_from_unsorted(b: Builder, node: Node) -> Sequence[Value] | None:
    """Compute all four results from UNIQUE's two: sort by TopK, first indices and counts by segments."""
    x = node.operand(0)
    if node.attr("axis") is not None or (not node.attr("sorted") and not _wanted(node, 1, 3)):
        return None
    if (narrow := with_dtype(b, node, DType.INT32)) is not None:
        return narrow
    x = transpose_and_merge(b, x, [list(range(x.rank))])
    values, _, inverse, _ = b.many(ops.Unique, x, sorted=False, dtype=DType.INT32)
    count = b(ops.Shape, values, dtype=DType.INT32)
    ascending = {"axis": 0, "largest": False, "dtype": DType.INT32}
    if node.attr("sorted"):
        values, order = b.many(ops.TopK, values, count, **ascending)
        rank = b.many(ops.TopK, order, count, **ascending)[1]  # the inverse of the permutation `order`
        inverse = b(ops.Gather, rank, inverse, axis=0)
    places = iota(b, as_int32(b, dim_value(b, x.shape[0], x)))
    first = b(ops.SegmentReduce, places, inverse, reshape(b, count, ()), kind="min")
    ones = b(ops.BroadcastTo, b.scalar(1, DType.INT32), b(ops.Shape, x, dtype=DType.INT32))
    counts = b(ops.SegmentReduce, ones, inverse, reshape(b, count, ()), kind="sum")
    return [values, first, inverse, counts]


@decompose(ops.Unique, "tfl", "axes")
def _unique_slices(b: Builder, node: Node) -> Sequence[Value] | None:
    """Unique slices along an axis: compare all pairs, then apply Unique to the indices of the first equal slices."""
    x, axis = node.operand(0), node.attr("axis")
    if axis is None or x.tensor_type.shape is None:
        return None
    axis = normalize_axis(axis, x.rank)
    if not x.tensor_type.is_static:
        raise UnsupportedError("unique slices need a static shape", code="E-SHAPE-001")
    rows = transpose_and_merge(b, x, [[axis], [a for a in range(x.rank) if a != axis]])
    left, right = (Term(b, unsqueezed(b, rows, [place])) for place in (1, 0))
    if 0 in rows.shape[1:]:  # empty slices compare equal
        ids = Term(b, constant(np.zeros(rows.size(0), np.int32)))
    else:
        ids = _row_ranks(left, right) if node.attr("sorted") else _first_equal(left, right)
    _, first, inverse, counts = b.many(ops.Unique, ids.value, sorted=True, dtype=node.attr("dtype"))
    return [b(ops.Gather, x, first, axis=axis), first, inverse, counts]


def _first_equal(left: Term, right: Term) -> Term:
    """Return for each row the index of the first equal row."""
    same = left.equals(right).reduce("all", [2], keepdims=False).to(DType.INT32)
    return same.apply(ops.ArgMax, axis=1, dtype=DType.INT32)


def _row_ranks(left: Term, right: Term) -> Term:
    """Return for each row the number of lexicographically smaller rows."""
    sign = (left > right).to(DType.INT32) - (left < right).to(DType.INT32)
    place = sign.differs(0).to(DType.INT32).apply(ops.ArgMax, axis=2, keepdims=True, dtype=DType.INT32)
    after = sign.apply(ops.GatherElements, place, axis=2) > 0
    return after.to(DType.INT32).reduce("sum", [1, 2], keepdims=False)


row(ops.Unique, onnx="Unique", attributes="axis sorted", fixed={"dtype": DType.INT64}, lifts=False)
decompose(ops.Unique, "onnx", "elements")(partial(with_dtype, dtype=DType.INT64))


@lift_tfl("UNIQUE")
def _from_tfl_unique(b: Builder, node: Node) -> Sequence[Value]:
    results = b.many(ops.Unique, node.operand(0), sorted=False, dtype=node.results[1].dtype)
    return [results[0], results[2]]


# --- StableHLO -------------------------------------------------------------------------------------------------------


@regions_of("tfl.STABLEHLO_SORT")
def _comparator_as_it_is(node: Node) -> None:
    """Convert the comparator as a region: the file has the types of its inputs."""


@lift_tfl("STABLEHLO_SORT")
def _stablehlo_sort(b: Builder, node: Node) -> Sequence[Value]:
    """Sort all operands along `dimension` in the order of a comparator; always stable."""
    values = [node.operand(i) for i in range(len(node.operands))]
    shape = values[0].shape
    axis = normalize_axis(int(node.attr("dimension", -1)), len(shape)) if shape else 0
    if not shape or 0 in shape or shape[axis] == 1:
        return values
    order = sorted_order(b, values, node.attr("comparator_subgraph_index"), axis)
    return [b(ops.GatherElements, v, order, axis=axis) for v in values]
