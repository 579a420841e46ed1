"""TopK without a kernel: for targets that compare, reduce and loop."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.dims import is_static, known_size, product
from onnxtfl.ir.formula import Term
from onnxtfl.ir.graph import Graph, Node, Value, constant
from onnxtfl.ir.reshape import reshape, transposed, unsqueezed
from onnxtfl.ir.shapes import static_ints
from onnxtfl.ir.types import DType, Type

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
    flags = {"carried": 1, "result_axes": (0, 0), "result_reversed": (False, False)}
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
