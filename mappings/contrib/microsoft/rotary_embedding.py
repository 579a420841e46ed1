"""Rotary position embeddings of com.microsoft: RotaryEmbedding, MRotaryEmbedding.

Each pair of columns (x1, x2) of a head is rotated by the angle of its position:

    y1 = x1 cos - x2 sin        y2 = x2 cos + x1 sin
"""

from __future__ import annotations

import numpy as np
from onnxtfl.mappings.contrib.microsoft.attention import merge_heads, split_heads

from onnxtfl.build.qlinear import MICROSOFT
from onnxtfl.build.sizes import range_below, slice_axes
from onnxtfl.errors import UnsupportedError
from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.data import Array
from onnxtfl.ir.dims import Dim, known_size
from onnxtfl.ir.formula import Term
from onnxtfl.ir.graph import Node, Value, constant
from onnxtfl.ir.reshape import reshape, stacked_along, unsqueezed
from onnxtfl.rewriting.registry import lift_onnx


@lift_onnx("RotaryEmbedding", since=(1,), domain=MICROSOFT)
def _rotary(b: Builder, node: Node) -> Value:
    """x [b, s, heads * size] or [b, heads, s, size], rotated by the angles at its positions.

    `position_ids`: [b, s], or the position of the first row [1]. Source: ONNX Runtime,
    contrib_ops/cpu/bert/rotary_embedding.cc.
    """
    x, ids, cos, sin = (node.operand(i) for i in range(4))
    rotary_dim = int(node.attr("rotary_embedding_dim", 0))
    if node.attr("is_packed_batching", 0):
        raise UnsupportedError("RotaryEmbedding with is_packed_batching = 1 is not supported")
    heads = int(node.attr("num_heads", 0)) if rotary_dim else _head_count(x.shape[-1], cos.shape[1])
    if x.rank == 3 and heads < 1:
        raise ValueError("rotary_embedding_dim of a tensor of rank 3 needs num_heads")
    inner = split_heads(b, x, heads) if x.rank == 3 else x
    if ids.rank == 1:
        positions = Term(b, ids) + Term(b, range_below(b, inner.shape[2], inner)).to(ids.dtype)
        ids = unsqueezed(b, positions.value, [0])
    result = rotate(b, inner, ids, cos, sin, bool(node.attr("interleaved", 0)))
    return merge_heads(b, result, x) if x.rank == 3 else result


def _head_count(hidden: Dim, half: Dim) -> int:
    """The number of heads: hidden / (2 * half). Raises UnsupportedError if it is not an integer."""
    hidden, size = (known_size(d, "the size of heads") for d in (hidden, 2 * half))
    if not size or hidden % size:
        raise UnsupportedError(f"{hidden} columns cannot be split into heads of {size} columns", code="E-SHAPE-001")
    return hidden // size


def rotate(b: Builder, x: Value, positions: Value, cos: Value, sin: Value, interleaved: bool) -> Value:
    """x [b, heads, s, size] rotated by the angles at `positions` [1 or b, s]; columns without angles are unchanged.

    A pair is a column of the first half with the same column of the second half; if `interleaved`, two adjacent ones.
    """
    c, s = (b(ops.Gather, table, positions, axis=0) for table in (cos, sin))
    return _rotate_by_angles(b, x, c, s, interleaved)


def _rotate_by_angles(b: Builder, x: Value, cos: Value, sin: Value, interleaved: bool) -> Value:
    """As `rotated`, with the cosines and sines of each position [1 or b, s, half of the rotated columns]."""
    half = _angle_count(cos)
    c, s = (Term(b, unsqueezed(b, part, [1])) for part in (cos, sin))
    rotating, rest = slice_axes(b, x, {3: slice(0, 2 * half)}), slice_axes(b, x, {3: slice(2 * half, None)})
    if interleaved:
        pairs = reshape(b, rotating, [*x.shape[:3], half, 2], x)
        first, second = (Term(b, b(ops.Gather, pairs, np.asarray(i), axis=4)) for i in (0, 1))
    else:
        first, second = (Term(b, part) for part in b.many(ops.Split, rotating, axis=3, count=2))
    new = [(first * c - second * s).value, (second * c + first * s).value]
    if interleaved:
        joined = reshape(b, stacked_along(b, new, 4), rotating.shape, x)
    else:
        joined = b(ops.Concatenate, *new, axis=3)
    return joined if x.shape[3] == 2 * half else b(ops.Concatenate, joined, rest, axis=3)


def _angle_count(angles: Value) -> int:
    """The number of angles: half of the rotated columns of a head."""
    return known_size(angles.shape[-1], "the number of angles")


@lift_onnx("MRotaryEmbedding", since=(1,), domain=MICROSOFT)
def _multi_axis_rotary(b: Builder, node: Node) -> Value:
    """x rotated by angles of three position streams [3, b, s]: time, row and column, as in Qwen's vision models.

    Each column of the tables belongs to one stream (`_streams`).
    """
    x, ids, *tables = (node.operand(i) for i in range(4))
    heads = int(node.attr("num_heads", 0)) or _head_count(x.shape[-1], tables[0].shape[1])
    inner = split_heads(b, x, heads) if x.rank == 3 else x
    streams = _streams(node, _angle_count(tables[0]))
    scale = float(node.attr("scale", 1.0))
    cos, sin = (_select_streams(b, b(ops.Gather, table, ids, axis=0), streams, scale) for table in tables)
    result = _rotate_by_angles(b, inner, cos, sin, bool(node.attr("interleaved", 0)))
    return merge_heads(b, result, x) if x.rank == 3 else result


def _streams(node: Node, half: int) -> Array:
    """The stream of each angle (0 time, 1 row, 2 column): contiguous sections; `mrope_layout` 1: interleaved."""
    time, rows, columns = (int(n) for n in node.attributes["mrope_section"])
    if time + rows + columns != half:
        raise ValueError(f"mrope_section {[time, rows, columns]} has to sum to the {half} angles")
    if not node.attr("mrope_layout", 0):
        return np.repeat([0, 1, 2], [time, rows, columns])
    index = np.arange(half)
    with_rows = np.where((index % 3 == 1) & (index < 3 * rows), 1, 0)
    return np.where((index % 3 == 2) & (index < 3 * columns), 2, with_rows)


def _select_streams(b: Builder, angles: Value, streams: Array, scale: float) -> Value:
    """Select from `angles` [3, b, s, half] the stream of each column, times `scale`: [b, s, half]."""
    time, rows, columns = (Term(b, angles).at(i, 0) for i in range(3))
    is_row, is_column = (Term(b, constant((streams == i).reshape(1, 1, -1))) for i in (1, 2))
    return (is_column.choose(columns, is_row.choose(rows, time)) * scale).value
