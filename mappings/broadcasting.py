"""Repetition along axes: Expand, Tile, and the shape that two shapes broadcast to."""

from __future__ import annotations

import numpy as np

from onnxtfl.rules import *

decompose(ops.BroadcastTo, "tfl", "elements")(moved_as_signed)
decompose(ops.Tile, "tfl", "elements")(moved_as_signed)


# --- Tile ------------------------------------------------------------------------------------------------------------


@upgrade("Tile", since=(1,))
def _tile_1(b: Builder, node: Node) -> None:
    """Tile-1 repeats `tiles` times along one `axis`."""
    x = node.operand(0)
    tiles, axis = (static_ints(node.optional(i)) for i in (1, 2))
    if tiles is None or axis is None:
        raise UnsupportedError("tiles and axis have to be known before run time")
    place = normalize_axis(axis[0], x.rank)
    times = constant(np.asarray([tiles[0] if i == place else 1 for i in range(x.rank)], np.int64))
    node.set_operand(2, None)
    del node.operands[2:]
    node.set_operand(1, times)


@lift_onnx("Tile", since=(6, 13))
def _tile(b: Builder, node: Node) -> Value:
    return b(ops.Tile, node.operand(0), node.operand(1))


@lower_tfl(ops.Tile)
def _to_tfl_tile(node: Node) -> Form:
    return Form("TILE", (node.operand(0), narrow(node.operand(1))))


decompose(ops.Tile, "tfl", "operands")(int32_operands(1))


@lower_onnx(ops.Tile)
def _to_onnx_tile(node: Node, opset: int) -> Form:
    times = node.operand(1)
    return Form("Tile", (node.operand(0), np.asarray(times.numpy(), np.int64) if times.is_constant else times))


@lift_tfl("TILE")
def _from_tfl_tile(b: Builder, node: Node) -> Value:
    return b(ops.Tile, node.operand(0), node.operand(1))


decompose(ops.BroadcastTo, "tfl", "operands")(int32_operands(1))


# --- BroadcastTo -----------------------------------------------------------------------------------------------------


@lift_onnx("Expand", since=(8, 13))
def _expand(b: Builder, node: Node) -> Value:
    x, shape = node.operand(0), node.operand(1)
    known = known_dims(shape)
    if known is not None and not may_hold_zeros(shape) and x.tensor_type.shape is not None:
        return broadcast(b, x, known, shape)
    return b(ops.BroadcastTo, x, _joint_shape(b, x, shape))


def _joint_shape(b: Builder, x: Value, asked: Value) -> Value:
    """What the operand's shape and a vector of sizes broadcast to, at run time: the larger ones."""
    own = x.tensor_type.shape
    if own is not None and all(d == 1 for d in own) and len(own) <= vector_length(asked):
        return asked
    if own is None:
        raise UnsupportedError("a tensor of unknown rank cannot be expanded", hint="give --input-shape")
    rank = max(len(own), vector_length(asked))
    if rank > vector_length(asked):
        asked = b(ops.Concatenate, [1] * (rank - vector_length(asked)), asked, axis=0)
    return b(ops.Max, dim_vector(b, (1,) * (rank - len(own)) + own, x), asked)


@lower_tfl(ops.BroadcastTo)
def _to_tfl_broadcast(node: Node) -> Form:
    return Form("BROADCAST_TO", (node.operand(0), narrow(node.operand(1))))


@lower_onnx(ops.BroadcastTo)
def _to_onnx_expand(node: Node, opset: int) -> Form:
    target = node.operand(1)
    return Form("Expand", (node.operand(0), np.asarray(target.numpy(), np.int64) if target.is_constant else target))


@lift_tfl("BROADCAST_TO")
def _from_tfl_broadcast(b: Builder, node: Node) -> Value:
    return b(ops.BroadcastTo, node.operand(0), node.operand(1))


@lift_tfl("BROADCAST_ARGS")
def _broadcast_args(b: Builder, node: Node) -> Value:
    """The shape that two shapes broadcast to."""
    first, second = node.operand(0), node.operand(1)
    rank = max(vector_length(first), vector_length(second))
    padded = [b(ops.Pad, v, np.asarray([[rank - vector_length(v), 0]]), b.scalar(1, v)) for v in (first, second)]
    is_one = b(ops.Compare, padded[0], b.scalar(1, padded[0]), comparison_direction="EQ")
    return b(ops.Select, is_one, padded[1], padded[0])
