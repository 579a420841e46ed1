"""Attention of com.microsoft with past keys in a cache.

com.microsoft: GroupQueryAttention (groups of query heads share a key head), DecoderMaskedMultiHeadAttention. Refused:
PagedAttention, SparsePagedAttention, SparseAttention
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from onnxtfl.mappings.contrib.microsoft.attention import (
    attention_on_buffers,
    attention_scores,
    dot,
    merge_heads,
    query_key_value,
    refuse_beams,
    split_heads,
    weighted_values,
)
from onnxtfl.mappings.contrib.microsoft.rotary_embedding import rotate

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
from onnxtfl.ir.shapes import known_dims
from onnxtfl.ir.types import DType
from onnxtfl.rewriting.registry import lift_onnx, refuse_onnx


class _Cache(NamedTuple):
    """The updated cache [b, key heads, total, size], and the number of past positions of each row [b] or [1]."""

    k: Value
    v: Value
    past_length: Value


_REFUSED = {
    12: "a quantized cache",
    13: "a quantized cache",
    16: "queries of several lengths",
}
"""The unsupported features, by the index of the optional operand that enables them."""


@lift_onnx("GroupQueryAttention", since=(1,), domain=MICROSOFT)
def _group_query(b: Builder, node: Node) -> list[Value]:
    """The result [b, s, heads * size], the cache of keys, the cache of values, and the scores (see `_grouped`).

    Operands as in ONNX Runtime's CPU kernel (contrib_ops/cpu/bert/group_query_attention.cc): `seqlens_k` is the number
    of past and new positions, minus 1.
    """
    unsupported = next((text for i, text in _REFUSED.items() if node.optional(i) is not None), None)
    if node.attr("sliding_window_cache", 0) and not _is_alone(node):
        unsupported = "a sliding-window cache"
    if unsupported is not None:
        raise UnsupportedError(f"GroupQueryAttention with {unsupported} is not supported")
    heads, groups = int(node.attributes["num_heads"]), int(node.attributes["kv_num_heads"])
    *parts, v = _query_key_value(b, node, heads, groups)
    past_length = _past_length(b, node, v)
    if len(parts) == 2:
        parts = [_normalize_heads(b, node, part, i) for i, part in enumerate(parts)]
    if node.attr("do_rotary", 0):
        parts = [_rotate(b, node, part, past_length) for part in parts]
    q, k = parts if len(parts) == 2 else b.many(ops.Split, parts[0], [heads, groups], axis=1)
    cache = _Cache(_updated_cache(b, node, 3, k, past_length), _updated_cache(b, node, 4, v, past_length), past_length)
    result, scores = _grouped(b, node, q, cache, groups)
    return [result, cache.k, cache.v, scores][: len(node.results)]


def _normalize_heads(b: Builder, node: Node, x: Value, index: int) -> Value:
    """RMS-normalize each head of the queries (`index` 0) or keys (1); without weights, `x` is unchanged.

    y = x / sqrt(mean(x ** 2) + epsilon) * weights
    """
    weights = node.optional(14 + index)
    if weights is None:
        return x
    epsilon = node.attr("qk"[index] + "_norm_epsilon", None)
    epsilon = node.attr("qk_norm_epsilon", 1e-6) if epsilon is None else epsilon
    wide = Term(b, x).to(DType.FLOAT32)
    normalized = wide * ((wide * wide).mean([3]) + float(epsilon)).rsqrt()
    return (normalized * Term(b, weights).to(DType.FLOAT32)).to(x.dtype).value


def _query_key_value(b: Builder, node: Node, heads: int, groups: int) -> list[Value]:
    """Query, key and value as [b, heads, s, size]; without keys or values, the query has the columns of all three.

    Queries and keys are one value if the same rotation applies to both.
    """
    query, key, value = node.operand(0), node.optional(1), node.optional(2)
    counts = [heads, groups, groups]
    if key is not None and value is not None:
        parts: Sequence[Value] = query, key, value
    else:
        size = known_size(query.shape[2], "the number of columns of all heads") // sum(counts)
        if node.attr("do_rotary", 0) and node.optional(14) is node.optional(15) is None:
            counts = [heads + groups, groups]
        parts = b.many(ops.Split, query, [n * size for n in counts], axis=2)
    return [split_heads(b, part, n) for part, n in zip(parts, counts, strict=True)]


def _has_no_past(node: Node) -> bool:
    """Whether the cache operand is absent or empty."""
    past = node.optional(3)
    return past is None or past.shape[2] == 0


def _past_length(b: Builder, node: Node, k: Value) -> Value:
    """The number of past positions of each row, as int64 [b]; 0 as [1] if there is no past.

    `total_sequence_length`, the largest number of positions of a row, is that of the only row.
    """
    if _has_no_past(node):
        return constant(np.zeros(1, np.int64))
    if k.shape[0] == 1 and (total := known_dims(node.operand(6))) is not None:
        return dim_vector(b, [total[0] - k.shape[2]], k)
    sequence = Term(b, as_int64(b, reshape(b, node.operand(5), [k.shape[0]], k))) + 1
    return (sequence - Term(b, dim_value(b, k.shape[2], k))).max(0).value


def _rotate(b: Builder, node: Node, x: Value, past_length: Value) -> Value:
    """Queries or keys, rotated for the positions from `past_length` on, or for `position_ids` if present."""
    positions = node.optional(9)
    if positions is None:
        position = Term(b, unsqueezed(b, past_length, [1])).apply(
            ops.Add, unsqueezed(b, range_below(b, x.shape[2], x), [0])
        )
        positions = position.value
    return rotate(b, x, positions, node.operand(7), node.operand(8), bool(node.attr("rotary_interleaved", 0)))


def _updated_cache(b: Builder, node: Node, index: int, new: Value, past_length: Value) -> Value:
    """The cache operand `index` with `new` [b, heads, s, size] written at the positions from `past_length` on.

    The length of the result is

    - past + new, if `total_sequence_length` is this constant;
    - past, if it is static: the cache is a buffer of fixed size;
    - else the maximum of past and `total_sequence_length`, at run time.
    """
    if _has_no_past(node):
        return new
    past = node.operand(index)
    length, new_length = past.shape[2], new.shape[2]
    cache = b(ops.Concatenate, past, new, axis=2)
    if _is_alone(node):
        return cache
    if not _is_appended(node, length + new_length) and isinstance(length, int):
        assume(f"the cache of {length} positions has room for all past and new positions")
        cache = past
    elif not _is_appended(node, length + new_length):
        total = Term(b, as_int64(b, reshape(b, node.operand(6), [1]))).max(Term(b, dim_value(b, length, past)))
        whole_axis = np.full(1, INT32_MAX, np.int64)
        limits = b(ops.Concatenate, whole_axis, whole_axis, total.value, whole_axis, axis=0)
        cache = b(ops.Slice, cache, [0] * 4, limits, [1] * 4)
    total = cache.shape[2]
    offset = Term(b, unsqueezed(b, range_below(b, total, cache), [0])) - Term(b, unsqueezed(b, past_length, [1]))
    inside = (offset >= 0) & (offset < Term(b, dim_value(b, new_length, new)))
    source_index = offset.max(0).min(Term(b, dim_value(b, new_length, new)) - 1).value
    return _select_new(b, inside.value, source_index, new, cache)


def _is_alone(node: Node) -> bool:
    """Whether one row is processed, with all its past positions in the cache."""
    query, past = node.operand(0), node.optional(3)
    return query.shape[0] == 1 and past is not None and _is_appended(node, past.shape[2] + query.shape[1])


def _is_appended(node: Node, total: Dim) -> bool:
    """Whether `total_sequence_length` is the constant `total` (past + new): the new positions are appended."""
    constant_total = node.operand(6).known
    return constant_total is not None and constant_total.reshape(-1)[0] == total


def _select_new(b: Builder, inside: Value, index: Value, new: Value, cache: Value) -> Value:
    """`new` gathered at `index` [1 or b, total] where `inside` is true, else `cache`; both [b, heads, total, size]."""
    batch, total = new.shape[0], cache.shape[2]
    index = broadcast(b, index, [batch, total], new, cache)
    moved = transposed(b, new, (0, 2, 1, 3))
    gathered = transposed(b, b(ops.Gather, moved, index, axis=1, batch_dims=1), (0, 2, 1, 3))
    return b(ops.Select, unsqueezed(b, inside, [1, 3]), gathered, cache)


def _grouped(b: Builder, node: Node, q: Value, cache: _Cache, groups: int) -> tuple[Value, Value]:
    """softmax(q @ k.T * scale + bias) @ v, where heads / groups heads of q share one head of the cache; and the scores.

    With `qk_output` 2, the returned scores are those after the softmax; else those before it, 0 for masked keys.
    """
    batch, heads, length, size = q.shape[0], q.size(1), q.shape[2], q.size(3)
    group_size = heads // groups
    scale = float(node.attr("scale", 0.0) or 0.0) or size**-0.5
    stacked = reshape(b, q, [batch, groups, length * group_size, size], q)
    scores = dot(b, stacked, cache.k, [0, 1], 3, 3) * scale
    total = cache.k.shape[2]
    scores = Term(b, reshape(b, scores.value, [batch, heads, length, total], q, cache.k))
    cap = float(node.attr("softcap", 0.0) or 0.0)
    scores = scores if cap <= 0 else (scores / cap).tanh() * cap
    added = node.optional(10)
    scores = scores if added is None else scores.apply(ops.Add, added)
    visible = _visible(b, node, scores, cache.past_length)
    probabilities = _softmax(b, node, visible.choose(scores, float(np.finfo(scores.dtype.numpy).min)))
    weights = reshape(b, probabilities, [batch, groups, length * group_size, total], q, cache.k)
    result = dot(b, weights, cache.v, [0, 1], 3, 2)
    width = cache.v.shape[3]
    merged = merge_heads(b, reshape(b, result.value, [batch, heads, length, width], q), q)
    return merged, probabilities if node.attr("qk_output", 0) == 2 else visible.choose(scores, 0.0).value


def _visible(b: Builder, node: Node, scores: Term, past_length: Value) -> Term:
    """Whether a key is visible: query - window < key <= query, as bools [b or 1, 1, s, total].

    If not `causal`, all keys up to the last query are visible. Without `local_window_size`, there is no lower bound.
    """
    length, total = scores.value.shape[2:]
    position = Term(b, unsqueezed(b, past_length, [1, 2])).apply(
        ops.Add, unsqueezed(b, range_below(b, length, scores.value), [1])
    )
    key = Term(b, range_below(b, total, scores.value))
    causal = bool(node.attr("causal", 1))
    visible = key <= (position if causal else position.reduce("max", [1]))
    window = int(node.attr("local_window_size", -1))
    if window > 0:
        visible = visible & (key > position - window)
    return Term(b, unsqueezed(b, visible.value, [1]))


def _softmax(b: Builder, node: Node, scores: Term) -> Value:
    """Softmax along the last axis; an attention sink adds exp(sink) to the denominator.

    The sink is an operand with one element a head, or 0 for `smooth_softmax`.
    """
    sink = node.optional(11)
    if sink is None and node.attr("smooth_softmax", 0) != 1:
        return b(ops.Softmax, scores.value, axis=3)
    sink = constant(np.zeros(1, scores.dtype.numpy)) if sink is None else sink
    batch, heads, length, total = scores.value.shape
    column = broadcast(b, reshape(b, sink, [sink.shape[0], 1, 1]), [batch, heads, length, 1], scores.value)
    with_sink = b(ops.Softmax, b(ops.Concatenate, scores.value, column, axis=3), axis=3)
    bounds = dim_vector(b, [0, 0, 0, 0], scores.value), dim_vector(b, [batch, heads, length, total], scores.value)
    return b(ops.Slice, with_sink, *bounds, [1, 1, 1, 1])


@lift_onnx("DecoderMaskedMultiHeadAttention", since=(1,), domain=MICROSOFT)
def _decoder_attention(b: Builder, node: Node) -> list[Value]:
    """Attention of one query position on buffers shared by past and present, or, without past, on the operands' keys.

    Source: ONNX Runtime, contrib_ops/cpu/bert/decoder_masked_multihead_attention.cc.
    """
    refuse_beams(node)
    parts = query_key_value(b, node, node.optional(10))
    past, past_length = [node.optional(i) for i in (5, 6)], node.optional(7)
    mask_and_bias = [node.optional(i) for i in (3, 4)]
    if past[0] is None:
        scores = attention_scores(b, node, parts[0], parts[1], *mask_and_bias)
        return [weighted_values(b, scores, parts[2]), *parts[1:], scores.value][: len(node.results)]
    if past_length is None or not node.attr("past_present_share_buffer", 0):
        raise UnsupportedError(
            "past and present keys in separate buffers are not supported (past_present_share_buffer = 0)"
        )
    return attention_on_buffers(b, node, parts, past, past_length, mask_and_bias)


refuse_onnx(
    *("PagedAttention", "SparsePagedAttention"),
    why="it processes the tokens of many requests at once, with a paged cache",
    hint="export the model for one request, with GroupQueryAttention or CausalConvWithState",
    domain=MICROSOFT,
)
refuse_onnx(
    "SparseAttention",
    why="it updates its operands, the buffers of past keys and values, in place",
    hint="export the model with GroupQueryAttention",
    domain=MICROSOFT,
)
