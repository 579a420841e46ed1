"""Convolutions to few features with their taps as features, for the CPU's kernels: the last layers of image models.

::

    %y = Conv(%x, %k), 3 x 3 taps to 3 features
      ->
    %t = Conv(%x, %k[:, 0], %k[:, 1], %k[:, 2]), 3 x 1 taps to 9 features
    %y = Pad(%t[:-1, 0:3]) + %t[:, 3:6] + Pad(%t[1:, 6:9])

XNNPACK computes blocks of 16 features, so that most of a block is unused where there are few. Microseconds in one
thread (x86 with AVX-512):

==========================  =======  ========  =========
input, taps, features         whole  one axis  both axes
==========================  =======  ========  =========
64 x 64 x 64, 3 x 3, 3         1015       348        210
128 x 128 x 64, 9 x 9, 3      36717      8449      10034
64 x 64 x 320, 3 x 3, 4        5011      1695       1205
64 x 64 x 128, 3 x 3, 1        2219       676        210
64 x 64 x 64, 3 x 3, 17        2183      1109       1286
64 x 64 x 64, 3 x 3, 12         974      1021        901
==========================  =======  ========  =========
"""

from __future__ import annotations

import functools
import math

from onnxtfl.dataclass import dataclass
from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.graph import Node, Value, constant
from onnxtfl.ir.op import attributes_of
from onnxtfl.ir.ops.convolution import spatial_sizes, window_attributes
from onnxtfl.ir.ops.slicing import slice_axes
from onnxtfl.ir.spatial import Window
from onnxtfl.ir.window_padding import pad_axes
from onnxtfl.passes.canonical.parted_convolutions import plain_window
from onnxtfl.rewriting.patterns import Patterns
from onnxtfl.targets.work import TILE

TAPS_AS_FEATURES = Patterns()

LEAST_PRODUCTS = 1 << 18
"""The fewest products of a sample that are worth more ops: they take 10 us."""


@dataclass(frozen=True)
class Shift:
    """A tap along an axis: it reads the elements from `first` to `last`, for the positions from `start` on."""

    tap: int
    first: int
    last: int
    start: int


@TAPS_AS_FEATURES.on(ops.Conv, local=True)
def taps_as_features(b: Builder, node: Node) -> Value | None:
    """Compute each tap along an axis as features of its own, and add them up, where blocks of these are fewer.

    As many blocks pay where no taps are left: a product of matrices is faster.
    """
    attributes, window = attributes_of(node), plain_window(node)
    if window is None or attributes["feature_group_count"] != 1:
        return None
    kernel, positions = node.operand(1).shape, spatial_sizes(attributes, "output", node.result.shape)
    if math.prod(kernel) * math.prod(positions) < LEAST_PRODUCTS:
        return None
    features = kernel[attributes["kernel_output_feature_dimension"]]
    axes = [
        axis for axis in range(window.rank) if window.strides[axis] == 1 and _has_fewer_blocks(features, window, axis)
    ]
    sums = (_sum_of_taps(b, node, window, axis) for axis in reversed(axes))
    return next((total for total in sums if total is not None), None)


def _has_fewer_blocks(features: int, window: Window, axis: int) -> bool:
    taps = window.shape[axis]
    before, after = (-(-n // TILE) for n in (features, features * taps))
    return taps > 1 and (after < before * taps or (after == before * taps == math.prod(window.shape) * before))


def _sum_of_taps(b: Builder, node: Node, window: Window, axis: int) -> Value | None:
    shifts, count = _shifts(node, window, axis), spatial_sizes(attributes_of(node), "output", node.result.shape)[axis]
    whole = next((shift for shift in shifts if shift.last - shift.first == count), None)
    if whole is None:  # no tap could add the bias at each position
        return None
    made = _features_of_taps(b, node, window, axis, whole.tap)
    first, *others = sorted(shifts, key=lambda shift: shift is not whole)
    parts = [_shifted(b, node, axis, made, shift) for shift in (first, *others)]
    return functools.reduce(lambda total, part: b(ops.Add, total, part), parts)


def _shifts(node: Node, window: Window, axis: int) -> list[Shift]:
    """The taps along `axis` that read any element."""
    size = spatial_sizes(attributes_of(node), "input", node.operand(0).shape)[axis]
    count = spatial_sizes(attributes_of(node), "output", node.result.shape)[axis]
    found = list[Shift]()
    for tap in range(window.shape[axis]):
        offset = tap * window.dilations[axis] - window.before[axis]  # position p reads element p + offset
        start, stop = max(0, -offset), min(count, size - offset)
        if start < stop:
            found.append(Shift(tap, start + offset, stop + offset, start))
    return found


def _features_of_taps(b: Builder, node: Node, window: Window, axis: int, biased: int) -> Value:
    """The convolution without taps along `axis`, at each element: the features of one tap after those of another.

    Those of the tap `biased` have the bias.
    """
    kernel, bias, attributes, rank = node.operand(1), node.optional(2), attributes_of(node), window.rank
    along, to = attributes["kernel_spatial_dimensions"][axis], attributes["kernel_output_feature_dimension"]
    taps, features = window.shape[axis], kernel.shape[to]
    if bias is not None:
        bias = pad_axes(b, bias, [0], (features * biased, features * (taps - 1 - biased)))
    sizes = [(1, 1) if i == axis else (window.shape[i], window.dilations[i]) for i in range(rank)]
    padding = [0 if i % rank == axis else n for i, n in enumerate(window.explicit_padding)]
    part = Window.of([n for n, _ in sizes], window.strides, [n for _, n in sizes], padding)
    moved = _as_features(kernel, along, to)
    return b(node.op, node.operand(0), moved, bias, **{**attributes, **window_attributes(part)})


def _as_features(kernel: Value, along: int, to: int) -> Value:
    """The kernel with its axis `along` as the slower part of the axis `to`; the former has the size 1 then."""
    assert kernel.data is not None
    order = [axis for axis in range(kernel.rank) if axis != along]
    order.insert(order.index(to), along)
    shape = list(kernel.data.shape)
    shape[to], shape[along] = shape[to] * shape[along], 1
    return constant(kernel.data.transpose(order).reshape(shape))


def _shifted(b: Builder, node: Node, axis: int, made: Value, shift: Shift) -> Value:
    """The features of one tap at the positions that read them, and zeros at the others."""
    attributes = attributes_of(node)
    features, rows = attributes["output_feature_dimension"], attributes["output_spatial_dimensions"][axis]
    each, count = node.result.size(features), node.result.size(rows)
    read = {features: slice(shift.tap * each, (shift.tap + 1) * each), rows: slice(shift.first, shift.last)}
    missing = count - shift.start - (shift.last - shift.first)
    return pad_axes(b, slice_axes(b, made, read), [rows], (shift.start, missing))
