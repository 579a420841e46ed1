"""Repetition along axes: Expand, Tile, and the shape that two shapes broadcast to."""

from __future__ import annotations

import itertools
import math
from contextlib import suppress

import numpy as np

from onnxtfl.build.rows import row
from onnxtfl.build.sizes import int32_operands, may_hold_zeros, sizes_as_int64, vector_length
from onnxtfl.build.stablehlo import int_list
from onnxtfl.errors import UnsupportedError
from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.dims import is_static
from onnxtfl.ir.formula import Term
from onnxtfl.ir.graph import Node, Value, constant
from onnxtfl.ir.quantized import is_real
from onnxtfl.ir.reshape import broadcast, dim_vector, reshape, transposed
from onnxtfl.ir.shapes import known_dims, normalize_axis, static_ints
from onnxtfl.rewriting.registry import Form, decompose, lift_onnx, lift_tfl, lower_tfl, upgrade

row(ops.Tile, onnx="Tile", since=(6, 13), tfl="TILE", integers=(1,))
row(ops.BroadcastTo, onnx="Expand", integers=(1,), lifts=False)
row(ops.BroadcastTo, tfl="BROADCAST_TO", integers=(1,))


@lower_tfl(ops.BroadcastTo, rank=-1)
def _to_tfl_fill(node: Node) -> Form | None:
    """One element in all places, of computed sizes: 8 x 8400 take 8 us with FILL, 504 us with BROADCAST_TO."""
    x, sizes = node.operand(0), node.operand(1)
    if x.is_quantized or sizes.is_constant or x.tensor_type.shape is None:
        return None
    if x.rank and not (x.is_constant and x.is_single):
        return None
    element = constant(x.data.reshape(())) if x.data is not None and x.rank else x
    return Form("FILL", (sizes, element))


decompose(ops.Tile, "tfl", "operands")(int32_operands(1))
decompose(ops.BroadcastTo, "tfl", "operands")(int32_operands(1))


def _tiled_axes(node: Node) -> tuple[list[int], list[int]] | None:
    """The sizes of the operand and of the result of a Tile as a broadcast, where each tiled axis has a new one before
    it; None if they are not static.
    """
    x, times = node.operand(0), static_ints(node.operand(1))
    if times is None or not x.is_static or not node.result.is_static:
        return None
    narrow: list[int] = []
    wide: list[int] = []
    for size, count in zip(x.shape, times, strict=True):
        if count == 1 and narrow and narrow[-1] == wide[-1]:
            narrow[-1] = wide[-1] = narrow[-1] * size
            continue
        if count != 1:
            narrow.append(1)
            wide.append(count)
        narrow.append(size)
        wide.append(size)
    return narrow, wide


@decompose(ops.Tile, "tfl")
def _tile_by_broadcasting(b: Builder, node: Node) -> Value | None:
    """Tile without a TILE kernel.

    ::

        Tile(%x: [2,3], [1,4])    ->    Reshape(BroadcastTo(Reshape(%x, [2,1,3]), [2,4,3]), [2,12])
    """
    if (axes := _tiled_axes(node)) is None:
        return None
    return reshape(b, b(ops.BroadcastTo, reshape(b, node.operand(0), axes[0]), axes[1]), node.result.shape)


def _merged_axes(node: Node) -> tuple[list[int], list[int]] | None:
    """The sizes of the operand and of the result of a broadcast, with adjacent axes merged that both broadcast, or that
    both do not; None if they are not static.
    """
    x, full = node.operand(0), node.result.tensor_type.shape
    if not is_static(full) or not is_static(x.tensor_type.shape) or not full:
        return None
    own = (1,) * (len(full) - x.rank) + x.shape
    groups = itertools.groupby(zip(own, full, strict=True), key=lambda pair: pair[0] != pair[1])
    sizes = [tuple(map(math.prod, zip(*group, strict=True))) for _, group in groups]
    return [narrow for narrow, _ in sizes], [wide for _, wide in sizes]


@decompose(ops.BroadcastTo, "gpu")
@decompose(ops.BroadcastTo, "ethos-u")
def _broadcast_by_tiling(b: Builder, node: Node) -> Value | None:
    """Tile the axes that broadcast, adjacent ones merged: accelerators have TILE but not BROADCAST_TO.

    ::

        BroadcastTo(%x: [1,1,5], [3,4,5])    ->    Reshape(Tile(Reshape(%x, [1,5]), [12,1]), [3,4,5])
    """
    merged = _merged_axes(node)
    if merged is None:
        return None
    narrow, wide = merged
    times = [full // size if size else 0 for size, full in zip(narrow, wide, strict=True)]
    tiled = b(ops.Tile, reshape(b, node.operand(0), narrow), np.asarray(times, np.int32))
    return reshape(b, tiled, node.result.shape)


MOST_ONES = 1 << 12
"""The most elements of a constant that repeats axes as a factor."""
_MOST_AXES = 6
"""The most axes of a product that broadcasts."""
_FEW_AXES = 4
"""Those of a product that broadcasts in every runtime: where there are more, they are merged."""


def _ones_of_same_rank(node: Node) -> list[int] | None:
    """The shape of ones by which a product repeats the operand as a broadcast does; None if dynamic sizes are repeated,
    or arise.
    """
    x, full = node.operand(0), node.result.tensor_type.shape
    if full is None or x.tensor_type.shape is None or len(full) > _MOST_AXES:
        return None
    own = (1,) * (len(full) - x.rank) + x.shape
    ones = [size if size != mine else 1 for mine, size in zip(own, full, strict=True)]
    known = [size for size, mine in zip(ones, own, strict=True) if isinstance(size, int) and (size == 1 or mine == 1)]
    return known if len(known) == len(ones) and math.prod(known) <= MOST_ONES else None


@decompose(ops.BroadcastTo, "xnnpack")
@decompose(ops.Tile, "xnnpack")
def _repeat_by_multiplying(b: Builder, node: Node) -> Value | None:
    """Multiply by ones on the axes that broadcast: XNNPACK has neither BROADCAST_TO nor TILE. All floats stay as they
    are.

    ::

        BroadcastTo(%x: [2,1,5], [2,4,5])    ->    Mul(%x, ones: [1,4,1])
        BroadcastTo(%x: [N,1,5], [N,4,5])    ->    Mul(%x, ones: [1,4,1])
    """
    x = node.operand(0)
    if not x.dtype.is_float or not is_real(x.type):
        return None
    ones = _ones_of_same_rank(node) if node.op is ops.BroadcastTo else None
    if ones is not None and (len(ones) <= _FEW_AXES or not is_static(node.result.shape)):
        return b(ops.Mul, x, np.ones(ones, x.dtype.numpy))
    axes = (_merged_axes if node.op is ops.BroadcastTo else _tiled_axes)(node)
    if axes is None:
        return None
    ones = [full if size != full else 1 for size, full in zip(*axes, strict=True)]
    if math.prod(ones) > MOST_ONES:
        return None
    product = b(ops.Mul, reshape(b, x, axes[0]), np.ones(ones, x.dtype.numpy))
    return reshape(b, product, node.result.shape)


@upgrade("Tile", since=(1,))
def _tile_1(b: Builder, node: Node) -> None:
    """Tile-1 repeats `tiles` times along one `axis`; both have the type of the tensor."""
    rank, (tiles, axis) = (
        node.operand(0).rank,
        (Term(b, reshape(b, sizes_as_int64(b, node.operand(i)), (1,))) for i in (1, 2)),
    )
    if (known := static_ints(axis.value)) is not None:
        normalize_axis(known[0], rank)
    each = Term(b, constant(np.arange(rank)))
    node.set_operand(2, None)
    del node.operands[2:]
    node.set_operand(1, each.equals(axis % rank).choose(tiles, 1).value)


@lift_onnx("Expand", since=(8, 13))
def _expand(b: Builder, node: Node) -> Value:
    x, shape = node.operand(0), node.operand(1)
    known = known_dims(shape)
    if known is not None and not may_hold_zeros(shape) and x.tensor_type.shape is not None:
        with suppress(UnsupportedError):  # sizes known only from the vector
            return broadcast(b, x, known, shape)
    return b(ops.BroadcastTo, x, _joint_shape(b, x, shape))


def _joint_shape(b: Builder, x: Value, wanted: Value) -> Value:
    """Compute the shape to which `x` and the sizes `wanted` broadcast: of two sizes the one that is not 1."""
    own = x.shape
    if all(d == 1 for d in own) and len(own) <= vector_length(wanted):
        return wanted
    rank = max(len(own), vector_length(wanted))
    if rank > vector_length(wanted):
        wanted = b(ops.Concatenate, [1] * (rank - vector_length(wanted)), wanted, axis=0)
    padded = (1,) * (rank - len(own)) + own
    if not is_static(padded):
        is_one = b(ops.Compare, wanted, b.scalar(1, wanted), comparison_direction="EQ")
        return b(ops.Select, is_one, b(ops.Convert, dim_vector(b, padded, x), dtype=wanted.dtype), wanted)
    return b(ops.Select, np.asarray([d == 1 for d in padded]), wanted, constant(np.asarray(padded, wanted.dtype.numpy)))


@lift_tfl("STABLEHLO_BROADCAST_IN_DIM")
def _broadcast_in_dim(b: Builder, node: Node) -> Value:
    """Axis i of the operand becomes axis broadcast_dimensions[i] of the result, and is repeated if it has size 1."""
    x, places, rank = node.operand(0), int_list(node, "broadcast_dimensions"), node.result.rank
    if len(places) != x.rank or len({*places}) != x.rank or not {*places} <= {*range(rank)}:
        raise ValueError(f"broadcast_dimensions {places} of rank {x.rank} in a result of rank {rank}")
    ordered = transposed(b, x, sorted(range(x.rank), key=places.__getitem__))
    spread = [x.shape[places.index(i)] if i in places else 1 for i in range(rank)]
    sizes = [
        own if i in places and not isinstance(d, int) else d
        for i, (own, d) in enumerate(zip(spread, node.result.shape, strict=True))
    ]
    return broadcast(b, reshape(b, ordered, spread, x), sizes, x)


@lift_tfl("BROADCAST_ARGS")
def _broadcast_args(b: Builder, node: Node) -> Value:
    """The shape that two shapes broadcast to."""
    first, second = node.operand(0), node.operand(1)
    rank = max(vector_length(first), vector_length(second))
    padded = [b(ops.Pad, v, np.asarray([[rank - vector_length(v), 0]]), b.scalar(1, v)) for v in (first, second)]
    is_one = b(ops.Compare, padded[0], b.scalar(1, padded[0]), comparison_direction="EQ")
    return b(ops.Select, is_one, padded[1], padded[0])
