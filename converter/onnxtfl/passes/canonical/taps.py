"""Depthwise convolutions of many taps as sums of smaller ones, for the CPU's kernels.

XNNPACK has kernels for up to 25 taps. It computes larger ones as a convolution with one feature in each group, which
takes 8 times as long: 5 x 5 taps of 28 x 28 x 32 elements take 33 us, 5 x 6 take 299 us. 7 x 7 taps of 56 x 56 x 48
elements take 6450 us, as a sum of three convolutions 570 us; 31 x 31 taps of 40 x 40 x 64 elements take 63 ms, as a sum
of 44 convolutions 7.5 ms.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator

from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.graph import Node, Value
from onnxtfl.ir.op import attributes_of
from onnxtfl.ir.ops.convolution import conv_window, spatial_sizes, window_attributes
from onnxtfl.ir.ops.slicing import slice_axes
from onnxtfl.ir.spatial import Window
from onnxtfl.ir.types import DType
from onnxtfl.ir.window_padding import pad_axes
from onnxtfl.rewriting.patterns import Patterns

TAPS = Patterns()

MOST_TAPS = 25
"""The most taps of a kernel. Source: XNNPACK, the configurations of dwconv."""
MOST_PARTS = 64
"""The most convolutions that one becomes."""


@TAPS.on(ops.Conv)
def few_taps(b: Builder, node: Node) -> Value | None:
    """Cut the kernel along its axes::

    %y = Conv(%x, %k, %b)    ->    %y = Add(Conv(Slice(%p), %k[:3], %b), Conv(Slice(%p), %k[3:])), %p = Pad(%x)

    A window over the whole image stays.
    """
    x, kernel, attributes = node.operand(0), node.operand(1), attributes_of(node)
    if x.dtype is not DType.FLOAT32 or not kernel.is_constant or not _is_depthwise(node):
        return None
    window = conv_window(attributes, kernel.shape).explicit(spatial_sizes(attributes, "input", x.shape))
    taps, positions = math.prod(window.shape), spatial_sizes(attributes, "output", node.result.shape)
    is_whole = all(size == 1 for size in positions)
    if is_whole or window.is_same or window.rank > 2 or not MOST_TAPS < taps <= MOST_TAPS * MOST_PARTS:
        return None
    padded = pad_axes(b, x, attributes["input_spatial_dimensions"], window.explicit_padding)
    bias, parts, along = node.optional(2), list[Value](), attributes["kernel_spatial_dimensions"]
    for start, part in _parts(window):
        pairs = zip(along, start, part.shape, strict=True)
        cut = slice_axes(b, kernel, {axis: slice(first, first + count) for axis, first, count in pairs})
        parts.append(b(node.op, padded, cut, None if parts else bias, **{**attributes, **window_attributes(part)}))
    return functools.reduce(lambda total, part: b(ops.Add, total, part), parts)


def _is_depthwise(node: Node) -> bool:
    """Whether each input feature is the only one of its group, with one output feature."""
    kernel, groups = node.operand(1), node.attr("feature_group_count")
    sizes = [kernel.shape[node.attr(f"kernel_{side}_feature_dimension")] for side in ("input", "output")]
    return groups > 1 and sizes == [1, groups]


def _parts(window: Window) -> Iterator[tuple[tuple[int, ...], Window]]:
    """The first taps of each part along the axes, and its window over the padded operand, which it crops.

    There are as few parts as possible: 9 of up to 5 x 5 for 13 x 13 taps.
    """
    blocks = [n for n in itertools.product(*(range(1, size + 1) for size in window.shape)) if math.prod(n) <= MOST_TAPS]
    counts = [[-(-size // n) for size, n in zip(window.shape, block, strict=True)] for block in blocks]
    block = min(zip(map(math.prod, counts), blocks, strict=True))[1]
    for start in itertools.product(*(range(0, size, n) for size, n in zip(window.shape, block, strict=True))):
        ends = [min(first + n, size) for first, n, size in zip(start, block, window.shape, strict=True)]
        before = [-first * dilation for first, dilation in zip(start, window.dilations, strict=True)]
        after = [
            -(size - end) * dilation for end, size, dilation in zip(ends, window.shape, window.dilations, strict=True)
        ]
        shape = [end - first for first, end in zip(start, ends, strict=True)]
        yield start, Window.of(shape, window.strides, window.dilations, (*before, *after))
