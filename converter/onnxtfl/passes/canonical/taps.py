"""Depthwise convolutions of many taps as sums of smaller ones, for the CPU's kernels.

XNNPACK has kernels for up to 25 taps. It computes larger ones as a convolution with one feature in each group, which
takes 8 times as long: 5 x 5 taps of 28 x 28 x 32 elements take 33 us, 5 x 6 take 299 us. 7 x 7 taps of 56 x 56 x 48
elements take 6450 us, as a sum of three convolutions 570 us.
"""

from __future__ import annotations

import functools
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
MOST_PARTS = 16
"""The most convolutions that one becomes."""


@TAPS.on(ops.Conv)
def few_taps(b: Builder, node: Node) -> Value | None:
    """Cut the kernel along its longest axis; a kernel still too large is cut again along another one::

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
    axis, bias, parts = window.shape.index(max(window.shape)), node.optional(2), list[Value]()
    for start, part in _parts(window, axis):
        along = attributes["kernel_spatial_dimensions"][axis]
        cut = slice_axes(b, kernel, {along: slice(start, start + part.shape[axis])})
        parts.append(b(node.op, padded, cut, None if parts else bias, **{**attributes, **window_attributes(part)}))
    return functools.reduce(lambda total, part: b(ops.Add, total, part), parts)


def _is_depthwise(node: Node) -> bool:
    """Whether each input feature is the only one of its group, with one output feature."""
    kernel, groups = node.operand(1), node.attr("feature_group_count")
    sizes = [kernel.shape[node.attr(f"kernel_{side}_feature_dimension")] for side in ("input", "output")]
    return groups > 1 and sizes == [1, groups]


def _parts(window: Window, axis: int) -> Iterator[tuple[int, Window]]:
    """The first tap of each part along `axis`, and its window over the padded operand, which it crops."""
    size, dilation = window.shape[axis], window.dilations[axis]
    count = max(1, MOST_TAPS * size // math.prod(window.shape))
    for start in range(0, size, count):
        end, crops = min(start + count, size), [0] * (2 * window.rank)
        crops[axis], crops[window.rank + axis] = -start * dilation, -(size - end) * dilation
        shape = tuple(end - start if i == axis else n for i, n in enumerate(window.shape))
        yield start, Window.of(shape, window.strides, window.dilations, tuple(crops))
