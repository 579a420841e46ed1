"""Float and quantized attention of com.microsoft, decomposed into DotGeneral and Softmax.

com.microsoft: Attention, MultiHeadAttention, QAttention

ONNX's own Attention is expanded by its function body; only its operands are adapted here. Ops that need a cache of keys
are in :mod:`cached_attention`.
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
from onnxtfl.ir.reshape import as_int64, dim_value, reshape, stacked_along, transposed, unsqueezed
from onnxtfl.ir.types import DType
from onnxtfl.rewriting.registry import lift_onnx


@lift_onnx("QAttention", since=(1,), domain=MICROSOFT)
def _quantized_attention(b: Builder, node: Node) -> Value:
    """Dequantize x and the weights, then compute Attention; mask and past are the operands 5 and 8.

    Source: ONNX Runtime, contrib_ops/cpu/quantization/attention_quant.cc.
    """
    if node.optional(8) is not None or node.attr("do_rotary", 0) or len(node.results) > 1:
        raise UnsupportedError("QAttention with past keys and values, or with rotary positions, is not supported")
    x, w = (dequantized(b, node, o) for o in (Quantized(0, 3, 6), Quantized(1, 4, 7, -1)))
    return _project_and_attend(b, node, x, w, node.optional(5), None, None)[0]


@lift_onnx("Attention", since=(1,), domain=MICROSOFT)
def _attention(b: Builder, node: Node) -> list[Value]:
    """The result [b, s, h] and the present keys and values (past ones, then new ones) [2, b, heads, total, size]."""
    if node.attr("do_rotary", 0) or node.attr("past_present_share_buffer", 0) or node.optional(6) is not None:
        raise UnsupportedError(
            "Attention with rotary positions, or with a buffer shared by past and present, is not supported"
        )
    w = node.operand(1)
    return _project_and_attend(b, node, node.operand(0), w, node.optional(3), node.optional(4), node.optional(5))


def _project_and_attend(
    b: Builder, node: Node, x: Value, w: Value, mask: Value | None, past: Value | None, attention_bias: Value | None
) -> list[Value]:
    """Attention on Q, K, V = split(x @ w + bias): the result, and the present if the node has this result.

    x [b, s, n], w [n, q + k + v]; the bias (operand 2) may be absent.
    """
    columns, bias = dot(b, x, w, [], 2, 0), node.optional(2)
    columns = columns if bias is None else columns.apply(ops.Add, bias)
    total = w.shape[1]
    total = known_size(total, "the number of columns of the weights")
    sizes = [int(n) for n in node.attr("qkv_hidden_sizes", ()) or [total // 3] * 3]
    parts = b.many(ops.Split, columns.value, sizes, axis=2)
    heads = int(node.attributes["num_heads"])
    q, k, v = (split_heads(b, part, heads) for part in parts)
    if past is not None:
        k, v = (b(ops.Concatenate, select_past(b, past, i), new, axis=2) for i, new in enumerate((k, v)))
    result = attention_output(b, node, q, k, v, mask, attention_bias)
    if len(node.results) < 2:
        return [result]
    return [result, stacked_along(b, [k, v], 0)]


def select_past(b: Builder, past: Value, index: int) -> Value:
    """The keys (`index` 0) or values (1) of `past` [2, b, heads, length, size]."""
    return b(ops.Gather, past, np.asarray(index), axis=0)


def split_heads(b: Builder, x: Value, heads: int) -> Value:
    """x [b, s, heads * size] as [b, heads, s, size]."""
    batch, length, hidden = x.shape
    if known_size(hidden, "the number of columns of all heads") % heads:
        raise UnsupportedError(
            f"{hidden} columns cannot be split into {heads} heads of equal size", type_=x.type, code="E-SHAPE-001"
        )
    return transposed(b, reshape(b, x, [batch, length, heads, hidden // heads], x), (0, 2, 1, 3))


def merge_heads(b: Builder, x: Value, *sources: Value) -> Value:
    """x [b, heads, s, size] as [b, s, heads * size]; `sources`: values with the same dynamic sizes."""
    batch, heads, length, size = x.shape
    return reshape(b, transposed(b, x, (0, 2, 1, 3)), [batch, length, heads * size], *sources)


def dot(b: Builder, lhs: Value, rhs: Value, batch: list[int], lhs_axis: int, rhs_axis: int) -> Term:
    """DotGeneral that contracts one axis of each operand; `batch`: the batching axes of both."""
    axes = {"lhs_contracting_dimensions": [lhs_axis], "rhs_contracting_dimensions": [rhs_axis]}
    return Term(b, b(ops.DotGeneral, lhs, rhs, lhs_batching_dimensions=batch, rhs_batching_dimensions=batch, **axes))


def attention_output(
    b: Builder, node: Node, q: Value, k: Value, v: Value, mask: Value | None, attention_bias: Value | None
) -> Value:
    """softmax(q @ k.T * scale + mask + attention_bias) @ v for each head, as [b, s, heads * size].

    q, k, v: [b, heads, length, size]; `mask`: see `_mask_penalty`. With the attribute `unidirectional`, keys at later
    positions are masked.
    """
    return weighted_values(b, attention_scores(b, node, q, k, mask, attention_bias), v)


def attention_scores(
    b: Builder, node: Node, q: Value, k: Value, mask: Value | None, attention_bias: Value | None
) -> Term:
    """q @ k.T * scale + mask + attention_bias, the operand of the softmax [b, heads, queries, keys]."""
    size = q.shape[3]
    scale = float(node.attr("scale", 0.0) or 0.0) or size_or(size, 1) ** -0.5
    scores = dot(b, q, k, [0, 1], 3, 3) * scale
    if mask is not None and not np.isfinite(np.asarray(_mask_filter_value(node)).astype(scores.dtype.numpy)):
        scores = scores.to(DType.FLOAT32)  # the penalty overflows in float16
    if mask is not None:
        scores = scores + _mask_penalty(b, node, mask, scores)
    if attention_bias is not None:
        scores = scores + Term(b, attention_bias).to(scores.dtype)
    return _with_causal_mask(b, scores) if node.attr("unidirectional", 0) else scores


def weighted_values(b: Builder, scores: Term, v: Value) -> Value:
    """softmax(scores) @ v, as [b, s, heads * size]."""
    weights = scores.apply(ops.Softmax, axis=3).to(v.dtype)
    return merge_heads(b, dot(b, weights.value, v, [0, 1], 3, 2).value, scores.value, v)


def _mask_penalty(b: Builder, node: Node, mask: Value, scores: Term) -> Term:
    """The term that is added to the scores: 0 for visible keys, `mask_filter_value` for others [b, 1, 1 or s, total].

    `mask` is one of: flags that are > 0 for visible keys, [b, total] or [b, s, total]; the number of visible keys of
    each row [b]; the ends of each row's visible keys, then their starts [2 * b].
    """
    visible = Term(b, mask) > 0 if mask.rank in (2, 3) else _is_within_bounds(b, mask, scores)
    penalty = visible.choose(scores.constant(0.0), _mask_filter_value(node))
    return Term(b, unsqueezed(b, penalty.value, [1] if visible.rank == 3 else [1, 2]))


def _mask_filter_value(node: Node) -> float:
    """The value that is added to the scores of masked keys."""
    return float(node.attr("mask_filter_value", -10000.0))


def _is_within_bounds(b: Builder, mask: Value, scores: Term) -> Term:
    """start <= position < end for each row and key, as bools [b, total]; without starts, position < end."""
    batch, keys = scores.value.shape[0], scores.value.shape[3]
    if mask.rank != 1 or indivisible(mask.shape[0], batch):
        raise UnsupportedError(
            f"the mask has to have rank 2 or 3, or 1 or 2 elements for each of {batch} rows", type_=mask.type
        )
    positions = Term(b, range_below(b, keys, scores.value)).to(mask.dtype)
    if mask.shape[0] == batch:
        return positions < Term(b, unsqueezed(b, mask, [1]))
    if mask.shape[0] == 2 * batch:
        halves: Sequence[Value] = b.many(ops.Split, mask, axis=0, count=2)
    else:
        halves = _ends_and_starts(b, mask, batch, scores.value)
    ends, starts = (Term(b, unsqueezed(b, half, [1])) for half in halves)
    return (positions < ends) & (positions >= starts)


def _ends_and_starts(b: Builder, mask: Value, batch: Dim, source: Value) -> list[Value]:
    """The first `batch` elements of a mask of dynamic size, and the next `batch` ones (0 if absent)."""
    rows = Term(b, range_below(b, batch, source))
    zeros = (rows * 0).to(mask.dtype)
    padded = b(ops.Concatenate, mask, zeros.value, axis=0)
    after = rows.apply(ops.Add, dim_value(b, batch, source))
    return [b(ops.Gather, padded, index.value, axis=0) for index in (rows, after)]


def _with_causal_mask(b: Builder, scores: Term) -> Term:
    """The scores, with the lowest finite value where key > query + keys - queries: the last query sees all keys."""
    rows, keys = scores.value.shape[2:]
    check_elements(size_or(rows * keys, 0), "the causal mask")
    row, key = (range_below(b, d, scores.value) for d in (rows, keys))
    last = Term(b, unsqueezed(b, row, [1])).apply(ops.Add, dim_value(b, keys - rows, scores.value))
    allowed = Term(b, key) <= last
    low = float(np.finfo(scores.dtype.numpy).min)
    return allowed.choose(scores, low)


# --- MultiHeadAttention ----------------------------------------------------------------------------------------------


@lift_onnx("MultiHeadAttention", since=(1,), domain=MICROSOFT)
def _multi_head(b: Builder, node: Node) -> list[Value]:
    """The result [b, s, h], the present keys and values (past ones, then new ones), and the scores before the softmax.

    Query, key and value may be separate or packed (see `query_key_value`). Source: ONNX Runtime,
    contrib_ops/cpu/bert/multihead_attention.cc.
    """
    refuse_beams(node)
    q, k, v = query_key_value(b, node, node.optional(3))
    past, past_length = [node.optional(i) for i in (6, 7)], node.optional(8)
    if past_length is not None and past[0] is not None:
        return attention_on_buffers(b, node, [q, k, v], past, past_length, [node.optional(4), node.optional(5)])
    k, v = (new if old is None else b(ops.Concatenate, old, new, axis=2) for old, new in zip(past, (k, v), strict=True))
    scores = attention_scores(b, node, q, k, node.optional(4), node.optional(5))
    return [weighted_values(b, scores, v), k, v, scores.value][: len(node.results)]


def refuse_beams(node: Node) -> None:
    """Raise UnsupportedError if operand 9, cache_indirection, is present."""
    if node.optional(9) is not None:
        hint = "export the decoder without beam search (without cache_indirection)"
        raise UnsupportedError("attention on the keys of several beams (cache_indirection) is not supported", hint=hint)


def attention_on_buffers(
    b: Builder,
    node: Node,
    parts: Sequence[Value],
    past: Sequence[Value | None],
    past_length: Value,
    mask_and_bias: list[Value | None],
) -> list[Value]:
    """Attention of one query position; its key and value are first written to the buffers at index `past_length`.

    `parts`: q, k, v [b, heads, 1, size]; `past`: the buffers [b, heads, capacity, size]. Results as of `_multi_head`.
    """
    q, *new = parts
    if differ(q.shape[2], 1):
        raise UnsupportedError("several query positions at once are not supported if past and present share a buffer")
    if q.shape[2] != 1:
        assume("each invocation of a decoder whose past and present share a buffer has one query position")
    write_index = as_int64(b, reshape(b, past_length, [1]))
    zero, whole_axis = np.zeros(1, np.int64), np.full(1, INT32_MAX, np.int64)
    starts = b(ops.Concatenate, zero, zero, write_index, zero, axis=0)
    ends = b(ops.Concatenate, whole_axis, whole_axis, (Term(b, write_index) + 1).value, whole_axis, axis=0)
    buffers = [b(ops.DynamicUpdateSlice, old, one, starts) for old, one in zip(past, new, strict=True)]
    k, v = (b(ops.Slice, buffer, [0] * 4, ends, [1] * 4) for buffer in buffers)
    scores = attention_scores(b, node, q, k, *mask_and_bias)
    return [weighted_values(b, scores, v), *buffers, scores.value][: len(node.results)]


def query_key_value(b: Builder, node: Node, bias: Value | None) -> list[Value]:
    """Query, key and value plus their bias, as [b, heads, length, size].

    They are three operands; or one operand [b, length, heads, 3, size]; or a query, and keys and values in one operand
    [b, length, heads, 2, size]. Keys and values [b, heads, length, size] are returned as they are, without a bias.
    """
    heads = int(node.attributes["num_heads"])
    query, key, value = node.operand(0), node.optional(1), node.optional(2)
    parts = [query, key, value]
    if query.rank == 5:
        parts = _unpacked(b, query, 3)
    elif key is not None and value is None and key.rank == 5:
        parts = [query, *_unpacked(b, key, 2)]
    if any(part is None for part in parts):
        raise UnsupportedError("keys or values are missing, and the query does not contain them", type_=query.type)
    present_parts = [part for part in parts if part is not None]
    biases = _biases(b, bias, present_parts)
    return [
        _add_bias_and_split(b, part, part_bias, heads) for part, part_bias in zip(present_parts, biases, strict=True)
    ]


def _unpacked(b: Builder, packed: Value, count: int) -> list[Value | None]:
    """The `count` parts of `packed` [b, length, heads, count, size], each as [b, length, heads * size]."""
    batch, length, heads, _, size = packed.shape
    parts = (b(ops.Gather, packed, np.asarray(i), axis=3) for i in range(count))
    return [reshape(b, part, [batch, length, heads * size], part) for part in parts]


def _biases(b: Builder, bias: Value | None, parts: Sequence[Value]) -> Sequence[Value | None]:
    """The bias of each part; None for parts of rank 4 (with an axis of heads), which have none."""
    if bias is None:
        return [None] * 3
    sizes = [p.shape[2] if p.rank == 3 else p.shape[1] * p.shape[3] for p in parts]
    if not is_static(sizes):
        raise UnsupportedError("a bias for heads of unknown size is not supported", type_=bias.type, code="E-SHAPE-001")
    found = b.many(ops.Split, bias, known_sizes(sizes), axis=0)
    return [one if part.rank == 3 else None for one, part in zip(found, parts, strict=True)]


def _add_bias_and_split(b: Builder, part: Value, bias: Value | None, heads: int) -> Value:
    """part + bias as [b, heads, length, size]; a part of rank 4 is unchanged."""
    if part.rank == 4:
        return part
    return split_heads(b, part if bias is None else b(ops.Add, part, bias), heads)
