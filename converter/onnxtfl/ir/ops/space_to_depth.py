"""Blocks of spatial axes moved to the features or to the batch, and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np

from onnxtfl.ir.attributes import Axes, Axis, Choice, Integer, Integers
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.dims import Dim, differ, fresh_symbol, known_sizes, product
from onnxtfl.ir.dims import Shape as Dims
from onnxtfl.ir.formula import Derived
from onnxtfl.ir.graph import Value
from onnxtfl.ir.op import INDICES, Operand, SharedAxes
from onnxtfl.ir.ops.arithmetic import Sub
from onnxtfl.ir.ops.concatenation import Concatenate
from onnxtfl.ir.ops.gathering import Gather
from onnxtfl.ir.ops.padding import Pad
from onnxtfl.ir.ops.shape import Shape
from onnxtfl.ir.ops.slicing import END, Slice
from onnxtfl.ir.reshape import as_int64, reshape, transposed, with_unit_axis
from onnxtfl.ir.shapes import known_dims, normalize_axes, normalize_axis, static_ints


def _moved_blocks(
    b: Builder, x: Value, blocks: Mapping[int, Dim], depth: int, slowest: bool, into_depth: bool, *sources: Value
) -> Value:
    """Move the `blocks` (sizes by axis) into the axis `depth`, or out of it: Reshape, Transpose, Reshape.

    `sources`: of sizes of blocks known only at run time.

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
    split = reshape(b, x, [sizes[factor] for factor in factors], *sources)
    moved = transposed(b, split, [factors.index(factor) for group in after for factor in group])
    return reshape(b, moved, [product(sizes[factor] for factor in group) for group in after], x, *sources)


class _BlocksInBatch(Derived, register=False):
    """Moves blocks of the axes after the batch into the batch, or out of it; `blocks`: the size for each axis."""

    operands = (Operand("input"), Operand("amounts", INDICES))
    attributes = {"blocks": Integers()}


def block_amounts(value: Value, blocks: Sequence[int]) -> list[tuple[int, Dim, Dim]]:
    """For each axis its block, and the padding or cropping at both ends; fresh symbols if that is unknown."""
    if min(blocks, default=1) < 1:
        raise ValueError(f"blocks of {list(blocks)}")
    if value.tensor_type.is_static and value.shape not in ((len(blocks), 2), (2 * len(blocks),)):
        raise ValueError(f"{value.type} is not a pair for each of {len(blocks)} axes")
    known, count = known_dims(value), 2 * len(blocks)
    if min(known_sizes(known or ()), default=0) < 0:
        raise ValueError(f"padding or cropping of {known}")
    dims = known if known is not None and len(known) == count else [fresh_symbol() for _ in range(count)]
    return list(zip(blocks, dims[::2], dims[1::2], strict=True))


def _ends(b: Builder, pairs: Value, count: int, rank: int) -> list[Value]:
    """The entries of `pairs` for the beginnings and for the ends of the axes 1 to `count`, 0 for the others."""
    flat = as_int64(b, reshape(b, pairs, (2 * count,)))
    rest = np.zeros(rank - 1 - count, np.int64)
    ends = (b(Gather, flat, list(range(side, 2 * count, 2)), axis=0) for side in (0, 1))
    return [b(Concatenate, np.zeros(1, np.int64), end, rest, axis=0) for end in ends]


def into_batch(b: Builder, x: Value, amounts: Value, blocks: Sequence[Dim], *sources: Value) -> Value:
    """The expansion of SpaceToBatch; sizes of `blocks` known only at run time are read from `sources`."""
    if any(static_ints(amounts) or [1]):
        ends = (with_unit_axis(b, end, 1) for end in _ends(b, amounts, len(blocks), x.rank))
        x = b(Pad, x, b(Concatenate, *ends, axis=1))
    return _moved_blocks(b, x, dict(enumerate(blocks, 1)), 0, True, True, *sources)


def from_batch(b: Builder, x: Value, amounts: Value, blocks: Sequence[Dim], *sources: Value) -> Value:
    """The expansion of BatchToSpace; sizes of `blocks` known only at run time are read from `sources`."""
    whole = _moved_blocks(b, x, dict(enumerate(blocks, 1)), 0, True, False, *sources)
    first, last = _ends(b, amounts, len(blocks), x.rank)
    known = static_ints(last)
    limits = b(Sub, b(Shape, whole), last) if known is None else [-n or END for n in known]
    return b(Slice, whole, first, limits, [1] * x.rank) if any(static_ints(amounts) or [1]) else whole


class SpaceToBatch(_BlocksInBatch):
    """Pad the axes after the batch with zeros, then split each into blocks, whose positions become part of the batch.

    Source: TFLite SPACE_TO_BATCH_ND (added).
    """

    @staticmethod
    def shape(x: Value, amounts: Value, *, blocks: Sequence[int]) -> Dims:
        sizes = list(x.shape)
        for i, (block, before, after) in enumerate(block_amounts(amounts, blocks), 1):
            total = sizes[i] + before + after
            if differ(total % block, 0):
                raise ValueError(f"{total} does not divide into blocks of {block}")
            sizes[i] = total // block
        return (sizes[0] * product(blocks), *sizes[1:])

    @classmethod
    def expand(cls, b: Builder, x: Value, amounts: Value, blocks: Sequence[int]) -> Value:
        return into_batch(b, x, amounts, blocks)


class BatchToSpace(_BlocksInBatch):
    """The inverse of SpaceToBatch; then the ends of the axes are cropped. Source: TFLite BATCH_TO_SPACE_ND (added)."""

    @staticmethod
    def shape(x: Value, amounts: Value, *, blocks: Sequence[int]) -> Dims:
        sizes = list(x.shape)
        for i, (block, before, after) in enumerate(block_amounts(amounts, blocks), 1):
            sizes[i] = sizes[i] * block - before - after
        return (sizes[0] // product(blocks), *sizes[1:])

    @classmethod
    def expand(cls, b: Builder, x: Value, amounts: Value, blocks: Sequence[int]) -> Value:
        return from_batch(b, x, amounts, blocks)


class _Blocks(Derived, register=False):
    """The base of DepthToSpace and SpaceToDepth: a block of `block_size` along each of `space_dims`, and `depth_dim`.

    mode "DCR": the depth is (block positions, depth) with depth running fastest, "CRD": (depth, block positions).
    """

    operands = (Operand("input"),)
    attributes = {
        "block_size": Integer(),
        "mode": Choice("DCR", "CRD", default="DCR"),
        "depth_dim": Axis(1),
        "space_dims": Axes((2, 3)),
    }
    core = True
    shared_axes = SharedAxes(attributes=("depth_dim", "space_dims"))
    moves = slice(0, 1)
    into_depth: ClassVar[bool]

    @classmethod
    def shape(cls, x: Value, *, block_size: int, depth_dim: int, space_dims: Sequence[int]) -> Dims:
        depth, dims = normalize_axis(depth_dim, x.rank), list(x.shape)
        space = normalize_axes(space_dims, x.rank)
        for axis, factor in (*((a, block_size) for a in space), (depth, block_size ** len(space))):
            split = (axis != depth) is cls.into_depth
            if split and differ(dims[axis] % factor, 0):
                raise ValueError(f"an axis of {dims[axis]} does not divide into blocks of {factor}")
            dims[axis] = dims[axis] // factor if split else dims[axis] * factor
        return tuple(dims)

    @classmethod
    def expand(
        cls, b: Builder, x: Value, block_size: int, mode: str, depth_dim: int, space_dims: Sequence[int]
    ) -> Value:
        blocks = dict.fromkeys(normalize_axes(space_dims, x.rank), block_size)
        return _moved_blocks(b, x, blocks, depth_dim % x.rank, mode == "DCR", cls.into_depth)


class DepthToSpace(_Blocks):
    """Parts of the depth become blocks of space. Source: neutral-ops 3.35 (name only), ONNX DepthToSpace."""

    into_depth = False


class SpaceToDepth(_Blocks):
    """Blocks of space become parts of the depth. Source: neutral-ops 3.127."""

    into_depth = True
