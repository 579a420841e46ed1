"""Quantized convolutions of few features and a stride, with neighboring columns as features, for the CPU's kernels.

::

    %y = Conv(%x: [1, h, w, 3], %k: 7 x 7) of stride 2      ->      %m = Reshape(%x) [1, h, w / 2, 6]
                                                                    %y = Conv(%m, 7 x 4) of strides 2 and 1

The features are the last axis, so that the Reshape moves no element; taps that the window does not have are 0.
XNNPACK's integer kernels compute 8 features of a tap at a time. Microseconds, one thread, images of 224 x 224 x 3:

=============================  =====  ======
first convolution               once  merged
=============================  =====  ======
7 x 7 to 32, uint8              1342     765
7 x 7 to 32, int8                374     222
3 x 3 to 32, uint8               285     207
3 x 3 to 16, int8                 49      39
5 x 5 to 24, int8                204     135
79 of 8075 to 64, int8           198      50
=============================  =====  ======

Kernels of ARM that compute 4 features at a time have up to a third more products, for 3 x 3 taps, so these stay. Floats
are multiplied one by one: merged, the zeros take the time that fewer taps save.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np

from onnxtfl.dataclass import dataclass
from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.data import ArrayData
from onnxtfl.ir.dims import is_static
from onnxtfl.ir.graph import Graph, Node, Value, constant
from onnxtfl.ir.matching import made_by, splat_value
from onnxtfl.ir.op import attributes_of
from onnxtfl.ir.ops.convolution import conv_window, spatial_sizes, window_attributes
from onnxtfl.ir.ops.slicing import END
from onnxtfl.ir.quantized import quantization_of
from onnxtfl.ir.reshape import reshape
from onnxtfl.ir.spatial import Window
from onnxtfl.ir.window_padding import pad_axes
from onnxtfl.passes.canonical.fuse.linear import window_padding

FEATURES = 8
"""The features that XNNPACK's integer kernels compute at a time."""
MOST_WORK = Fraction(3, 5)
"""The most products of the merged convolution, as a part of those before."""
_EIGHT_BITS = ("int8", "uint8")


@dataclass(frozen=True)
class Merged:
    """A convolution of `source`, channels last, of which `count` columns are features.

    `window`: with the padding of a Pad before the convolution. `shift`: the zero taps before the first one.
    """

    node: Node
    source: Value
    window: Window
    count: int

    @property
    def shift(self) -> int:
        """The zero taps before the first one, so that windows begin at a multiple of `count` columns."""
        return -self.window.explicit_padding[1] % self.count

    @property
    def taps(self) -> int:
        """The taps along the columns."""
        return -(-(self.shift + self.window.shape[1]) // self.count)

    @property
    def stride(self) -> int:
        """The stride along the merged columns."""
        return self.window.strides[1] // self.count

    @property
    def first(self) -> int:
        """The merged columns of zeros before the source."""
        return (self.window.explicit_padding[1] + self.shift) // self.count

    @property
    def width(self) -> int:
        """The merged columns that are read, without the first zeros."""
        return int((self.node.result.size(2) - 1) * self.stride + self.taps - self.first)

    @property
    def work(self) -> int:
        """The products for each position and feature of the result."""
        return self.window.shape[0] * self.taps * (-(-self.count * self.source.size(-1) // FEATURES)) * FEATURES


def merge_columns(graph: Graph) -> None:
    """Merge as many columns of each image as make the fewest products."""
    for node in list(graph.nodes):
        once = _convolution(node)
        if once is None:
            continue
        others = (
            replace(once, count=n) for n in range(2, once.window.strides[1] + 1) if once.window.strides[1] % n == 0
        )
        best = min(others, key=lambda merged: (merged.work, merged.taps), default=once)
        if best.work <= MOST_WORK * once.work:
            graph.replace(node, [_rewritten(graph, best)])


def _convolution(node: Node) -> Merged | None:
    """A convolution of images of known sizes, of which nothing is merged yet; None for other nodes."""
    if node.op is not ops.Conv or not all(_is_eight_bit(v) for v in (*node.operands[:2], node.result)):
        return None
    x, kernel, attributes = node.operand(0), node.operand(1), attributes_of(node)
    is_last = attributes["input_feature_dimension"] == attributes["kernel_input_feature_dimension"] == 3
    is_image = attributes["input_spatial_dimensions"] == attributes["kernel_spatial_dimensions"] == (1, 2)
    if attributes["feature_group_count"] != 1 or not is_last or not is_image or not kernel.is_constant:
        return None
    pad = made_by(x, ops.Pad, quantized=True)
    added = window_padding(pad, (1, 2)) if pad is not None and _is_zero(pad.optional(2)) else None
    source = pad.operand(0) if pad is not None and added is not None else x
    if not is_static((*x.shape[1:], *source.shape[1:], *node.result.shape[1:])):
        return None
    window = conv_window(attributes, kernel.shape).explicit(spatial_sizes(attributes, "input", x.shape))
    amounts = tuple(int(n) for n in np.add(window.explicit_padding, 0 if added is None else added))
    whole = Window.of(window.shape, window.strides, window.dilations, amounts)
    return Merged(node, source, whole, 1) if window.dilations[1] == 1 and min(amounts) >= 0 else None


def _is_eight_bit(value: Value | None) -> bool:
    quantization = quantization_of(value)
    return quantization is not None and quantization.storage in _EIGHT_BITS


def _is_zero(value: Value | None) -> bool:
    return value is None or splat_value(value) == 0


def _rewritten(graph: Graph, merged: Merged) -> Value:
    node, window, count, x = merged.node, merged.window, merged.count, merged.source
    b = Builder(graph, node, cause=node, maker="merged columns")
    inside = min(merged.width, -(-x.size(2) // count))
    whole = _of_width(b, x, inside * count)
    columns = reshape(b, whole, (*x.shape[:2], inside, count * x.size(3)))
    sides = window.explicit_padding[0], merged.first, window.explicit_padding[2], merged.width - inside
    padded = pad_axes(b, columns, (1, 2), sides)
    valid = Window.of((window.shape[0], merged.taps), (window.strides[0], merged.stride), window.dilations, (0,) * 4)
    return b.remade(node, padded, _kernel(merged), *node.operands[2:], **window_attributes(valid))[0]


def _of_width(b: Builder, x: Value, width: int) -> Value:
    """The first columns of `x`, or all of them and zeros."""
    if width >= x.size(2):
        return pad_axes(b, x, (2,), (0, width - x.size(2)))
    return b(ops.Slice, x, [0] * 4, [END, END, width, END], [1] * 4)


def _kernel(merged: Merged) -> Value:
    """The kernel [output, height, taps, features] with merged columns, and zeros at both ends."""
    kernel, quantization = merged.node.operand(1), quantization_of(merged.node.operand(1))
    assert kernel.data is not None and quantization is not None
    stored, shift = kernel.data.numpy(), merged.shift
    zeros = np.asarray(quantization.zero_points, stored.dtype)
    zeros = zeros.reshape([-1 if i == quantization.axis else 1 for i in range(4)]) if zeros.size > 1 else zeros
    rows, width, features = stored.shape[:2], stored.shape[2], stored.shape[3]
    filled = np.empty((*rows, merged.taps * merged.count, features), stored.dtype)
    filled[:] = zeros
    filled[:, :, shift : shift + width] = stored
    shape = (*rows, merged.taps, merged.count * features)
    return constant(ArrayData(filled.reshape(shape)), type_=kernel.tensor_type.with_shape(shape))
