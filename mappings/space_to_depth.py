"""Blocks of spatial axes moved to the features or to the batch, and back; columns of blocks added up (Col2Im)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from onnxtfl.rules import *


def _ordered(node: Node) -> bool:
    space = tuple(node.attr("space_dims"))
    return len(space) == 2 and space == tuple(sorted(space))


def _ordered_dcr(node: Node) -> bool:
    return _ordered(node) and node.attr("mode") == "DCR"


_NAMES = {"block_size": "blocksize", "mode": "mode"}
_PLAIN: Mapping[str, str | Spelled] = {"block_size": "blocksize", "mode": Spelled("mode", default="DCR")}
row(ops.DepthToSpace, onnx="DepthToSpace", since=(1, 11, 13, 28), attributes=_NAMES, when=_ordered)
row(ops.SpaceToDepth, onnx="SpaceToDepth", since=(1, 13, 28), attributes=_PLAIN, when=_ordered_dcr)
row(ops.DepthToSpace, tfl="DEPTH_TO_SPACE", attributes="block_size", when=_ordered_dcr, lifts=False)
row(ops.SpaceToDepth, tfl="SPACE_TO_DEPTH", attributes="block_size", when=_ordered_dcr, lifts=False)


@lift_tfl("DEPTH_TO_SPACE", "SPACE_TO_DEPTH")
def _from_tfl_blocks(b: Builder, node: Node) -> Value:
    op = ops.DepthToSpace if node.op.name == "tfl.DEPTH_TO_SPACE" else ops.SpaceToDepth
    return b(op, node.operand(0), block_size=node.attr("block_size"), mode="DCR", depth_dim=3, space_dims=(1, 2))


@lift_tfl("SPACE_TO_BATCH_ND", "BATCH_TO_SPACE_ND")
def _from_tfl_batch(b: Builder, node: Node) -> Value:
    op = ops.SpaceToBatch if node.op.name == "tfl.SPACE_TO_BATCH_ND" else ops.BatchToSpace
    return b(op, node.operand(0), node.operand(2), blocks=tuple(frozen(node.operand(1), "block sizes")))


@decompose(ops.DepthToSpace)
def _depth_to_space(b: Builder, node: Node) -> Value:
    return _with_moved_blocks(b, node, into_depth=False)


@decompose(ops.SpaceToDepth)
def _space_to_depth(b: Builder, node: Node) -> Value:
    return _with_moved_blocks(b, node, into_depth=True)


def _with_moved_blocks(b: Builder, node: Node, into_depth: bool) -> Value:
    x, depth = node.operand(0), node.attr("depth_dim") % node.operand(0).rank
    blocks = dict.fromkeys(node.attr("space_dims"), node.attr("block_size"))
    return _moved_blocks(b, x, blocks, depth, node.attr("mode") == "DCR", into_depth)


def _moved_blocks(
    b: Builder, x: Value, blocks: Mapping[int, int], depth: int, slowest: bool, into_depth: bool
) -> Value:
    """Move the `blocks` (sizes by axis) into the axis `depth`, or out of it: Reshape, Transpose, Reshape.

    Each axis is a product of factors: factor a < rank is what axis a has without blocks, the factors from rank on are
    the blocks. `slowest`: the blocks are the first factors of the axis `depth`, else the last.
    """
    block = {axis: x.rank + i for i, axis in enumerate(blocks)}
    deep = [*block.values(), depth] if slowest else [depth, *block.values()]
    in_depth = [deep if a == depth else [a] for a in range(x.rank)]
    in_space = [[a, block[a]] if a in block else [a] for a in range(x.rank)]
    parts = blocks if into_depth else {depth: product(blocks.values())}
    sizes = {a: size // parts[a] if a in parts else size for a, size in enumerate(x.shape)}
    sizes |= {block[a]: size for a, size in blocks.items()}
    before, after = (in_space, in_depth) if into_depth else (in_depth, in_space)
    factors = [factor for group in before for factor in group]
    split = reshape(b, x, [sizes[factor] for factor in factors])
    moved = transposed(b, split, [factors.index(factor) for group in after for factor in group])
    return reshape(b, moved, [product(sizes[factor] for factor in group) for group in after], x)


@decompose(ops.SpaceToBatch)
def _space_to_batch(b: Builder, node: Node) -> Value:
    """Pad, then move the blocks to the batch."""
    x, blocks, padding = node.operand(0), node.attr("blocks"), static_ints(node.operand(1))
    n = len(blocks)
    if padding is None:
        ends = (reshape(b, end, (x.rank, 1)) for end in _ends(b, node.operand(1), n, x.rank))
        x = b(ops.Pad, x, b(ops.Concatenate, *ends, axis=1))
    else:
        x = padded(b, x, range(1, n + 1), [*padding[::2], *padding[1::2]])
    return _moved_blocks(b, x, dict(enumerate(blocks, 1)), 0, slowest=True, into_depth=True)


@decompose(ops.BatchToSpace)
def _batch_to_space(b: Builder, node: Node) -> Value:
    """Move the blocks out of the batch, then crop."""
    x, blocks, crops = node.operand(0), node.attr("blocks"), static_ints(node.operand(1))
    whole = _moved_blocks(b, x, dict(enumerate(blocks, 1)), 0, slowest=True, into_depth=False)
    if crops is None:
        first, last = _ends(b, node.operand(1), len(blocks), x.rank)
        return b(ops.Slice, whole, first, b(ops.Sub, b(ops.Shape, whole), last), [1] * x.rank)
    ends = zip(crops[::2], crops[1::2], strict=True)
    return sliced(b, whole, {i: slice(before, -after or None) for i, (before, after) in enumerate(ends, 1)})


def _ends(b: Builder, pairs: Value, count: int, rank: int) -> list[Value]:
    """The entries of `pairs` for the beginnings and for the ends of the axes 1 to `count`, 0 for the others."""
    flat = as_int64(b, reshape(b, pairs, (2 * count,)))
    rest = np.zeros(rank - 1 - count, np.int64)
    ends = (b(ops.Gather, flat, list(range(side, 2 * count, 2)), axis=0) for side in (0, 1))
    return [b(ops.Concatenate, np.zeros(1, np.int64), end, rest, axis=0) for end in ends]


# --- columns ---------------------------------------------------------------------------------------------------------


@lift_onnx("Col2Im", since=(18,))
def _col2im(b: Builder, node: Node) -> Value:
    """Add up columns of blocks at their positions in the padded image by ScatterND, then crop the padding."""
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
    """The flat indices, in a tensor of `sizes`, of counts[0] x counts[1] x ... points, steps[i] apart along axis i."""
    if (known := static_ints(counts)) is not None and (inner := static_ints(sizes)) is not None:
        grid = np.indices(known, sparse=True)
        apart = strides_of(inner) * np.asarray(steps)
        return constant(np.asarray(sum(g * a for g, a in zip(grid, apart, strict=True))).reshape(-1))
    places: Value = constant(np.zeros(1, np.int64))
    for axis, step in enumerate(steps):
        size, count = (b(ops.Gather, v, np.asarray(axis), axis=0) for v in (sizes, counts))
        along = b(ops.Mul, positions(b, count), b.scalar(step, count))
        before = b(ops.Mul, places, size)
        places = b(ops.Reshape, b(ops.Add, unsqueezed(b, before, [1]), unsqueezed(b, along, [0])), [-1])
    return places
