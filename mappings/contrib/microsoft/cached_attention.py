"""Attention of decoders with groups of heads that share keys, and a cache of past keys: GroupQueryAttention."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from onnxtfl.mappings.contrib.microsoft.attention import dot, in_heads
from onnxtfl.mappings.contrib.microsoft.rotary_embedding import merged_heads, rotated

from onnxtfl.build.qlinear import MICROSOFT
from onnxtfl.build.sizes import INT32_MAX, range_below
from onnxtfl.errors import UnsupportedError
from onnxtfl.ir import ops
from onnxtfl.ir.assumptions import assume
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.dims import Dim, known_size
from onnxtfl.ir.formula import Term
from onnxtfl.ir.graph import Node, Value, constant
from onnxtfl.ir.reshape import as_int64, broadcast, dim_value, dim_vector, reshape, transposed, unsqueezed
from onnxtfl.ir.types import DType
from onnxtfl.rewriting.registry import lift_onnx


class _Cache(NamedTuple):
    """Keys and values [b, heads of keys, total, size], and the number of positions before the new ones [b] or [1]."""

    k: Value
    v: Value
    before: Value


_REFUSED = {
    12: "a quantized cache",
    13: "a quantized cache",
    16: "queries of several lengths",
}


@lift_onnx("GroupQueryAttention", since=(1,), domain=MICROSOFT)
def _group_query(b: Builder, node: Node) -> list[Value]:
    """Result [b, s, heads * size], then the cache with the new keys and values at the positions after `before`.

    Operands as in ONNX Runtime's CPU kernel (contrib_ops/cpu/bert/group_query_attention.cc): `seqlens_k` is the number
    of number of positions with the new ones, less 1.
    """
    what = next((text for i, text in _REFUSED.items() if node.optional(i) is not None), None)
    what = "a cache of a window" if node.attr("sliding_window_cache", 0) else what
    if what is not None:
        raise UnsupportedError(f"{what} in GroupQueryAttention")
    heads, groups = int(node.attributes["num_heads"]), int(node.attributes["kv_num_heads"])
    q, k, v = _parts(b, node, heads, groups)
    q, k = (_normal(b, node, part, i) for i, part in enumerate((q, k)))
    before = _before(b, node, k)
    if node.attr("do_rotary", 0):
        q, k = (_turned(b, node, part, before) for part in (q, k))
    cache = _Cache(_stored(b, node, 3, k, before), _stored(b, node, 4, v, before), before)
    result, products = _grouped(b, node, q, cache, groups)
    return [result, cache.k, cache.v, products][: len(node.results)]


def _normal(b: Builder, node: Node, x: Value, index: int) -> Value:
    """Queries (0) or keys (1), each head divided by the root of its mean square, times weights; unchanged without
    weights."""
    weights = node.optional(14 + index)
    if weights is None:
        return x
    epsilon = node.attr("qk"[index] + "_norm_epsilon", None)
    epsilon = node.attr("qk_norm_epsilon", 1e-6) if epsilon is None else epsilon
    wide = Term(b, x).to(DType.FLOAT32)
    normal = wide * ((wide * wide).mean([3]) + float(epsilon)).rsqrt()
    return (normal * Term(b, weights).to(DType.FLOAT32)).to(x.dtype).value


def _parts(b: Builder, node: Node, heads: int, groups: int) -> list[Value]:
    """Query, key and value as [b, heads, s, size]; they may be columns of one operand."""
    query, key, value = node.operand(0), node.optional(1), node.optional(2)
    if key is None or value is None:
        hidden = query.shape[2]
        hidden = known_size(hidden, "the size of heads")
        size = hidden // (heads + 2 * groups)
        query, key, value = b.many(ops.Split, query, [heads * size, groups * size, groups * size], axis=2)
    return [in_heads(b, query, heads), in_heads(b, key, groups), in_heads(b, value, groups)]


def _is_first(node: Node) -> bool:
    """Whether there are no past positions."""
    past = node.optional(3)
    return past is None or past.shape[2] == 0


def _before(b: Builder, node: Node, k: Value) -> Value:
    """The number of past positions of each row, as int64 [b]; zero [1] if there are none."""
    if _is_first(node):
        return constant(np.zeros(1, np.int64))
    total = Term(b, as_int64(b, reshape(b, node.operand(5), [k.shape[0]], k))) + 1
    return (total - Term(b, dim_value(b, k.shape[2], k))).max(0).value


def _turned(b: Builder, node: Node, x: Value, before: Value) -> Value:
    """Queries or keys at the positions after `before`, or at `position_ids`."""
    places = node.optional(9)
    if places is None:
        own = Term(b, unsqueezed(b, before, [1])).apply(ops.Add, unsqueezed(b, range_below(b, x.shape[2], x), [0]))
        places = own.value
    return rotated(b, x, places, node.operand(7), node.operand(8), bool(node.attr("rotary_interleaved", 0)))


def _stored(b: Builder, node: Node, index: int, new: Value, before: Value) -> Value:
    """The cache with `new` [b, heads, s, size] at the positions after `before`.

    Its length is that of the past plus the new ones, or that of the past if it is a buffer of fixed size; if unknown,
    at time the larger one of that of the past and `total_sequence_length`.
    """
    if _is_first(node):
        return new
    past = node.operand(index)
    length, more = past.shape[2], new.shape[2]
    whole = b(ops.Concatenate, past, new, axis=2)
    if not _grows(node, length + more) and isinstance(length, int):
        assume(f"the cache of {length} positions holds all of them")
        whole = past
    elif not _grows(node, length + more):
        total = Term(b, as_int64(b, reshape(b, node.operand(6), [1]))).max(Term(b, dim_value(b, length, past)))
        everything = np.full(1, INT32_MAX, np.int64)
        limits = b(ops.Concatenate, everything, everything, total.value, everything, axis=0)
        whole = b(ops.Slice, whole, [0] * 4, limits, [1] * 4)
    total = whole.shape[2]
    place = Term(b, unsqueezed(b, range_below(b, total, whole), [0])) - Term(b, unsqueezed(b, before, [1]))
    inside = (place >= 0) & (place < Term(b, dim_value(b, more, new)))
    index_ = place.max(0).min(Term(b, dim_value(b, more, new)) - 1).value
    return _chosen(b, inside.value, index_, new, whole)


def _grows(node: Node, total: Dim) -> bool:
    """Whether the new positions follow all of the past, as far as `total_sequence_length` is known."""
    known = node.operand(6).known
    return known is not None and known.reshape(-1)[0] == total


def _chosen(b: Builder, inside: Value, index: Value, new: Value, whole: Value) -> Value:
    """Elements of `new` at `index` [1 or b, total] where `inside`, else of `whole`."""
    batch, total = new.shape[0], whole.shape[2]
    index = broadcast(b, index, [batch, total], new, whole)
    moved = transposed(b, new, (0, 2, 1, 3))
    taken = transposed(b, b(ops.Gather, moved, index, axis=1, batch_dims=1), (0, 2, 1, 3))
    return b(ops.Select, unsqueezed(b, inside, [1, 3]), taken, whole)


def _grouped(b: Builder, node: Node, q: Value, cache: _Cache, groups: int) -> tuple[Value, Value]:
    """softmax(q @ k.T) @ v, where `heads / groups` heads of q share a head of the cache; and the products of each head.

    With `qk_output` 2 these are after the softmax; before it, they are 0 for keys that do not count.
    """
    batch, heads, length, size = q.shape[0], q.size(1), q.shape[2], q.size(3)
    per = heads // groups
    scale = float(node.attr("scale", 0.0) or 0.0) or size**-0.5
    stacked = reshape(b, q, [batch, groups, length * per, size], q)
    scores = dot(b, stacked, cache.k, [0, 1], 3, 3) * scale
    total = cache.k.shape[2]
    scores = Term(b, reshape(b, scores.value, [batch, heads, length, total], q, cache.k))
    cap = float(node.attr("softcap", 0.0) or 0.0)
    scores = scores if cap <= 0 else (scores / cap).tanh() * cap
    added = node.optional(10)
    scores = scores if added is None else scores.apply(ops.Add, added)
    seen = _visible(b, node, scores, cache.before)
    shares = _softmax(b, node, seen.choose(scores, float(np.finfo(scores.dtype.numpy).min)))
    weights = reshape(b, shares, [batch, groups, length * per, total], q, cache.k)
    result = dot(b, weights, cache.v, [0, 1], 3, 2)
    width = cache.v.shape[3]
    merged = merged_heads(b, reshape(b, result.value, [batch, heads, length, width], q), q)
    return merged, shares if node.attr("qk_output", 0) == 2 else seen.choose(scores, 0.0).value


def _visible(b: Builder, node: Node, scores: Term, before: Value) -> Term:
    """Whether a key is neither after the row's own position nor before its window."""
    length, total = scores.value.shape[2:]
    own = Term(b, unsqueezed(b, before, [1, 2])).apply(
        ops.Add, unsqueezed(b, range_below(b, length, scores.value), [1])
    )
    key = Term(b, range_below(b, total, scores.value))
    causal = bool(node.attr("causal", 1))
    seen = key <= (own if causal else own.reduce("max", [1]))
    window = int(node.attr("local_window_size", -1))
    if window > 0:
        seen = seen & (key > own - window)
    return Term(b, unsqueezed(b, seen.value, [1]))


def _softmax(b: Builder, node: Node, scores: Term) -> Value:
    """Softmax along the last axis; with `smooth_softmax`, or a sink for each head, its sum has another term."""
    sink = node.optional(11)
    if sink is None and node.attr("smooth_softmax", 0) != 1:
        return b(ops.Softmax, scores.value, axis=3)
    one = constant(np.zeros(1, scores.dtype.numpy)) if sink is None else sink
    batch, heads, length, total = scores.value.shape
    column = broadcast(b, reshape(b, one, [one.shape[0], 1, 1]), [batch, heads, length, 1], scores.value)
    whole = b(ops.Softmax, b(ops.Concatenate, scores.value, column, axis=3), axis=3)
    bounds = dim_vector(b, [0, 0, 0, 0], scores.value), dim_vector(b, [batch, heads, length, total], scores.value)
    return b(ops.Slice, whole, *bounds, [1, 1, 1, 1])
