"""TopK, also without a kernel: for targets that compare, reduce and loop."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from onnxtfl.build.operands import moved_last, on_permuted, to_operand
from onnxtfl.build.rows import ResultType, row
from onnxtfl.build.sizes import as_int32, with_dtype
from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.dims import is_static, known_size, product
from onnxtfl.ir.formula import Term
from onnxtfl.ir.graph import Graph, Node, Value, constant
from onnxtfl.ir.ops.loops import scan_attributes
from onnxtfl.ir.reshape import as_int64, reshape, transposed, unsqueezed
from onnxtfl.ir.shapes import normalize_axis, static_ints
from onnxtfl.ir.types import DType, Type
from onnxtfl.rewriting.registry import Form, decompose, lower_onnx, lower_tfl, ordered_onnx, upgrade

MOST_COMPARED = 1 << 14
"""The most pairs that are compared; for more, each of `k` iterations selects the maximum."""
MOST_ROUNDS = 1 << 12
"""The largest `k` that is selected iteratively."""


def top_k_by_comparing(b: Builder, node: Node) -> Sequence[Value] | None:
    """Return the `k` largest elements along the static last axis: by comparing all pairs, or one per iteration."""
    x, known = node.operand(0), static_ints(node.operand(1))
    is_last = node.attr("largest") and node.attr("axis") in (-1, x.rank - 1) and node.attr("dtype") is DType.INT32
    if not is_last or known is None or not known[0] or not is_static(x.shape):
        return None
    if not (x.dtype is DType.FLOAT32 or x.dtype is DType.INT32) or x.is_quantized:
        return None
    size = int(x.shape[-1])
    if known_size(product(x.shape)) * size <= MOST_COMPARED:
        return _by_rank(b, x, known[0])
    return _by_rounds(b, x, known[0]) if known[0] <= MOST_ROUNDS else None


def _by_rank(b: Builder, x: Value, k: int) -> list[Value]:
    """Sort by rank: the number of larger elements and of equal ones with a smaller index."""
    size, axis = x.size(-1), x.rank
    places = np.arange(size, dtype=np.int32)
    one, other = (Term(b, unsqueezed(b, x, [a])) for a in (axis, axis - 1))
    is_first = Term(b, constant(places[:, None] > places))
    is_before = (other > one) | (other.equals(one) & is_first)
    rank = is_before.to(DType.FLOAT32).reduce("sum", [axis], keepdims=False)
    wanted = constant(np.arange(k, dtype=np.float32)[:, None])
    is_chosen = Term(b, unsqueezed(b, rank.value, [axis - 1])).equals(Term(b, wanted))
    values = is_chosen.choose(other, 0).reduce("sum", [axis], keepdims=False)
    indices = is_chosen.to(DType.FLOAT32).apply(ops.ArgMax, axis=axis, keepdims=False, dtype=DType.INT32)
    return [values.value, indices.value]


def _lowest(x: Value) -> float:
    return -np.inf if x.dtype.is_float else int(np.iinfo(x.dtype.numpy).min)


def _by_rounds(b: Builder, x: Value, k: int) -> list[Value]:
    """Select the first maximum of the remaining elements in each of `k` iterations."""
    left = constant(np.ones([known_size(d) for d in x.shape], np.bool_))
    body = _round(left.type, x)
    flags = scan_attributes(1, result_axes=(0, 0))
    _, values, indices = b.many(ops.Scan, constant(np.asarray(k, np.int64)), left, x, body=body, **flags)
    order = (*range(1, x.rank), 0)
    return [transposed(b, v, order) for v in (values, indices)]


def _round(left_type: Type | None, like: Value) -> Graph:
    """Return the remaining elements after an iteration, the maximum of each row, and its index.

    If all remaining elements are -inf, a kernel's maximum may be larger: then the first remaining element is selected.
    """
    region = Graph("round")
    b, axis = Builder(region), like.rank - 1
    left, x = Term(b, region.add_input(left_type)), Term(b, region.add_input(like.type))
    top = left.choose(x, _lowest(like)).reduce("max", [axis], keepdims=True)
    is_top = (left & x.equals(top)).to(DType.FLOAT32) + left.to(DType.FLOAT32) * 0.5
    index = is_top.apply(ops.ArgMax, axis=axis, keepdims=True, dtype=DType.INT32)
    places = Term(b, constant(np.arange(like.size(-1), dtype=np.int32)))
    value = places.equals(index).choose(x, 0).reduce("sum", [axis], keepdims=False)
    region.outputs = [(left & places.differs(index)).value, value.value, reshape(b, index.value, like.shape[:-1])]
    return region


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
    return x.rank > 2 and _along_the_last_axis(node)


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
