"""Attention of decoders: rotary positions, groups of heads that share keys, and a cache of past keys.

com.microsoft: RotaryEmbedding, MRotaryEmbedding, GroupQueryAttention
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from onnxtfl.mappings.contrib.microsoft.attention import dot, in_heads

from onnxtfl.build.qlinear import MICROSOFT
from onnxtfl.build.sizes import INT32_MAX, counted, sliced
from onnxtfl.errors import InvalidModelError, UnsupportedError
from onnxtfl.ir import ops
from onnxtfl.ir.assumptions import assume
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.data import Array
from onnxtfl.ir.dims import Dim, known_size
from onnxtfl.ir.formula import Term
from onnxtfl.ir.graph import Node, Value, constant
from onnxtfl.ir.reshape import as_int64, broadcast, dim_value, dim_vector, reshape, transposed, unsqueezed
from onnxtfl.ir.types import DType
from onnxtfl.rewriting.registry import lift_onnx

# --- rotary positions -------------------------------------------------------------------------------------------------


@lift_onnx("RotaryEmbedding", since=(1,), domain=MICROSOFT)
def _rotary(b: Builder, node: Node) -> Value:
    """x [b, s, heads * size] or [b, heads, s, size], turned by the angles of each position.

    `position_ids` [b, s], or the first position [1]. Source: ONNX Runtime, contrib_ops/cpu/bert/rotary_embedding.cc.
    """
    x, ids, cos, sin = (node.operand(i) for i in range(4))
    part = int(node.attr("rotary_embedding_dim", 0))
    if node.attr("is_packed_batching", 0):
        raise UnsupportedError("is_packed_batching = 1")
    heads = int(node.attr("num_heads", 0)) if part else _exact(x.shape[-1], cos.shape[1])
    inner = in_heads(b, x, heads) if x.rank == 3 else x
    if ids.rank == 1:
        own = Term(b, ids) + Term(b, counted(b, inner.shape[2], inner)).to(ids.dtype)
        ids = unsqueezed(b, own.value, [0])
    turned = rotated(b, inner, ids, cos, sin, bool(node.attr("interleaved", 0)))
    return _merged_heads(b, turned, x) if x.rank == 3 else turned


def _exact(hidden: Dim, half: Dim) -> int:
    """The number of heads of `hidden` columns, each of twice `half`."""
    hidden, size = (known_size(d, "the size of heads") for d in (hidden, 2 * half))
    if not size or hidden % size:
        raise UnsupportedError(f"{hidden} columns for heads of {size}", code="E-SHAPE-001")
    return hidden // size


def _merged_heads(b: Builder, x: Value, source: Value) -> Value:
    batch, heads, length, size = x.shape
    return reshape(b, transposed(b, x, (0, 2, 1, 3)), [batch, length, heads * size], source)


def rotated(b: Builder, x: Value, places: Value, cos: Value, sin: Value, interleaved: bool) -> Value:
    """x [b, heads, s, size] turned by the angles at `places` [1 or b, s]; columns after those of the angles stay.

    Pairs are a column of the first half with one of the second, or neighbours if `interleaved`.
    """
    c, s = (b(ops.Gather, table, places, axis=0) for table in (cos, sin))
    return _turned_by(b, x, c, s, interleaved)


def _turned_by(b: Builder, x: Value, cos: Value, sin: Value, interleaved: bool) -> Value:
    """x [b, heads, s, size] turned by angles [1 or b, s, half of those columns that turn]."""
    half = _half(cos)
    c, s = (Term(b, unsqueezed(b, part, [1])) for part in (cos, sin))
    turning, rest = sliced(b, x, {3: slice(0, 2 * half)}), sliced(b, x, {3: slice(2 * half, None)})
    if interleaved:
        pairs = reshape(b, turning, [*x.shape[:3], half, 2], x)
        first, second = (Term(b, b(ops.Gather, pairs, np.asarray(i), axis=4)) for i in (0, 1))
    else:
        first, second = (Term(b, part) for part in b.many(ops.Split, turning, None, axis=3, count=2))
    new = [(first * c - second * s).value, (second * c + first * s).value]
    if interleaved:
        joined = reshape(b, b(ops.Concatenate, *(unsqueezed(b, p, [4]) for p in new), axis=4), turning.shape, x)
    else:
        joined = b(ops.Concatenate, *new, axis=3)
    return joined if x.shape[3] == 2 * half else b(ops.Concatenate, joined, rest, axis=3)


def _half(angles: Value) -> int:
    half = angles.shape[-1]
    half = known_size(half, "the number of angles")
    return half


@lift_onnx("MRotaryEmbedding", since=(1,), domain=MICROSOFT)
def _rotary_in_space(b: Builder, node: Node) -> Value:
    """Each angle is that of one of three positions [3, b, s]: in time, rows and columns, as Qwen's models have them."""
    x, ids, *tables = (node.operand(i) for i in range(4))
    heads = int(node.attr("num_heads", 0)) or _exact(x.shape[-1], tables[0].shape[1])
    inner = in_heads(b, x, heads) if x.rank == 3 else x
    streams = _streams(node, _half(tables[0]))
    scale = float(node.attr("scale", 1.0))
    cos, sin = (_by_stream(b, b(ops.Gather, table, ids, axis=0), streams, scale) for table in tables)
    turned = _turned_by(b, inner, cos, sin, bool(node.attr("interleaved", 0)))
    return _merged_heads(b, turned, x) if x.rank == 3 else turned


def _streams(node: Node, half: int) -> Array:
    """Which of the three positions each angle is of: in sections, or in turn as long as the sections last."""
    time, rows, columns = (int(n) for n in node.attributes["mrope_section"])
    if time + rows + columns != half:
        raise InvalidModelError(f"sections {[time, rows, columns]} of {half} angles", code="E-FILE-009")
    if not node.attr("mrope_layout", 0):
        return np.repeat([0, 1, 2], [time, rows, columns])
    place = np.arange(half)
    in_turn = np.where((place % 3 == 1) & (place < 3 * rows), 1, 0)
    return np.where((place % 3 == 2) & (place < 3 * columns), 2, in_turn)


def _by_stream(b: Builder, angles: Value, streams: Array, scale: float) -> Value:
    """Of [3, b, s, half] those of each column's position."""
    time, rows, columns = (Term(b, angles).at(i, 0) for i in range(3))
    of_rows, of_columns = (Term(b, constant((streams == i).reshape(1, 1, -1))) for i in (1, 2))
    return (of_columns.choose(columns, of_rows.choose(rows, time)) * scale).value


# --- GroupQueryAttention ---------------------------------------------------------------------------------------------


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

    Operands as ONNX Runtime's CPU kernel has them (contrib_ops/cpu/bert/group_query_attention.cc): `seqlens_k` is the
    number of positions with the new ones, less 1.
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
    """Queries (0) or keys (1), each head divided by the root of its mean square, times weights; as they are without."""
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
    """The number of past positions of each row, as int64 [b]; [1] zero where there are none."""
    if _is_first(node):
        return constant(np.zeros(1, np.int64))
    total = Term(b, as_int64(b, reshape(b, node.operand(5), [k.shape[0]], k))) + 1
    return (total - Term(b, dim_value(b, k.shape[2], k))).max(0).value


def _turned(b: Builder, node: Node, x: Value, before: Value) -> Value:
    """Queries or keys at the positions after `before`, or at `position_ids`."""
    places = node.optional(9)
    if places is None:
        own = Term(b, unsqueezed(b, before, [1])).apply(ops.Add, unsqueezed(b, counted(b, x.shape[2], x), [0]))
        places = own.value
    return rotated(b, x, places, node.operand(7), node.operand(8), bool(node.attr("rotary_interleaved", 0)))


def _stored(b: Builder, node: Node, index: int, new: Value, before: Value) -> Value:
    """The cache with `new` [b, heads, s, size] at the positions after `before`.

    Its length is that of the past with the new ones, or that of the past where it is a buffer of fixed size; at run
    time the larger one of that of the past and `total_sequence_length`.
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
    place = Term(b, unsqueezed(b, counted(b, total, whole), [0])) - Term(b, unsqueezed(b, before, [1]))
    inside = (place >= 0) & (place < Term(b, dim_value(b, more, new)))
    index_ = place.max(0).min(Term(b, dim_value(b, more, new)) - 1).value
    return _chosen(b, inside.value, index_, new, whole)


def _grows(node: Node, total: Dim) -> bool:
    """Whether the positions are all of the past and the new ones, as far as `total_sequence_length` is known."""
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
    """softmax(q @ k.T) @ v, where `heads / groups` heads of q share those of the cache; and the products of each head.

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
    merged = _merged_heads(b, reshape(b, result.value, [batch, heads, length, width], q), q)
    return merged, shares if node.attr("qk_output", 0) == 2 else seen.choose(scores, 0.0).value


def _visible(b: Builder, node: Node, scores: Term, before: Value) -> Term:
    """Whether a key is neither after the row's own position nor before its window."""
    length, total = scores.value.shape[2:]
    own = Term(b, unsqueezed(b, before, [1, 2])).apply(ops.Add, unsqueezed(b, counted(b, length, scores.value), [1]))
    key = Term(b, counted(b, total, scores.value))
    causal = bool(node.attr("causal", 1))
    seen = key <= (own if causal else own.reduce("max", [1]))
    window = int(node.attr("local_window_size", -1))
    if window > 0:
        seen = seen & (key > own - window)
    return Term(b, unsqueezed(b, seen.value, [1]))


def _softmax(b: Builder, node: Node, scores: Term) -> Value:
    """Along the last axis; with `smooth_softmax`, or a sink for each head, one more number is in the sum."""
    sink = node.optional(11)
    if sink is None and node.attr("smooth_softmax", 0) != 1:
        return b(ops.Softmax, scores.value, axis=3)
    one = constant(np.zeros(1, scores.dtype.numpy)) if sink is None else sink
    batch, heads, length, total = scores.value.shape
    column = broadcast(b, reshape(b, one, [one.shape[0], 1, 1]), [batch, heads, length, 1], scores.value)
    whole = b(ops.Softmax, b(ops.Concatenate, scores.value, column, axis=3), axis=3)
    bounds = dim_vector(b, [0, 0, 0, 0], scores.value), dim_vector(b, [batch, heads, length, total], scores.value)
    return b(ops.Slice, whole, *bounds, [1, 1, 1, 1])
