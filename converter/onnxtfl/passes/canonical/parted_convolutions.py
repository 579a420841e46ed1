"""Convolutions as sums of convolutions of parts of their kernels, where the CPU's kernels are slow on the whole.

Milliseconds in XNNPACK, one thread (x86 with AVX-512), of 3 x 3 taps:

==============================================  ======  ======
input features, positions, result features      whole   parts
==============================================  ======  ======
960, 14 x 14, 256, dilation 12: in padding        11.9     1.6
768, 14 x 14, 256: 6912 products a sum             7.1     3.1
1024, 14 x 14, 1024: 9216 products a sum          36.0    15.8
2048, 28 x 28, 512: 18432 products a sum         499.8   152.3
672, 14 x 14, 256: 6048 products a sum             2.5     2.5
==============================================  ======  ======
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from itertools import pairwise

from onnxtfl.dataclass import dataclass
from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.data import PartData
from onnxtfl.ir.dims import is_static
from onnxtfl.ir.graph import Node, Value, constant
from onnxtfl.ir.op import attributes_of
from onnxtfl.ir.ops.convolution import conv_window, sample_sizes, spatial_sizes, window_attributes
from onnxtfl.ir.ops.slicing import slice_axes
from onnxtfl.ir.spatial import Window
from onnxtfl.ir.types import DType
from onnxtfl.ir.window_padding import pad_axes
from onnxtfl.rewriting.patterns import Patterns

READ_TAPS, FEATURES = Patterns(), Patterns()

MOST_SUMMED = 6144
"""The most products in a sum: with more, a tile of the kernel does not stay in the cache of a core."""
PART = 4608
"""The most products in a sum of a part."""
FEWEST_POSITIONS = 32
"""With fewer positions, each tile is read a few times only."""
WORTH = 64
"""The fewest products for each element of the result that another part has to save: it is padded and added."""


@dataclass(frozen=True)
class Tap:
    """A tap along one axis: which one, and the range of positions at which it reads no padding."""

    index: int
    start: int
    stop: int


@READ_TAPS.on(ops.Conv, local=True)
def taps_that_read(b: Builder, node: Node) -> Value | None:
    """Compute each tap along an axis only where it reads elements, if most read padding, and none that never does::

    %y = Conv(%x, %k), dilation 12 of 14 rows
      ->
    %y = Add(Conv(%x, %k[1]), Pad(Conv(%x[0:2], %k[0]), 12 rows before), Pad(Conv(%x[12:14], %k[2]), 12 rows after))
    """
    window = plain_window(node)
    if window is None:
        return None
    padded = [a for a in range(window.rank) if window.shape[a] > 1 and (window.before[a] > 0 or window.after[a] > 0)]
    for axis in padded:
        taps = _taps(node, window, axis)
        if taps and _saves(node, window, axis, taps):
            return functools.reduce(lambda total, part: b(ops.Add, total, part), _by_taps(b, node, window, axis, taps))
    return None


def plain_window(node: Node) -> Window | None:
    """The window of a convolution of float32 by a constant kernel, for samples of known sizes; None for other nodes."""
    x, kernel, attributes = node.operand(0), node.operand(1), attributes_of(node)
    if x.dtype is not DType.FLOAT32 or not kernel.is_constant or kernel.is_quantized:
        return None
    if not is_static(
        sample_sizes(attributes, "input", x.shape) + sample_sizes(attributes, "output", node.result.shape)
    ):
        return None
    window = conv_window(attributes, kernel.shape).explicit(spatial_sizes(attributes, "input", x.shape))
    return None if window.is_same or window.rank > 2 else window


def _taps(node: Node, window: Window, axis: int) -> list[Tap]:
    """The taps that read elements, the one that reads most of them first."""
    attributes = attributes_of(node)
    size = spatial_sizes(attributes, "input", node.operand(0).shape)[axis]
    count = spatial_sizes(attributes, "output", node.result.shape)[axis]
    found = list[Tap]()
    for index in range(window.shape[axis]):
        first = window.before[axis] - index * window.dilations[axis]  # position p reads p * stride - first
        start = max(0, math.ceil(first / window.strides[axis]))
        stop = min(count, (size - 1 + first) // window.strides[axis] + 1)
        if start < stop:
            found.append(Tap(index, start, stop))
    return sorted(found, key=lambda tap: tap.start - tap.stop)


def _saves(node: Node, window: Window, axis: int, taps: Sequence[Tap]) -> bool:
    """Whether parts save more products than their sum costs; not if each tap reads padding somewhere."""
    attributes, kernel = attributes_of(node), node.operand(1)
    count = spatial_sizes(attributes, "output", node.result.shape)[axis]
    if taps[0].stop - taps[0].start < count:
        return False
    products = math.prod(kernel.shape) // kernel.shape[attributes["kernel_output_feature_dimension"]]
    saved = products * (1 - sum(tap.stop - tap.start for tap in taps) / (count * window.shape[axis]))
    return bool(saved > WORTH * (len(taps) - 1) and saved > products / 4)


def _by_taps(b: Builder, node: Node, window: Window, axis: int, taps: Sequence[Tap]) -> list[Value]:
    """The convolution of each tap, at its positions, padded to all; the first has the bias."""
    x, kernel, bias, attributes = node.operand(0), node.operand(1), node.optional(2), attributes_of(node)
    rows, size = attributes["input_spatial_dimensions"][axis], spatial_sizes(attributes, "input", x.shape)[axis]
    made = list[Value]()
    for tap in taps:
        single = _single(window, axis, tap.index)
        (first, last), part = single.part(axis, size, tap.start, tap.stop)
        cut = _cut(b, kernel, attributes["kernel_spatial_dimensions"][axis], tap.index, tap.index + 1)
        read = _cut(b, x, rows, first, last)
        y = b(node.op, read, cut, None if made else bias, **{**attributes, **window_attributes(part)})
        made.append(_spread(b, node, axis, y, tap))
    return made


def _single(window: Window, axis: int, tap: int) -> Window:
    """The window of one tap along `axis`, at the same positions."""
    before, shape, dilations = list(window.before), list(window.shape), list(window.dilations)
    before[axis] -= tap * window.dilations[axis]
    shape[axis] = dilations[axis] = 1
    return Window.of(tuple(shape), window.strides, tuple(dilations), (*before, *window.after))


def _spread(b: Builder, node: Node, axis: int, y: Value, tap: Tap) -> Value:
    """The results at the positions of a tap, and zeros at the others."""
    attributes = attributes_of(node)
    count = spatial_sizes(attributes, "output", node.result.shape)[axis]
    return pad_axes(b, y, [attributes["output_spatial_dimensions"][axis]], (tap.start, count - tap.stop))


@FEATURES.on(ops.Conv, local=True)
def features_in_parts(b: Builder, node: Node) -> Value | None:
    """Add up the convolutions of some input features each, if too many products are added up for one element::

    %y = Conv(%x, %k, %b)    ->    %y = Add(Conv(%x[..., :512], %k[:512], %b), Conv(%x[..., 512:], %k[512:]))
    """
    x, kernel, attributes = node.operand(0), node.operand(1), attributes_of(node)
    if not kernel.is_constant:
        return None
    places = attributes["input_feature_dimension"], attributes["kernel_input_feature_dimension"]
    features, taps = kernel.shape[places[1]], math.prod(spatial_sizes(attributes, "kernel", kernel.shape))
    if attributes["feature_group_count"] != 1 or features * taps <= MOST_SUMMED or taps > PART:
        return None
    if plain_window(node) is None:
        return None
    if math.prod(spatial_sizes(attributes, "output", node.result.shape)) < FEWEST_POSITIONS:
        return None
    count = math.ceil(features * taps / PART)
    bounds, made = [features * i // count for i in range(count + 1)], list[Value]()
    for first, last in pairwise(bounds):
        parts = [_cut(b, value, place, first, last) for value, place in zip((x, kernel), places, strict=True)]
        made.append(b(node.op, *parts, None if made else node.optional(2), **node.attributes))
    return functools.reduce(lambda total, part: b(ops.Add, total, part), made)


def _cut(b: Builder, value: Value, axis: int, start: int, stop: int) -> Value:
    """The positions from `start` to `stop` along an axis."""
    if (start, stop) == (0, value.shape[axis]):
        return value
    if value.data is not None:
        return constant(PartData(value.data, start, stop, axis))
    return slice_axes(b, value, {axis: slice(start, stop)})
