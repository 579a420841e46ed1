"""BroadcastTo and Tile, and XLA's forms of BroadcastTo."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from onnxtfl.ir.builder import Builder
from onnxtfl.ir.data import Array
from onnxtfl.ir.dims import Shape as Dims
from onnxtfl.ir.dims import fresh_symbol, is_static, size_or
from onnxtfl.ir.formula import by_expansion
from onnxtfl.ir.graph import Node, Value
from onnxtfl.ir.op import INDICES, Op, Operand, Permutation, Permuted, SharedAxes
from onnxtfl.ir.ops.concatenation import Concatenate
from onnxtfl.ir.ops.reshape import Reshape
from onnxtfl.ir.ops.shape import Shape
from onnxtfl.ir.shapes import broadcast_shapes, entry_of, target_dims
from onnxtfl.ir.types import rank_of


@by_expansion(Operand("input"))
def Broadcast(b: Builder, x: Value, broadcast_sizes: Sequence[int]) -> Value:
    """New axes of `broadcast_sizes` before the operand's. Source: neutral-ops 3.18."""
    return b(BroadcastTo, x, b(Concatenate, list(broadcast_sizes), b(Shape, x), axis=0))


@by_expansion(Operand("input"), Operand("shape", INDICES))
def DynamicBroadcastInDim(b: Builder, x: Value, shape: Value, broadcast_dimensions: Sequence[int]) -> Value:
    """Axis i of the operand becomes axis broadcast_dimensions[i] of a tensor of `shape`, and is repeated if it is 1.

    Source: neutral-ops 3.41.
    """
    length, places = shape.size(0), list(broadcast_dimensions)
    if places != sorted(set(places)) or len(places) != x.rank:
        raise ValueError(f"dimensions {places} of rank {x.rank} in a shape of {length} entries")
    spread = [1] * length
    for place, size in zip(places, x.shape, strict=True):
        spread[place] = size_or(size, -1)
    return b(BroadcastTo, b(Reshape, x, spread), shape)


@by_expansion(Operand("input"))
def BroadcastInDim(b: Builder, x: Value, broadcast_dimensions: Sequence[int], shape: Sequence[int]) -> Value:
    """DynamicBroadcastInDim with the shape as an attribute (which the document takes from the result's type).

    Source: neutral-ops 3.19.
    """
    return b(DynamicBroadcastInDim, x, list(shape), broadcast_dimensions=broadcast_dimensions)


class BroadcastTo(Op):
    """The operand repeated along missing and unit axes (aligned at the last axis) to `shape`, the shape of the result
    (ONNX's Expand, where a 1 means the operand's own size, is resolved when lifting).

    Source: neutral-ops 3.18, 3.41.
    """

    operands = (Operand("input"), Operand("shape", INDICES, likely=(1, 2)))
    core = True
    moves = slice(0, 1)
    propagates = True

    @classmethod
    def implied(cls, node: Node) -> Mapping[int, Sequence[float]]:
        shape = node.result.tensor_type.shape
        return {1: shape} if is_static(shape) else {}

    @staticmethod
    def shape(x: Value, shape: Value) -> Dims | None:
        dims = target_dims(shape)
        return None if dims is None else broadcast_shapes(tuple(dims), x.shape)

    @staticmethod
    def compute(x: Array, shape: Array) -> Array:
        return np.broadcast_to(x, np.broadcast_shapes(x.shape, tuple(int(d) for d in shape))).copy()

    @classmethod
    def permuted(cls, node: Node, index: int, permutation: Permutation) -> Permuted | None:
        rank, inner = rank_of(node.result.type), rank_of(node.operand(0).type)
        count = node.operand(1).tensor_type.shape
        if rank is None or inner is None or count != (rank,) or index > 0:
            return None
        lead = rank - inner
        if index == 0:
            permutation = (*range(lead), *(p + lead for p in permutation))
        elif any(p < lead for p in permutation[lead:]):
            return None
        ours = tuple(p - lead for p in permutation[lead:])
        return Permuted((ours, None), (permutation,), {}, {1: permutation})


class Tile(Op):
    """The operand repeated multiples[i] times along axis i. Source: neutral-ops 3.134 (name only), ONNX Tile."""

    operands = (Operand("input"), Operand("multiples", INDICES, likely=(1, 3)))
    core = True
    shared_axes = SharedAxes(vectors=(1,))
    moves = slice(0, 1)
    propagates = True

    @classmethod
    def implied(cls, node: Node) -> Mapping[int, Sequence[float]]:
        before, after = node.operand(0).tensor_type.shape, node.result.tensor_type.shape
        if not is_static(before) or not is_static(after) or 0 in before:
            return {}
        return {1: [m // n for n, m in zip(before, after, strict=True)]}

    @staticmethod
    def shape(x: Value, multiples: Value) -> Dims:
        if multiples.tensor_type.is_static and multiples.shape != (x.rank,):
            raise ValueError(f"multiples of {multiples.type} for rank {x.rank}")
        times = [entry_of(multiples, i) for i in range(x.rank)]
        return tuple(fresh_symbol() if t is None else d * t for d, t in zip(x.shape, times, strict=True))

    @staticmethod
    def compute(x: Array, multiples: Array) -> Array:
        return np.tile(x, [int(m) for m in multiples])
