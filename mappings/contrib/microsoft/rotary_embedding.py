"""Rotary position embeddings: RotaryEmbedding, MRotaryEmbedding."""

from __future__ import annotations

import numpy as np
from onnxtfl.mappings.contrib.microsoft.attention import in_heads

from onnxtfl.build.qlinear import MICROSOFT
from onnxtfl.build.sizes import range_below, slice_axes
from onnxtfl.errors import InvalidModelError, UnsupportedError
from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.data import Array
from onnxtfl.ir.dims import Dim, known_size
from onnxtfl.ir.formula import Term
from onnxtfl.ir.graph import Node, Value, constant
from onnxtfl.ir.reshape import reshape, transposed, unsqueezed
from onnxtfl.rewriting.registry import lift_onnx


@lift_onnx("RotaryEmbedding", since=(1,), domain=MICROSOFT)
def _rotary(b: Builder, node: Node) -> Value:
    """x [b, s, heads * size] or [b, heads, s, size], rotated by the angles of each position.

    `position_ids` [b, s], or the first position [1]. Source: ONNX Runtime, contrib_ops/cpu/bert/rotary_embedding.cc.
    """
    x, ids, cos, sin = (node.operand(i) for i in range(4))
    part = int(node.attr("rotary_embedding_dim", 0))
    if node.attr("is_packed_batching", 0):
        raise UnsupportedError("is_packed_batching = 1")
    heads = int(node.attr("num_heads", 0)) if part else _exact(x.shape[-1], cos.shape[1])
    inner = in_heads(b, x, heads) if x.rank == 3 else x
    if ids.rank == 1:
        own = Term(b, ids) + Term(b, range_below(b, inner.shape[2], inner)).to(ids.dtype)
        ids = unsqueezed(b, own.value, [0])
    turned = rotated(b, inner, ids, cos, sin, bool(node.attr("interleaved", 0)))
    return merged_heads(b, turned, x) if x.rank == 3 else turned


def _exact(hidden: Dim, half: Dim) -> int:
    """The number of heads of `hidden` columns, each of twice `half`."""
    hidden, size = (known_size(d, "the size of heads") for d in (hidden, 2 * half))
    if not size or hidden % size:
        raise UnsupportedError(f"{hidden} columns for heads of {size}", code="E-SHAPE-001")
    return hidden // size


def merged_heads(b: Builder, x: Value, source: Value) -> Value:
    batch, heads, length, size = x.shape
    return reshape(b, transposed(b, x, (0, 2, 1, 3)), [batch, length, heads * size], source)


def rotated(b: Builder, x: Value, places: Value, cos: Value, sin: Value, interleaved: bool) -> Value:
    """x [b, heads, s, size] rotated by the angles at `places` [1 or b, s]; columns without angles are unchanged.

    Pairs are a column of the first half with one of the second, or neighbours if `interleaved`.
    """
    c, s = (b(ops.Gather, table, places, axis=0) for table in (cos, sin))
    return _turned_by(b, x, c, s, interleaved)


def _turned_by(b: Builder, x: Value, cos: Value, sin: Value, interleaved: bool) -> Value:
    """x [b, heads, s, size] rotated by angles [1 or b, s, half of the rotated columns]."""
    half = _half(cos)
    c, s = (Term(b, unsqueezed(b, part, [1])) for part in (cos, sin))
    turning, rest = slice_axes(b, x, {3: slice(0, 2 * half)}), slice_axes(b, x, {3: slice(2 * half, None)})
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
    """Each angle is for one of three positions [3, b, s]: in time, row and column, as in Qwen's models."""
    x, ids, *tables = (node.operand(i) for i in range(4))
    heads = int(node.attr("num_heads", 0)) or _exact(x.shape[-1], tables[0].shape[1])
    inner = in_heads(b, x, heads) if x.rank == 3 else x
    streams = _streams(node, _half(tables[0]))
    scale = float(node.attr("scale", 1.0))
    cos, sin = (_by_stream(b, b(ops.Gather, table, ids, axis=0), streams, scale) for table in tables)
    turned = _turned_by(b, inner, cos, sin, bool(node.attr("interleaved", 0)))
    return merged_heads(b, turned, x) if x.rank == 3 else turned


def _streams(node: Node, half: int) -> Array:
    """The number of the position for each angle: by sections, or alternating within the sections."""
    time, rows, columns = (int(n) for n in node.attributes["mrope_section"])
    if time + rows + columns != half:
        raise InvalidModelError(f"sections {[time, rows, columns]} of {half} angles", code="E-FILE-009")
    if not node.attr("mrope_layout", 0):
        return np.repeat([0, 1, 2], [time, rows, columns])
    place = np.arange(half)
    in_turn = np.where((place % 3 == 1) & (place < 3 * rows), 1, 0)
    return np.where((place % 3 == 2) & (place < 3 * columns), 2, in_turn)


def _by_stream(b: Builder, angles: Value, streams: Array, scale: float) -> Value:
    """The entries of [3, b, s, half] for each column's position."""
    time, rows, columns = (Term(b, angles).at(i, 0) for i in range(3))
    of_rows, of_columns = (Term(b, constant((streams == i).reshape(1, 1, -1))) for i in (1, 2))
    return (of_columns.choose(columns, of_rows.choose(rows, time)) * scale).value
