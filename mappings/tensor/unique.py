"""Distinct elements, or slices along an axis: Unique."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from onnxtfl.build.qlinear import MICROSOFT
from onnxtfl.build.rows import row
from onnxtfl.build.sizes import as_int32, with_dtype
from onnxtfl.errors import UnsupportedError
from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.dims import product
from onnxtfl.ir.formula import Term
from onnxtfl.ir.graph import Node, Value, constant
from onnxtfl.ir.reshape import dim_value, iota, reshape, transpose_and_merge, unsqueezed
from onnxtfl.ir.shapes import normalize_axis
from onnxtfl.ir.types import DType
from onnxtfl.rewriting.registry import Form, decompose, lift_onnx, lift_tfl, lower_tfl


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
    if not x.is_static:
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
    return same.apply(ops.ArgMax, axis=1, keepdims=False, dtype=DType.INT32)


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
