"""Blocks of spatial axes moved to the features or to the batch, and back; columns of blocks added up (Col2Im)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from onnxtfl.rules import *

decompose(ops.DepthToSpace, "tfl", "elements")(moved_as_signed)
decompose(ops.SpaceToDepth, "tfl", "elements")(moved_as_signed)


# --- depth -----------------------------------------------------------------------------------------------------------


@lift_onnx("DepthToSpace", since=(1, 11, 13, 28))
def _depth_to_space(b: Builder, node: Node) -> Value:
    return b(ops.DepthToSpace, node.operand(0), block_size=node.attributes["blocksize"], mode=node.attr("mode", "DCR"))


@lift_onnx("SpaceToDepth", since=(1, 13, 28))
def _space_to_depth(b: Builder, node: Node) -> Value:
    return b(ops.SpaceToDepth, node.operand(0), block_size=node.attributes["blocksize"], mode=node.attr("mode", "DCR"))


@lower_tfl(ops.DepthToSpace)
def _to_tfl_depth_to_space(node: Node) -> Form | None:
    return _block_form(node, "DEPTH_TO_SPACE")


@lower_tfl(ops.SpaceToDepth)
def _to_tfl_space_to_depth(node: Node) -> Form | None:
    return _block_form(node, "SPACE_TO_DEPTH")


def _block_form(node: Node, name: str) -> Form | None:
    """Depth behind two axes of space; the layout pass sees to their places."""
    ordered = list(node.attr("space_dims")) == sorted(node.attr("space_dims"))
    if node.attr("mode") != "DCR" or len(node.attr("space_dims")) != 2 or not ordered:
        return None
    return Form(name, (node.operand(0),), {"block_size": node.attr("block_size")})


@lower_onnx(ops.DepthToSpace)
def _to_onnx_depth_to_space(node: Node, opset: int) -> Form | None:
    if list(node.attr("space_dims")) != sorted(node.attr("space_dims")) or len(node.attr("space_dims")) != 2:
        return None
    return Form("DepthToSpace", (node.operand(0),), {"blocksize": node.attr("block_size"), "mode": node.attr("mode")})


@lower_onnx(ops.SpaceToDepth)
def _to_onnx_space_to_depth(node: Node, opset: int) -> Form | None:
    ordered = list(node.attr("space_dims")) == sorted(node.attr("space_dims")) and len(node.attr("space_dims")) == 2
    if not ordered or node.attr("mode") != "DCR":
        return None
    return Form("SpaceToDepth", (node.operand(0),), {"blocksize": node.attr("block_size")})


@lift_tfl("DEPTH_TO_SPACE")
def _from_tfl_depth_to_space(b: Builder, node: Node) -> Value:
    return b(ops.DepthToSpace, node.operand(0), block_size=node.attr("block_size"), **_CHANNELS_LAST)


@lift_tfl("SPACE_TO_DEPTH")
def _from_tfl_space_to_depth(b: Builder, node: Node) -> Value:
    return b(ops.SpaceToDepth, node.operand(0), block_size=node.attr("block_size"), **_CHANNELS_LAST)


_CHANNELS_LAST: dict[str, Any] = {"mode": "DCR", "depth_dim": 3, "space_dims": (1, 2)}


@decompose(ops.DepthToSpace)
def _depth_to_space_by_moving(b: Builder, node: Node) -> Value:
    """CRD: the same as DCR of a depth whose two factors have changed places. Else Reshape, Transpose, Reshape."""
    x, block, space = node.operand(0), node.attr("block_size"), tuple(node.attr("space_dims"))
    depth, n = node.attr("depth_dim") % x.rank, len(space)
    count = x.shape[depth] // block**n
    first = node.attr("mode") == "DCR"
    split: list[Dim] = []
    place: dict[int, int] = {}
    for axis, size in enumerate(x.shape):
        place[axis] = len(split) + (n if first and axis == depth else 0)
        if axis == depth:
            at = len(split) + (0 if first else 1)
            blocks = [at + i for i in range(n)]
            split += [*(block,) * n, count] if first else [count, *(block,) * n]
        else:
            split.append(size)
    order: list[int] = []
    for axis in range(x.rank):
        order.append(place[axis])
        if axis in space:
            order.append(blocks[space.index(axis)])
    return reshape(b, b(ops.Transpose, reshape(b, x, split), permutation=tuple(order)), node.result.shape, x)


@decompose(ops.SpaceToDepth)
def _space_to_depth_by_moving(b: Builder, node: Node) -> Value:
    """Reshape, Transpose, Reshape."""
    x, block, space = node.operand(0), node.attr("block_size"), tuple(node.attr("space_dims"))
    depth = node.attr("depth_dim") % x.rank
    split: list[Dim] = []
    place: dict[int, int] = {}
    for axis, size in enumerate(x.shape):
        place[axis] = len(split)
        split += [size // block, block] if axis in space else [size]
    blocks = [place[axis] + 1 for axis in space]
    order: list[int] = []
    for axis in range(x.rank):
        inner = [*blocks, place[axis]] if node.attr("mode") == "DCR" else [place[axis], *blocks]
        order += inner if axis == depth else [place[axis]]
    return reshape(b, b(ops.Transpose, reshape(b, x, split), permutation=tuple(order)), node.result.shape, x)


# --- batch -----------------------------------------------------------------------------------------------------------


def _block_sizes(node: Node) -> list[int]:
    sizes = static_ints(node.operand(1))
    if sizes is None:
        raise UnsupportedError("block sizes have to be known before run time")
    return sizes


@lift_tfl("SPACE_TO_BATCH_ND")
def _space_to_batch_tfl(b: Builder, node: Node) -> Value:
    return b(ops.SpaceToBatch, node.operand(0), node.operand(2), blocks=tuple(_block_sizes(node)))


@lift_tfl("BATCH_TO_SPACE_ND")
def _batch_to_space_tfl(b: Builder, node: Node) -> Value:
    return b(ops.BatchToSpace, node.operand(0), node.operand(2), blocks=tuple(_block_sizes(node)))


@decompose(ops.SpaceToBatch)
def _space_to_batch(b: Builder, node: Node) -> Value:
    """Pad; each space axis split into (size / block, block); the blocks in front of the batch."""
    x, blocks, padding = node.operand(0), node.attr("blocks"), static_ints(node.operand(1))
    n = len(blocks)
    if padding is None:
        ends = (reshape(b, end, (x.rank, 1)) for end in _ends(b, node.operand(1), n, x.rank))
        x = b(ops.Pad, x, b(ops.Concatenate, *ends, axis=1))
    elif any(padding):
        rows = np.zeros((x.rank, 2), np.int64)
        rows[1 : n + 1] = np.asarray(padding).reshape(-1, 2)
        x = b(ops.Pad, x, rows)
    split: list[Dim] = [x.shape[0]]
    for size, block in zip(x.shape[1 : n + 1], blocks, strict=True):
        split += [size // block, block]
    inner = [2 + 2 * i for i in range(n)]
    order = [*inner, 0, *(1 + 2 * i for i in range(n)), *range(2 * n + 1, x.rank + n)]
    moved = b(ops.Transpose, reshape(b, x, [*split, *x.shape[n + 1 :]]), permutation=tuple(order))
    sizes = [size // block for size, block in zip(x.shape[1 : n + 1], blocks, strict=True)]
    return reshape(b, moved, [x.shape[0] * product(blocks), *sizes, *x.shape[n + 1 :]], x)


@decompose(ops.BatchToSpace)
def _batch_to_space(b: Builder, node: Node) -> Value:
    """The batch split into (blocks, batch); each block behind its space axis; then what is cropped goes."""
    x, blocks, crops = node.operand(0), node.attr("blocks"), static_ints(node.operand(1))
    n, batch = len(blocks), x.shape[0] // product(blocks)
    order = [n]
    for i in range(n):
        order += [n + 1 + i, i]
    split = reshape(b, x, [*blocks, batch, *x.shape[1:]])
    moved = b(ops.Transpose, split, permutation=(*order, *range(2 * n + 1, x.rank + n)))
    sizes = [size * block for size, block in zip(x.shape[1 : n + 1], blocks, strict=True)]
    whole = reshape(b, moved, [batch, *sizes, *x.shape[n + 1 :]], x)
    if crops is None:
        first, behind = _ends(b, node.operand(1), n, x.rank)
        return b(ops.Slice, whole, first, b(ops.Sub, b(ops.Shape, whole), behind), [1] * x.rank)
    ends = zip(crops[::2], crops[1::2], strict=True)
    return sliced(b, whole, {i: slice(before, -after or None) for i, (before, after) in enumerate(ends, 1)})


def _ends(b: Builder, pairs: Value, count: int, rank: int) -> list[Value]:
    """What `pairs` says for the beginnings and for the ends of the axes 1 to `count`, with 0 for the others."""
    flat = as_int64(b, reshape(b, pairs, (2 * count,)))
    rest = np.zeros(rank - 1 - count, np.int64)
    ends = (b(ops.Gather, flat, list(range(side, 2 * count, 2)), axis=0) for side in (0, 1))
    return [b(ops.Concatenate, np.zeros(1, np.int64), end, rest, axis=0) for end in ends]


# --- columns ---------------------------------------------------------------------------------------------------------


@lift_onnx("Col2Im", since=(18,))
def _col2im(b: Builder, node: Node) -> Value:
    """Columns of blocks added up where they lie in the padded image, by ScatterND; then the padding goes."""
    x, image, block = (node.operand(i) for i in range(3))
    n = vector_length(image)
    strides, dilations = (list(node.attr(name) or [1] * n) for name in ("strides", "dilations"))
    pads = list(node.attr("pads") or [0] * (2 * n))
    padded = b(ops.Add, image, np.asarray([pads[i] + pads[n + i] for i in range(n)]))
    span = b(ops.Mul, b(ops.Sub, block, b.scalar(1, block)), np.asarray(dilations))
    room = b(ops.Sub, b(ops.Sub, padded, span), b.scalar(1, block))
    counts = b(ops.Add, b(ops.FloorDiv, room, np.asarray(strides)), b.scalar(1, block))
    inside, across = _places(b, block, dilations, padded), _places(b, counts, strides, padded)
    places = b(ops.Reshape, b(ops.Add, unsqueezed(b, inside, [1]), unsqueezed(b, across, [0])), [-1, 1])
    rows = b(ops.Reshape, x, b(ops.Concatenate, [-1], b(ops.Shape, places, axes=(0,)), axis=0))
    total = b(ops.Reduce, padded, [0], kind="prod", keepdims=True)
    sizes = b(ops.Concatenate, total, b(ops.Shape, rows, axes=(0,)), axis=0)
    turned = b(ops.Transpose, rows, permutation=(1, 0))
    summed = b(ops.Transpose, b(ops.ScatterND, None, places, turned, sizes, kind="add"), permutation=(1, 0))
    full = b(ops.Reshape, summed, b(ops.Concatenate, dim_vector(b, x.shape[:1], x), [-1], padded, axis=0))
    if not any(pads):
        return full
    ends = b(ops.Concatenate, [HUGE, HUGE], b(ops.Add, image, np.asarray(pads[:n])), axis=0)
    return b(ops.Slice, full, [0, 0, *pads[:n]], ends, [1] * (n + 2))


def _places(b: Builder, counts: Value, steps: Sequence[int], sizes: Value) -> Value:
    """For each of counts[0] x counts[1] x ... points, steps[i] apart along axis i, where it lies in C order in a
    tensor of `sizes`.
    """
    if (known := static_ints(counts)) is not None and (inner := static_ints(sizes)) is not None:
        grid = np.indices(known, sparse=True)
        apart = strides_of(inner) * np.asarray(steps)
        return constant(np.asarray(sum(g * a for g, a in zip(grid, apart, strict=True))).reshape(-1))
    places: Value = constant(np.zeros(1, np.int64))
    for axis, step in enumerate(steps):
        size, count = (b(ops.Gather, v, np.asarray(axis), axis=0) for v in (sizes, counts))
        along = b(ops.Mul, b(ops.Range, b.scalar(0, count), count, b.scalar(1, count)), b.scalar(step, count))
        before = b(ops.Mul, places, size)
        places = b(ops.Reshape, b(ops.Add, unsqueezed(b, before, [1]), unsqueezed(b, along, [0])), [-1])
    return places
