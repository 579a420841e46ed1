"""Blocks of spatial axes moved to the features or to the batch, and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from onnxtfl.ir.data import Array
from onnxtfl.ir.dims import Dim, fresh, product
from onnxtfl.ir.graph import Node
from onnxtfl.ir.op import INDICES, REQUIRED, Attributes, Op, Operand, Permutation, Relabeled
from onnxtfl.ir.permutations import everywhere, moved, moved_all, rank_of
from onnxtfl.ir.shapes import known_dims, normalize_axes, normalize_axis, same_type
from onnxtfl.ir.types import Type


class _BlocksInBatch(Op, register=False):
    """What moves blocks of the axes behind the batch into the batch, or out of it; `blocks`: sizes, axis by axis."""

    operands = (Operand("input"), Operand("amounts", INDICES))
    defaults: ClassVar[Attributes] = {"blocks": REQUIRED}

    @classmethod
    def amounts(cls, node: Node) -> list[tuple[Dim, Dim]]:
        """What is added or cut at both ends of each axis; fresh symbols where that is not known."""
        known = known_dims(node.operand(1))
        count = 2 * len(node.attr("blocks"))
        dims = known if known is not None and len(known) == count else [fresh() for _ in range(count)]
        return list(zip(dims[::2], dims[1::2], strict=True))


class SpaceToBatch(_BlocksInBatch):
    """The axes behind the batch padded with zeros, then each cut into blocks, whose places go in front of the batch.

    Source: TFLite SPACE_TO_BATCH_ND (added); into the core: Pad, Reshape, Transpose.
    """

    @classmethod
    def infer(cls, node: Node) -> Sequence[Type]:
        x, blocks = node.operand(0).tensor_type, node.attr("blocks")
        if x.shape is None:
            return [same_type(x, None)]
        sizes = list(x.shape)
        for i, (block, (before, after)) in enumerate(zip(blocks, cls.amounts(node), strict=True), 1):
            total = sizes[i] + before + after
            if isinstance(total, int) and total % block:
                raise ValueError(f"{total} does not divide into blocks of {block}")
            sizes[i] = total // block
        return [same_type(x, (sizes[0] * product(blocks), *sizes[1:]))]

    @classmethod
    def evaluate(cls, attributes: Attributes, *operands: Array | None) -> Array:
        x, amounts = operands
        assert x is not None and amounts is not None
        blocks, n = attributes["blocks"], len(attributes["blocks"])
        rows = [(0, 0), *((int(a), int(z)) for a, z in amounts.reshape(-1, 2)), *[(0, 0)] * (x.ndim - 1 - n)]
        padded = np.pad(x, rows)
        split = [padded.shape[0]]
        for size, block in zip(padded.shape[1 : n + 1], blocks, strict=True):
            split += [size // block, block]
        order = [*range(2, 2 * n + 1, 2), 0, *range(1, 2 * n, 2), *range(2 * n + 1, x.ndim + n)]
        moved = padded.reshape(*split, *padded.shape[n + 1 :]).transpose(order)
        return moved.reshape(-1, *moved.shape[n + 1 :])


class BatchToSpace(_BlocksInBatch):
    """What SpaceToBatch does, undone; then the ends of the axes are cut off.

    Source: TFLite BATCH_TO_SPACE_ND (added); into the core: Reshape, Transpose, Slice.
    """

    @classmethod
    def infer(cls, node: Node) -> Sequence[Type]:
        x, blocks = node.operand(0).tensor_type, node.attr("blocks")
        if x.shape is None:
            return [same_type(x, None)]
        sizes = list(x.shape)
        for i, (block, (before, after)) in enumerate(zip(blocks, cls.amounts(node), strict=True), 1):
            sizes[i] = sizes[i] * block - before - after
        return [same_type(x, (sizes[0] // product(blocks), *sizes[1:]))]

    @classmethod
    def evaluate(cls, attributes: Attributes, *operands: Array | None) -> Array:
        x, crops = operands
        assert x is not None and crops is not None
        blocks, n = attributes["blocks"], len(attributes["blocks"])
        split = x.reshape(*blocks, -1, *x.shape[1:])
        order = [n, *(axis for i in range(n) for axis in (n + 1 + i, i)), *range(2 * n + 1, x.ndim + n)]
        sizes = [size * block for size, block in zip(x.shape[1 : n + 1], blocks, strict=True)]
        whole = split.transpose(order).reshape(-1, *sizes, *x.shape[n + 1 :])
        ends = zip(crops.reshape(-1, 2).tolist(), sizes, strict=True)
        return whole[(slice(None), *(slice(int(a), size - int(z)) for (a, z), size in ends))]


class _Blocks(Op, register=False):
    """What DepthToSpace and SpaceToDepth share: a block of `block_size` along each of `space_dims`, and `depth_dim`.

    mode "DCR": the depth is (block positions, depth) with depth running fastest, "CRD": (depth, block positions).
    """

    operands = (Operand("input"),)
    defaults = {"block_size": REQUIRED, "mode": "DCR", "depth_dim": 1, "space_dims": (2, 3)}
    core = True
    moves = slice(0, 1)

    @classmethod
    def relabel(cls, node: Node, index: int, permutation: Permutation) -> Relabeled | None:
        space = moved_all(node.attr("space_dims"), permutation)
        return everywhere(node, permutation, depth_dim=moved(node.attr("depth_dim"), permutation), space_dims=space)

    @classmethod
    def prefers(cls, node: Node, channels_last: bool) -> Relabeled | None:
        rank = rank_of(node.operand(0).type)
        if rank is None:
            return None
        depth, space = node.attr("depth_dim") % rank, tuple(node.attr("space_dims"))
        others = tuple(a for a in range(rank) if a != depth and a not in space)
        order = (*others, *space, depth) if channels_last else (*others, depth, *space)
        return cls.relabel(node, 0, order)


def _block_order(attributes: Mapping[str, Any], rank: int) -> tuple[list[int], int, tuple[int, ...]]:
    """Axes outside of the blocks, the depth axis and the space axes."""
    depth = normalize_axis(attributes["depth_dim"], rank)
    space = normalize_axes(attributes["space_dims"], rank)
    return [a for a in range(rank) if a != depth and a not in space], depth, space


class DepthToSpace(_Blocks):
    """Parts of the depth become blocks of space. Source: neutral-ops 3.35 (name only), ONNX DepthToSpace."""

    @classmethod
    def infer(cls, node: Node) -> Sequence[Type]:
        x = node.operand(0).tensor_type
        if x.shape is None:
            return [same_type(x, None)]
        _, depth, space = _block_order({**cls.defaults, **node.attributes}, len(x.shape))
        block, dims = node.attr("block_size"), list(x.shape)
        if isinstance(dims[depth], int) and dims[depth] % block ** len(space):
            raise ValueError(f"a depth of {dims[depth]} does not fill blocks of {block}")
        dims[depth] = dims[depth] // block ** len(space)
        for axis in space:
            dims[axis] = dims[axis] * block
        return [same_type(x, tuple(dims))]

    @classmethod
    def evaluate(cls, attributes: Mapping[str, Any], *operands: Array | None) -> Array:
        x, block = operands[0], attributes["block_size"]
        assert x is not None
        others, depth, space = _block_order(attributes, x.ndim)
        n, first = len(space), attributes["mode"] == "DCR"
        order = (*others, depth, *space)
        y = x.transpose(order)
        lead, count, sizes = y.shape[: len(others)], y.shape[len(others)] // block**n, y.shape[len(others) + 1 :]
        blocks = (*(block,) * n, count) if first else (count, *(block,) * n)
        y = y.reshape(*lead, *blocks, *sizes)
        k = len(others)
        at_block, at_depth = (k, k + n) if first else (k + 1, k)
        pairs = [a for i in range(n) for a in (k + 1 + n + i, at_block + i)]
        y = y.transpose(*range(k), at_depth, *pairs).reshape(*lead, count, *(s * block for s in sizes))
        return y.transpose(np.argsort(order))


class SpaceToDepth(_Blocks):
    """Blocks of space become parts of the depth. Source: neutral-ops 3.127."""

    @classmethod
    def infer(cls, node: Node) -> Sequence[Type]:
        x = node.operand(0).tensor_type
        if x.shape is None:
            return [same_type(x, None)]
        _, depth, space = _block_order({**cls.defaults, **node.attributes}, len(x.shape))
        block, dims = node.attr("block_size"), list(x.shape)
        for axis in space:
            if isinstance(dims[axis], int) and dims[axis] % block:
                raise ValueError(f"a size of {dims[axis]} is not made of blocks of {block}")
            dims[axis] = dims[axis] // block
        dims[depth] = dims[depth] * block ** len(space)
        return [same_type(x, tuple(dims))]

    @classmethod
    def evaluate(cls, attributes: Mapping[str, Any], *operands: Array | None) -> Array:
        x, block = operands[0], attributes["block_size"]
        assert x is not None
        others, depth, space = _block_order(attributes, x.ndim)
        n, k = len(space), len(others)
        order = (*others, depth, *space)
        y = x.transpose(order)
        lead, count, sizes = y.shape[:k], y.shape[k], [s // block for s in y.shape[k + 1 :]]
        y = y.reshape(*lead, count, *(d for s in sizes for d in (s, block)))
        spaces, blocks = [k + 1 + 2 * i for i in range(n)], [k + 2 + 2 * i for i in range(n)]
        inner = (*blocks, k) if attributes["mode"] == "DCR" else (k, *blocks)
        y = y.transpose(*range(k), *inner, *spaces).reshape(*lead, count * block**n, *sizes)
        return y.transpose(np.argsort(order))
