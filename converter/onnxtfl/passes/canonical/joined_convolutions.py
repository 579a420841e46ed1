"""Convolutions of one operand to few features, as one convolution: the heads of detectors.

::

    %a = Conv(%x, %k)     to 4 features         %y = Conv(%x, Concatenate(%k, %l))
    %b = Conv(%x, %l)     to 8 features   ->    %a = Slice(%y)
                                                %b = Slice(%y)

XNNPACK computes blocks of 16 or of 32 features; one of 32 takes half as long again as one of 16. 3 x 3 taps of
32 x 32 x 64 elements take 92 us for 1 to 16 features, 184 us for 17 to 31 (two blocks), 139 us for 32, and 278 us for
33 to 64. So convolutions are joined if their blocks take less time, by more than the slices take: the projections of an
attention (128 x 256) take 451 us, joined and split 463 us.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from fractions import Fraction

import numpy as np

from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.graph import Graph, Node, Value
from onnxtfl.ir.op import attributes_of
from onnxtfl.ir.ops.slicing import END
from onnxtfl.ir.quantized import may_match
from onnxtfl.ir.types import DType
from onnxtfl.rewriting.patterns import Pays
from onnxtfl.targets.work import TILE

SLICED = Fraction(5, 4)
"""The time of a slice of one feature, in that of half a small block's multiplications of one element."""


def join_convolutions(graph: Graph, pays: Pays) -> None:
    """Join convolutions that differ in their kernels only, where their blocks then take less time, and that pays."""
    groups: dict[Hashable, list[list[Node]]] = {}
    for node in graph.nodes:
        if (key := _key(node)) is None:
            continue
        known = groups.setdefault(key, [])
        group = next((group for group in known if _helps(group, node)), None)
        known.append([node]) if group is None else group.append(node)
    for group in (group for known in groups.values() for group in known if len(group) > 1):
        _join(graph, group, pays)


def _key(node: Node) -> Hashable | None:
    """What convolutions have in common that can be joined; None for other nodes."""
    if node.op is not ops.Conv or not may_match(node, False) or node.attr("feature_group_count") != 1:
        return None
    x, *weights = node.present_operands
    if len(x.uses) == 1 or x.dtype is not DType.FLOAT32 or not all(v.is_constant for v in weights):
        return None
    taps = [n for axis, n in enumerate(weights[0].shape) if axis != node.attr("kernel_output_feature_dimension")]
    if not node.result.is_static:
        return None
    return x, tuple(taps), *attributes_of(node).values()


def _features(node: Node) -> int:
    return node.result.size(node.attr("output_feature_dimension"))


def _blocks(features: int) -> tuple[int, int]:
    """The time of the blocks of so many features, for 1 x 1 taps and for more: 2 for 16 features, 3 for 32."""
    small, large = -(-features // TILE), -(-features // (2 * TILE))
    has_small = features < 2 * TILE
    return 2 * small if has_small or small < 2 * large else 3 * large, 2 * small if has_small else 3 * large


def _helps(group: Sequence[Node], node: Node) -> bool:
    """Whether the blocks take less time if `node` is joined with those of `group`."""
    total, more = sum(map(_features, group)), _features(node)
    products = math.prod(node.operand(1).shape) // more
    times = zip(_blocks(total + more), _blocks(total), _blocks(more), strict=True)
    saved = min(one + other - joined for joined, one, other in times)
    return bool(saved * products >= SLICED * (total + more))


def _join(graph: Graph, group: Sequence[Node], pays: Pays) -> None:
    first, axis = group[0], group[0].attr("output_feature_dimension")
    b = Builder(graph, first, maker="joined convolutions")
    kernel = b(
        ops.Concatenate, *(node.operand(1) for node in group), axis=first.attr("kernel_output_feature_dimension")
    )
    whole = b(ops.Conv, first.operand(0), kernel, _biases(b, group), **first.attributes)
    starts, limits, parts = [0] * whole.rank, [END] * whole.rank, list[Value]()
    for node in group:
        limits[axis] = starts[axis] + _features(node)
        parts.append(b(ops.Slice, whole, starts, limits, [1] * whole.rank))
        starts[axis] = limits[axis]
    if not pays("joined convolutions", group, b.created):
        b.undo()
        return
    for node, part in zip(group, parts, strict=True):
        graph.replace(node, [part])


def _biases(b: Builder, group: Sequence[Node]) -> Value | None:
    if all(node.optional(2) is None for node in group):
        return None
    zeros = [np.zeros(_features(node), np.float32) for node in group]
    return b(ops.Concatenate, *(node.optional(2) or zero for node, zero in zip(group, zeros, strict=True)), axis=0)
