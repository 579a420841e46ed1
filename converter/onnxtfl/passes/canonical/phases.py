"""Transposed convolutions by phase, for the CPU's kernels.

::

    %y = ConvTranspose(%x, %k) of stride s, with kernel sizes m s
      ->
    %z = Conv(%x, %p), with s^2 times the features and kernel sizes m
    %y = Slice(DepthToSpace(%z))

Each position of a block of the result has its own part of the kernel; all parts have the same size. XNNPACK has one
product for all of them in the second form, and in the first form one for each, for each row of the result. Microseconds
of TRANSPOSE_CONV and of the second form, one thread:

==============================================  =======  =======
32 x 32, kernel 2, stride 2, 128 to 128            2480     1250
32 x 32, kernel 2, stride 2, 64 to 1                212       23
32 x 32, kernel 4, stride 2, 64 to 64              2540     1420
64 x 64, kernel 4, stride 2, 16 to 1                841      104
16 x 16, kernel 8, stride 4, 32 to 16               449      196
4 x 4, kernel 4, stride 2, 64 to 32                  18       18
2 x 2, kernel 4, stride 2, 64 to 32                   5        9
==============================================  =======  =======

Kernel sizes that are no multiples of the stride need taps of zeros: kernel 3, stride 2 is not faster so.
Where sizes are dynamic, like that of the batch, the delegate leaves TRANSPOSE_CONV to a slower kernel:

==============================================  =======  =======
32 x 32, kernel 3, stride 2, 32 to 16               504      198
64 x 64, kernel 3, stride 2, 16 to 3                422      180
7 x 7, kernel 5, stride 2, 128 to 64                816      275
2 x 2, kernel 4, stride 2, 512 to 512              2299     1403
1 x 1, kernel 4, stride 2, 512 to 512               600      768
14 x 14, kernel 3, stride 2, 64 to 1                 23       27
==============================================  =======  =======

Over volumes, the planes of each tap of the first axis are computed so, if kernel size and stride are the same along it
(8 x 12 x 12, kernel 2, stride 2, 24 to 12: 120 us, CONV_3D_TRANSPOSE 370).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.data import PaddedData, PartData
from onnxtfl.ir.dims import Dim, estimated_size, is_static
from onnxtfl.ir.graph import Node, Value, constant
from onnxtfl.ir.matching import made_by, single_use
from onnxtfl.ir.op import attributes_of
from onnxtfl.ir.ops.convolution import channels_first_attributes, conv_window, spatial_sizes, window_attributes
from onnxtfl.ir.ops.slicing import END
from onnxtfl.ir.permutations import inverse
from onnxtfl.ir.reshape import concatenated, reshape, transpose_and_merge, transposed
from onnxtfl.ir.spatial import Window
from onnxtfl.ir.types import DType
from onnxtfl.rewriting.patterns import Patterns

PHASES = Patterns()

MOST_WORK = Fraction(4, 3)
"""The most products for each one of the transposed convolution: those at the border are cropped."""
MOST_WORK_ELSEWHERE = 3
"""The same where the delegate does not compute the transposed convolution."""
FEWEST_FEATURES = 8
"""The fewest features of a convolution with taps of zeros: its kernel computes 16 at a time."""


@PHASES.on(ops.ConvTranspose)
def by_phase(b: Builder, node: Node) -> Value | None:
    """%y = ConvTranspose(%x, %k, %b)    ->    %y = Slice(DepthToSpace(Conv(%x, %p, Concatenate(%b, %b, ..))))."""
    attributes, kernel = attributes_of(node), node.operand(1)
    if node.operand(0).dtype is not DType.FLOAT32 or kernel.data is None or attributes["feature_group_count"] != 1:
        return None
    given, sizes = conv_window(attributes, kernel.shape), spatial_sizes(attributes, "input", node.operand(0).shape)
    features = kernel.shape[attributes["kernel_output_feature_dimension"]]
    window = given if is_static(node.result.shape) else _filled(given, features)
    most = MOST_WORK if is_static(node.result.shape) else MOST_WORK_ELSEWHERE
    if not _has_equal_phases(window) or not _is_less_work(given, window, sizes, most):
        return None
    stride, depth = window.strides[0], attributes["output_feature_dimension"]
    dense, crops = _dense(window)
    count, space = stride**window.rank, attributes["output_spatial_dimensions"]
    bias = None if node.optional(2) is None else b(ops.Concatenate, *[node.operand(2)] * count, axis=0)
    sides = {k: v for k, v in attributes.items() if k.startswith(("input_", "output_"))}
    spatial = tuple(range(2, window.rank + 2))
    ordered = {"kernel_input_feature_dimension": 1, "kernel_output_feature_dimension": 0}
    numbers = {**sides, **ordered, "kernel_spatial_dimensions": spatial, "feature_group_count": 1}
    conv = b(
        ops.Conv, node.operand(0), _by_phase(b, node, given, window), bias, **{**numbers, **window_attributes(dense)}
    )
    whole = b(ops.DepthToSpace, conv, block_size=stride, mode="DCR", depth_dim=depth, space_dims=space)
    return _cropped(b, whole, space, crops)


@PHASES.on(ops.ConvTranspose)
def by_planes(b: Builder, node: Node) -> Value | None:
    """%y[n, d * stride + k] = ConvTranspose(%x, %k)    ->    %y[n, d * stride + k] = ConvTranspose(%x[n, d], %k[k])."""
    attributes, x, kernel = attributes_of(node), node.operand(0), node.operand(1)
    if x.dtype is not DType.FLOAT32 or kernel.data is None or attributes["feature_group_count"] != 1:
        return None
    window = conv_window(attributes, kernel.shape)
    if window.rank != 3 or not _has_equal_phases(plane := window.along([1, 2])) or max(window.dilations) > 1:
        return None
    if window.shape[0] != window.strides[0] or window.before[0] or window.after[0]:
        return None
    batch, (depth, *inner) = attributes["input_batch_dimension"], attributes["input_spatial_dimensions"]
    images = transpose_and_merge(b, x, [[batch, depth], [attributes["input_feature_dimension"]], *([a] for a in inner)])
    tap, *inside = attributes["kernel_spatial_dimensions"]
    groups = [[attributes["kernel_input_feature_dimension"], tap], [attributes["kernel_output_feature_dimension"]]]
    parts = [constant(PartData(kernel.data, k, k + 1, tap), kernel.dtype) for k in range(window.shape[0])]
    kernels = [transpose_and_merge(b, part, [*groups, *([a] for a in inside)]) for part in parts]
    planes = [b(ops.ConvTranspose, images, k, node.optional(2), **channels_first_attributes(plane)) for k in kernels]
    sizes, (count, length) = planes[0].shape[1:], (x.shape[a] for a in (batch, depth))
    each = [reshape(b, p, (count, length, 1, *sizes), p, x) for p in planes]
    whole = concatenated(b, each, 2)
    result = reshape(b, whole, (count, length * len(each), *sizes), whole, x)
    depth, *inner = attributes["output_spatial_dimensions"]
    order = (attributes["output_batch_dimension"], depth, attributes["output_feature_dimension"], *inner)
    return transposed(b, result, inverse(order))


def _has_equal_phases(window: Window) -> bool:
    """Whether the kernel sizes are multiples of one stride, and no more than the kernel is cropped at each end."""
    strides, amounts = set(window.strides), window.explicit_padding
    if window.rank > 2 or len(strides) > 1 or max(strides) < 2 or max(window.dilations) > 1:
        return False
    fits = all(size % stride == 0 for size, stride in zip(window.shape, window.strides, strict=True))
    return fits and all(0 <= p < size for p, size in zip(amounts, window.shape * 2, strict=True))


def _filled(window: Window, features: int) -> Window:
    """The window with taps of zeros up to multiples of the strides, at the ends that leave the fewest positions.

    `features`: of the result.
    """
    if features * math.prod(window.strides) < FEWEST_FEATURES:
        return window
    sides = list(map(_filled_axis, window.shape, window.strides, window.before, window.after))
    shape, before, after = zip(*sides, strict=True)
    return replace(window, shape=shape, padding=(*before, *after))


def _filled_axis(size: int, stride: int, before: int, after: int) -> tuple[int, int, int]:
    """The size and padding of one axis with zero taps."""
    zeros = -size % stride
    ends = [(before + n, after + zeros - n) for n in range(zeros + 1)]
    return (size + zeros, *max(ends, key=lambda end: sum(p // stride for p in end)))


def _is_less_work(given: Window, window: Window, sizes: Sequence[Dim], most: Fraction | int) -> bool:
    """Whether few of the products are of positions that are then cropped, or of taps of zeros; dynamic sizes as far as
    they are estimated.
    """
    if given.shape == window.strides:
        return True
    known = [n for n in map(estimated_size, sizes) if n > 0]
    if len(known) < window.rank:
        return False
    dense, _ = _dense(window)
    computed = [n + a + b - m + 1 for n, m, a, b in zip(known, dense.shape, dense.before, dense.after, strict=True)]
    products = math.prod(computed) * math.prod(window.shape)
    return products <= most * math.prod(known) * math.prod(given.shape)


def _dense(window: Window) -> tuple[Window, list[int]]:
    """The window of the convolution, and what is left to crop at the beginnings, then at the ends."""
    stride, taps = window.strides[0], tuple(size // window.strides[0] for size in window.shape)
    amounts = window.explicit_padding
    padding = tuple(m - 1 - p // stride for m, p in zip(taps * 2, amounts, strict=True))
    ones = (1,) * window.rank
    return Window.of(taps, ones, ones, padding), [p % stride for p in amounts]


def _by_phase(b: Builder, node: Node, given: Window, window: Window) -> Value:
    """The kernel [s^2 * output, input, taps..]: phase after phase, the last tap first.

    `window`: the one `given`, with zero taps.
    """
    attributes, rank, stride = attributes_of(node), window.rank, window.strides[0]
    into, out = attributes["kernel_input_feature_dimension"], attributes["kernel_output_feature_dimension"]
    spatial = attributes["kernel_spatial_dimensions"]
    kernel = transposed(b, _with_zeros(node.operand(1), spatial, given, window), (into, out, *spatial))
    taps, (inputs, outputs) = [size // stride for size in window.shape], kernel.shape[:2]
    split = reshape(b, kernel, (inputs, outputs, *(n for m in taps for n in (m, stride))))
    places = [2 + 2 * i for i in range(rank)]
    turned = b(ops.Reverse, split, dimensions=tuple(places))
    ordered = transposed(b, turned, (*(p + 1 for p in places), 1, 0, *places))
    return reshape(b, ordered, (stride**rank * outputs, inputs, *taps))


def _with_zeros(kernel: Value, axes: Sequence[int], given: Window, window: Window) -> Value:
    """The constant `kernel` of the window `given`, with the zero taps of `window`."""
    before = [p - q for p, q in zip(window.before, given.before, strict=True)]
    after = [p - q for p, q in zip(window.after, given.after, strict=True)]
    for axis, *zeros in zip(axes, before, after, strict=True):
        if any(zeros) and kernel.data is not None:
            kernel = constant(PaddedData(kernel.data, axis, before=zeros[0], after=zeros[1]), kernel.dtype)
    return kernel


def _cropped(b: Builder, x: Value, axes: Sequence[int], amounts: Sequence[int]) -> Value:
    """`x` without the `amounts` at the beginnings, then at the ends, of `axes`."""
    if not any(amounts):
        return x
    starts, limits = [0] * x.rank, [END] * x.rank
    for axis, before, after in zip(axes, amounts[: len(axes)], amounts[len(axes) :], strict=True):
        starts[axis], limits[axis] = before, -after or END
    return b(ops.Slice, x, starts, limits, [1] * x.rank)


@PHASES.on(ops.Relu, ops.Clamp)
def activation_into_conv(b: Builder, node: Node) -> Value | None:
    """%y = Relu(DepthToSpace(Conv(%x)))    ->    %y = DepthToSpace(Relu(Conv(%x))), where the kernel computes it."""
    moves, value = list[Node](), node.operand(0)
    while (move := made_by(value, ops.Slice, ops.DepthToSpace)) is not None and single_use(value, b.graph):
        moves.append(move)
        value = move.operand(0)
    bounds_are_scalars = all(v is None or v.rank == 0 for v in node.operands[1:])
    blocks = any(move.op is ops.DepthToSpace for move in moves)
    if not blocks or not bounds_are_scalars or made_by(value, ops.Conv) is None or not single_use(value, b.graph):
        return None
    value = b.remade(node, value, *node.operands[1:])[0]
    for move in reversed(moves):
        value = b.remade(move, value, *move.operands[1:])[0]
    return value
