"""Attention of com.microsoft from products and Softmax, on floats and quantized.

com.microsoft: Attention, MultiHeadAttention, DecoderMaskedMultiHeadAttention, QAttention

ONNX's own Attention is defined by a function. Attention on a cache of keys is in :mod:`cached_attention`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from onnxtfl.build.qlinear import MICROSOFT, Quantized, dequantized
from onnxtfl.build.sizes import INT32_MAX, range_below
from onnxtfl.errors import UnsupportedError
from onnxtfl.ir import ops
from onnxtfl.ir.assumptions import assume
from onnxtfl.ir.budget import check_elements
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.dims import Dim, differ, indivisible, is_static, known_size, known_sizes, size_or
from onnxtfl.ir.formula import Term
from onnxtfl.ir.graph import Node, Value
from onnxtfl.ir.reshape import as_int64, dim_value, reshape, transposed, unsqueezed
from onnxtfl.ir.types import DType
from onnxtfl.rewriting.registry import lift_onnx, upgrade


@upgrade("Attention", since=(23, 24, 25))
def _attention_of_onnx(b: Builder, node: Node) -> None:
    """ONNX defines it by a function, whose product needs values of the queries' type; the op allows another type.

    ONNX Runtime's kernel ignores a `softcap` that is not above 0.
    """
    if node.attr("softcap", 0.0) <= 0:
        node.attributes.pop("softcap", None)
    query, value = node.operand(0), node.operand(2)
    present = node.results[2:3]  # of the values' own type
    if value.dtype is not query.dtype and not any(v.uses or b.graph.is_output(v) for v in present):
        node.set_operand(2, b(ops.Convert, value, dtype=query.dtype))
        if (past := node.optional(5)) is not None:
            node.set_operand(5, b(ops.Convert, past, dtype=query.dtype))


@lift_onnx("QAttention", since=(1,), domain=MICROSOFT)
def _quantized_attention(b: Builder, node: Node) -> Value:
    """Attention on quantized x and weights; the operands after their scales and zero points are those of Attention.

    Source: ONNX Runtime, contrib_ops/cpu/quantization/attention_quant.cc.
    """
    if node.optional(8) is not None or node.attr("do_rotary", 0) or len(node.results) > 1:
        raise UnsupportedError("past keys and values, or rotary positions, in QAttention")
    x, w = (dequantized(b, node, o) for o in (Quantized(0, 3, 6), Quantized(1, 4, 7, -1)))
    return _projected(b, node, x, w, node.optional(5), None, None)[0]


@lift_onnx("Attention", since=(1,), domain=MICROSOFT)
def _attention(b: Builder, node: Node) -> list[Value]:
    """The result [b, s, h], and past keys and values with the new ones after them [2, b, heads, total, size]."""
    if node.attr("do_rotary", 0) or node.attr("past_present_share_buffer", 0) or node.optional(6) is not None:
        raise UnsupportedError("rotary positions, or a buffer that past and present share, in Attention")
    w = node.operand(1)
    return _projected(b, node, node.operand(0), w, node.optional(3), node.optional(4), node.optional(5))


def _projected(
    b: Builder, node: Node, x: Value, w: Value, mask: Value | None, past: Value | None, added: Value | None
) -> list[Value]:
    """Q, K and V are columns of x @ weights + bias; x [b, s, n], weights [n, q + k + v]; the bias may be absent."""
    columns, bias = dot(b, x, w, [], 2, 0), node.optional(2)
    columns = columns if bias is None else columns.apply(ops.Add, bias)
    total = w.shape[1]
    total = known_size(total, "the size of weights")
    sizes = [int(n) for n in node.attr("qkv_hidden_sizes", ()) or [total // 3] * 3]
    parts = b.many(ops.Split, columns.value, sizes, axis=2)
    heads = int(node.attributes["num_heads"])
    q, k, v = (in_heads(b, part, heads) for part in parts)
    if past is not None:
        k, v = (b(ops.Concatenate, past_of(b, past, i), new, axis=2) for i, new in enumerate((k, v)))
    result = attended(b, node, q, k, v, mask, added)
    if len(node.results) < 2:
        return [result]
    return [result, b(ops.Concatenate, unsqueezed(b, k, [0]), unsqueezed(b, v, [0]), axis=0)]


def past_of(b: Builder, past: Value, index: int) -> Value:
    """Keys (0) or values (1) of a tensor that holds both."""
    return b(ops.Gather, past, np.asarray(index), axis=0)


def in_heads(b: Builder, x: Value, heads: int) -> Value:
    """[b, s, heads * size] as [b, heads, s, size]."""
    batch, length, hidden = x.shape
    if known_size(hidden, "the size of all heads together") % heads:
        raise UnsupportedError(f"{hidden} columns for {heads} heads", type_=x.type, code="E-SHAPE-001")
    return transposed(b, reshape(b, x, [batch, length, heads, hidden // heads], x), (0, 2, 1, 3))


def dot(b: Builder, lhs: Value, rhs: Value, batch: list[int], lhs_axis: int, rhs_axis: int) -> Term:
    """Sum of products over one axis of each operand."""
    axes = {"lhs_contracting_dimensions": [lhs_axis], "rhs_contracting_dimensions": [rhs_axis]}
    return Term(b, b(ops.DotGeneral, lhs, rhs, lhs_batching_dimensions=batch, rhs_batching_dimensions=batch, **axes))


def attended(b: Builder, node: Node, q: Value, k: Value, v: Value, mask: Value | None, added: Value | None) -> Value:
    """softmax(q @ k.T * scale + mask) @ v for each head, operands [b, heads, length, size]; result [b, s, heads *
    size].

    `mask`: which keys count; `added`: what is added to the products. Later positions do not count if `unidirectional`.
    """
    return weighted(b, scored(b, node, q, k, mask, added), v)


def scored(b: Builder, node: Node, q: Value, k: Value, mask: Value | None, added: Value | None) -> Term:
    """The operand of the softmax, [b, heads, rows, keys]."""
    size = q.shape[3]
    scale = float(node.attr("scale", 0.0) or 0.0) or size_or(size, 1) ** -0.5
    scores = dot(b, q, k, [0, 1], 3, 3) * scale
    if mask is not None and not np.isfinite(np.asarray(_filter(node)).astype(scores.dtype.numpy)):
        scores = scores.to(DType.FLOAT32)  # ONNX Runtime has no kernel for halves
    if mask is not None:
        scores = scores + _mask(b, node, mask, scores)
    if added is not None:
        scores = scores + Term(b, added).to(scores.dtype)
    return _of_earlier(b, scores) if node.attr("unidirectional", 0) else scores


def weighted(b: Builder, scores: Term, v: Value) -> Value:
    """The values weighted by the softmax of the scores, as [b, s, heads * size]."""
    weights = scores.apply(ops.Softmax, axis=3).to(v.dtype)
    found = dot(b, weights.value, v, [0, 1], 3, 2)
    batch, heads, length, width = found.value.shape
    return reshape(b, transposed(b, found.value, (0, 2, 1, 3)), [batch, length, heads * width], scores.value, v)


def _mask(b: Builder, node: Node, mask: Value, scores: Term) -> Term:
    """0 for visible keys, a large negative number for others, as [b, 1, 1 or s, total].

    `mask`: above 0 for keys that count, [b, total] or [b, s, total]; or the number of keys [b], or the end of each
    row's keys, then the starts [2 * b].
    """
    kept = Term(b, mask) > 0 if mask.rank in (2, 3) else _between(b, mask, scores)
    added = kept.choose(scores.constant(0.0), _filter(node))
    return Term(b, unsqueezed(b, added.value, [1] if kept.rank == 3 else [1, 2]))


def _filter(node: Node) -> float:
    """The number that is added to products with keys that are not visible."""
    return float(node.attr("mask_filter_value", -10000.0))


def _between(b: Builder, mask: Value, scores: Term) -> Term:
    """Where positions are below the ends, and from the starts on, as bools [b, total]."""
    batch, keys = scores.value.shape[0], scores.value.shape[3]
    if mask.rank != 1 or indivisible(mask.shape[0], batch):
        raise UnsupportedError("this form of the mask", type_=mask.type)
    places = Term(b, range_below(b, keys, scores.value)).to(mask.dtype)
    if mask.shape[0] == batch:
        return places < Term(b, unsqueezed(b, mask, [1]))
    if mask.shape[0] == 2 * batch:
        halves: Sequence[Value] = b.many(ops.Split, mask, None, axis=0, count=2)
    else:
        halves = _ends_and_starts(b, mask, batch, scores.value)
    ends, starts = (Term(b, unsqueezed(b, half, [1])) for half in halves)
    return (places < ends) & (places >= starts)


def _ends_and_starts(b: Builder, mask: Value, batch: Dim, source: Value) -> list[Value]:
    """The first `batch` elements of a mask of open size, and as many after them: zeros where it ends."""
    rows = Term(b, range_below(b, batch, source))
    zeros = (rows * 0).to(mask.dtype)
    longer = b(ops.Concatenate, mask, zeros.value, axis=0)
    after = rows.apply(ops.Add, dim_value(b, batch, source))
    return [b(ops.Gather, longer, index.value, axis=0) for index in (rows, after)]


def _of_earlier(b: Builder, scores: Term) -> Term:
    """The scores, with the lowest number for keys after the position of their row; the last row sees all keys."""
    rows, keys = scores.value.shape[2:]
    check_elements(size_or(rows * keys, 0), "the mask of later positions")
    row, key = (range_below(b, d, scores.value) for d in (rows, keys))
    last = Term(b, unsqueezed(b, row, [1])).apply(ops.Add, dim_value(b, keys - rows, scores.value))
    allowed = Term(b, key) <= last
    low = float(np.finfo(scores.dtype.numpy).min)
    return allowed.choose(scores, low)


# --- MultiHeadAttention ----------------------------------------------------------------------------------------------


@lift_onnx("MultiHeadAttention", since=(1,), domain=MICROSOFT)
def _multi_head(b: Builder, node: Node) -> list[Value]:
    """Query, key and value are separate, or packed in one tensor, or keys and values have an axis of heads.

    Results: [b, s, h], keys and values with the past ones before them, and the products. Source: ONNX Runtime,
    contrib_ops/cpu/bert/multihead_attention.cc.
    """
    if node.optional(9) is not None:
        raise UnsupportedError("keys of several beams", hint=_BEAMS)
    q, k, v = _separate(b, node, node.optional(3))
    past, count = [node.optional(i) for i in (6, 7)], node.optional(8)
    if count is not None and past[0] is not None:
        return _in_buffers(b, node, [q, k, v], past, count, [node.optional(4), node.optional(5)])
    k, v = (new if old is None else b(ops.Concatenate, old, new, axis=2) for old, new in zip(past, (k, v), strict=True))
    scores = scored(b, node, q, k, node.optional(4), node.optional(5))
    return [weighted(b, scores, v), k, v, scores.value][: len(node.results)]


@lift_onnx("DecoderMaskedMultiHeadAttention", since=(1,), domain=MICROSOFT)
def _decoder_attention(b: Builder, node: Node) -> list[Value]:
    """Attention of one position on buffers that past and present share, or on keys with an axis of heads and no past.

    Source: ONNX Runtime, contrib_ops/cpu/bert/decoder_masked_multihead_attention.cc.
    """
    if node.optional(9) is not None:
        raise UnsupportedError("keys of several beams", hint=_BEAMS)
    parts = _separate(b, node, node.optional(10))
    past, count, others = [node.optional(i) for i in (5, 6)], node.optional(7), [node.optional(i) for i in (3, 4)]
    if past[0] is None:
        scores = scored(b, node, parts[0], parts[1], *others)
        return [weighted(b, scores, parts[2]), *parts[1:], scores.value][: len(node.results)]
    if count is None or not node.attr("past_present_share_buffer", 0):
        raise UnsupportedError("past keys that are not in the buffer of the present ones")
    return _in_buffers(b, node, parts, past, count, others)


_BEAMS = "export the decoder without beam search (without cache_indirection)"


def _in_buffers(
    b: Builder,
    node: Node,
    parts: Sequence[Value],
    past: Sequence[Value | None],
    count: Value,
    others: list[Value | None],
) -> list[Value]:
    """One position, whose key and value are written after `count` others to buffers [b, heads, most, size]."""
    q, *new = parts
    if differ(q.shape[2], 1):
        raise UnsupportedError("several positions at once, of buffers that past and present share")
    if q.shape[2] != 1:
        assume("each run of a decoder, whose past and present share a buffer, has one position")
    before = as_int64(b, reshape(b, count, [1]))
    zero, everything = np.zeros(1, np.int64), np.full(1, INT32_MAX, np.int64)
    starts = b(ops.Concatenate, zero, zero, before, zero, axis=0)
    ends = b(ops.Concatenate, everything, everything, (Term(b, before) + 1).value, everything, axis=0)
    buffers = [b(ops.DynamicUpdateSlice, old, one, starts) for old, one in zip(past, new, strict=True)]
    k, v = (b(ops.Slice, buffer, [0] * 4, ends, [1] * 4) for buffer in buffers)
    scores = scored(b, node, q, k, *others)
    return [weighted(b, scores, v), *buffers, scores.value][: len(node.results)]


def _separate(b: Builder, node: Node, bias: Value | None) -> list[Value]:
    """Query, key and value as [b, heads, length, size], with the bias."""
    heads = int(node.attributes["num_heads"])
    query, key, value = node.operand(0), node.optional(1), node.optional(2)
    parts = [query, key, value]
    if query.rank == 5:
        parts = _unpacked(b, query, 3)
    elif key is not None and value is None and key.rank == 5:
        parts = [query, *_unpacked(b, key, 2)]
    if any(part is None for part in parts):
        raise UnsupportedError("this form of MultiHeadAttention", type_=query.type)
    given = [part for part in parts if part is not None]
    biases = _biases(b, bias, given)
    return [_headed(b, part, bias_, heads) for part, bias_ in zip(given, biases, strict=True)]


def _unpacked(b: Builder, packed: Value, count: int) -> list[Value | None]:
    """The parts of [b, length, heads, count, size] as [b, length, heads * size]."""
    batch, length, heads, _, size = packed.shape
    parts = (b(ops.Gather, packed, np.asarray(i), axis=3) for i in range(count))
    return [reshape(b, part, [batch, length, heads * size], part) for part in parts]


def _biases(b: Builder, bias: Value | None, parts: Sequence[Value]) -> Sequence[Value | None]:
    """The bias of each part; keys and values with an axis of heads (rank 4) have none."""
    if bias is None:
        return [None] * 3
    sizes = [p.shape[2] if p.rank == 3 else p.shape[1] * p.shape[3] for p in parts]
    if not is_static(sizes):
        raise UnsupportedError("a bias of unknown size", type_=bias.type, code="E-SHAPE-001")
    found = b.many(ops.Split, bias, known_sizes(sizes), axis=0)
    return [one if part.rank == 3 else None for one, part in zip(found, parts, strict=True)]


def _headed(b: Builder, part: Value, bias: Value | None, heads: int) -> Value:
    if part.rank == 4:
        return part
    return in_heads(b, part if bias is None else b(ops.Add, part, bias), heads)
