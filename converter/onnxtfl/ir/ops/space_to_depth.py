"""Blocks of spatial axes moved to the features or to the batch, and back."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from onnxtfl.ir.define import *


class _BlocksInBatch(Op, register=False):
    """Moves blocks of the axes after the batch into the batch, or out of it; `blocks`: the size for each axis."""

    operands = (Operand("input"), Operand("amounts", INDICES))
    defaults = {"blocks": REQUIRED}


def block_amounts(value: Value, blocks: Sequence[int]) -> list[tuple[int, Dim, Dim]]:
    """For each axis its block, and the padding or cropping at both ends; fresh symbols if that is unknown."""
    known, count = known_dims(value), 2 * len(blocks)
    dims = known if known is not None and len(known) == count else [fresh() for _ in range(count)]
    return list(zip(blocks, dims[::2], dims[1::2], strict=True))


class SpaceToBatch(_BlocksInBatch):
    """Pad the axes after the batch with zeros, then split each into blocks, whose positions become part of the batch.

    Source: TFLite SPACE_TO_BATCH_ND (added); into the core: Pad, Reshape, Transpose.
    """

    @staticmethod
    def shape(x: Value, amounts: Value, *, blocks: Sequence[int]) -> Dims:
        sizes = list(x.shape)
        for i, (block, before, after) in enumerate(block_amounts(amounts, blocks), 1):
            total = sizes[i] + before + after
            if isinstance(total, int) and total % block:
                raise ValueError(f"{total} does not divide into blocks of {block}")
            sizes[i] = total // block
        return (sizes[0] * product(blocks), *sizes[1:])

    @staticmethod
    def compute(x: Array, amounts: Array, *, blocks: Sequence[int]) -> Array:
        n = len(blocks)
        rows = [(0, 0), *((int(a), int(z)) for a, z in amounts.reshape(-1, 2)), *[(0, 0)] * (x.ndim - 1 - n)]
        padded = np.pad(x, rows)
        split = [padded.shape[0]]
        for size, block in zip(padded.shape[1 : n + 1], blocks, strict=True):
            split += [size // block, block]
        order = [*range(2, 2 * n + 1, 2), 0, *range(1, 2 * n, 2), *range(2 * n + 1, x.ndim + n)]
        moved = padded.reshape(*split, *padded.shape[n + 1 :]).transpose(order)
        return moved.reshape(-1, *moved.shape[n + 1 :])


class BatchToSpace(_BlocksInBatch):
    """The inverse of SpaceToBatch; then the ends of the axes are cropped.

    Source: TFLite BATCH_TO_SPACE_ND (added); into the core: Reshape, Transpose, Slice.
    """

    @staticmethod
    def shape(x: Value, amounts: Value, *, blocks: Sequence[int]) -> Dims:
        sizes = list(x.shape)
        for i, (block, before, after) in enumerate(block_amounts(amounts, blocks), 1):
            sizes[i] = sizes[i] * block - before - after
        return (sizes[0] // product(blocks), *sizes[1:])

    @staticmethod
    def compute(x: Array, amounts: Array, *, blocks: Sequence[int]) -> Array:
        n = len(blocks)
        split = x.reshape(*blocks, -1, *x.shape[1:])
        order = [n, *(axis for i in range(n) for axis in (n + 1 + i, i)), *range(2 * n + 1, x.ndim + n)]
        sizes = [size * block for size, block in zip(x.shape[1 : n + 1], blocks, strict=True)]
        whole = split.transpose(order).reshape(-1, *sizes, *x.shape[n + 1 :])
        ends = zip(amounts.reshape(-1, 2).tolist(), sizes, strict=True)
        return whole[(slice(None), *(slice(int(a), size - int(z)) for (a, z), size in ends))]


class _Blocks(Op, register=False):
    """What DepthToSpace and SpaceToDepth share: a block of `block_size` along each of `space_dims`, and `depth_dim`.

    mode "DCR": the depth is (block positions, depth) with depth running fastest, "CRD": (depth, block positions).
    """

    operands = (Operand("input"),)
    defaults = {"block_size": REQUIRED, "mode": "DCR", "depth_dim": 1, "space_dims": (2, 3)}
    choices = {"mode": ("DCR", "CRD")}
    core = True
    shared_axes = SharedAxes(attributes=("depth_dim", "space_dims"))
    moves = slice(0, 1)


def _normalized(depth_dim: int, space_dims: Sequence[int], rank: int) -> tuple[list[int], int, tuple[int, ...]]:
    """Axes outside of the blocks, the depth axis and the space axes."""
    depth, space = normalize_axis(depth_dim, rank), normalize_axes(space_dims, rank)
    return [a for a in range(rank) if a != depth and a not in space], depth, space


def _into_depth(mode: str, others: int, spatial: int) -> list[int]:
    """The permutation of (others, depth, size, block, size, block ...) to (others, depth with blocks, sizes)."""
    sizes, blocks = ([others + first + 2 * i for i in range(spatial)] for first in (1, 2))
    return [*range(others), *((*blocks, others) if mode == "DCR" else (others, *blocks)), *sizes]


class DepthToSpace(_Blocks):
    """Parts of the depth become blocks of space. Source: neutral-ops 3.35 (name only), ONNX DepthToSpace."""

    @staticmethod
    def shape(x: Value, *, block_size: int, depth_dim: int, space_dims: Sequence[int]) -> Dims:
        _, depth, space = _normalized(depth_dim, space_dims, x.rank)
        dims, parts = list(x.shape), block_size ** len(space)
        if isinstance(dims[depth], int) and dims[depth] % parts:
            raise ValueError(f"a depth of {dims[depth]} does not fill blocks of {block_size}")
        dims[depth] = dims[depth] // parts
        for axis in space:
            dims[axis] = dims[axis] * block_size
        return tuple(dims)

    @staticmethod
    def compute(x: Array, *, block_size: int, mode: str, depth_dim: int, space_dims: Sequence[int]) -> Array:
        others, depth, space = _normalized(depth_dim, space_dims, x.ndim)
        order, n, k = (*others, depth, *space), len(space), len(others)
        y = x.transpose(order)
        lead, count, sizes = y.shape[:k], y.shape[k] // block_size**n, y.shape[k + 1 :]
        spread, move = (*lead, count, *(d for s in sizes for d in (s, block_size))), _into_depth(mode, k, n)
        y = y.reshape([spread[i] for i in move]).transpose(np.argsort(move))
        return y.reshape(*lead, count, *(s * block_size for s in sizes)).transpose(np.argsort(order))


class SpaceToDepth(_Blocks):
    """Blocks of space become parts of the depth. Source: neutral-ops 3.127."""

    @staticmethod
    def shape(x: Value, *, block_size: int, depth_dim: int, space_dims: Sequence[int]) -> Dims:
        _, depth, space = _normalized(depth_dim, space_dims, x.rank)
        dims = list(x.shape)
        for axis in space:
            if isinstance(dims[axis], int) and dims[axis] % block_size:
                raise ValueError(f"a size of {dims[axis]} is not made of blocks of {block_size}")
            dims[axis] = dims[axis] // block_size
        dims[depth] = dims[depth] * block_size ** len(space)
        return tuple(dims)

    @staticmethod
    def compute(x: Array, *, block_size: int, mode: str, depth_dim: int, space_dims: Sequence[int]) -> Array:
        others, depth, space = _normalized(depth_dim, space_dims, x.ndim)
        order, n, k = (*others, depth, *space), len(space), len(others)
        y = x.transpose(order)
        lead, count, sizes = y.shape[:k], y.shape[k], [s // block_size for s in y.shape[k + 1 :]]
        y = y.reshape(*lead, count, *(d for s in sizes for d in (s, block_size)))
        y = y.transpose(_into_depth(mode, k, n)).reshape(*lead, count * block_size**n, *sizes)
        return y.transpose(np.argsort(order))
