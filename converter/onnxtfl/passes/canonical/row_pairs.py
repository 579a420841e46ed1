"""Convolutions over 3 x 3 taps, computed for pairs of rows and columns with 4 of 9 products: Winograd's F(2, 3).

::

    %y = Conv(%x, %k) of kernel size 3, stride 1 along an axis, %d0 to %d3 the positions that a pair reads
      ->
    %m0 = Conv(%d0 - %d2, %k0)                     %m1 = Conv(%d1 + %d2, (%k0 + %k1 + %k2) / 2)
    %m3 = Conv(%d3 - %d1, %k2)                     %m2 = Conv(%d2 - %d1, (%k0 - %k1 + %k2) / 2)
    %y  = %m0 + %m1 + %m2 and %m1 - %m2 + %m3 in turn

The kernels %m0 to %m3 are 4/3 as large as %k. The differences are depthwise convolutions of stride 2, which pad on the
way. The products are convolutions over three columns, which are computed for pairs of columns likewise: kernels are
16/9 as large then. Microseconds in XNNPACK, one thread (x86 with AVX-512), with what joins the pairs again:

==================  ======  =====  ================
3 x 3 taps          direct   rows  rows and columns
==================  ======  =====  ================
28 x 28 x 128         2335   1728              1027
56 x 56 x 64          2862   2290              2003
112 x 112 x 64       11703  10299             10533
28 x 28 x 32           150    125               120
40 x 40 x 64 to 16     380    312               289
14 x 14 x 224 in 4     447    337               330
112 x 112 x 32        3048   3139              3627
14 x 14 x 128          564    417               248
==================  ======  =====  ================

The last one has 4 groups. Sums and differences of images that leave the caches take longer: few features are worth it
in small images only.
"""

from __future__ import annotations

import heapq
import itertools
import math

import numpy as np

from onnxtfl.dataclass import dataclass
from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.data import PartData
from onnxtfl.ir.dims import is_static
from onnxtfl.ir.graph import Graph, Node, Value, constant
from onnxtfl.ir.op import attributes_of
from onnxtfl.ir.ops.convolution import conv_window, sample_sizes, spatial_sizes, window_attributes
from onnxtfl.ir.ops.slicing import slice_axes
from onnxtfl.ir.quantized import may_match
from onnxtfl.ir.reshape import reshape
from onnxtfl.ir.spatial import Window
from onnxtfl.ir.types import DType
from onnxtfl.passes.canonical.growth import Growth, stored_size

LEAST_FEATURES = (8.5, 24)
"""The fewest features (the product of those that a group reads and those of the result, over the sum of those of
operand and result), of rows and of their columns.

With fewer, sums and differences take the time that products save. The time of an element grows with the images by about
their cube root, on machines with and without AVX-512.
"""
SMALL_IMAGES = (92_000, 300_000)
"""The elements of operand and result (these twice, for two sums) up to which their number does not matter, of rows and
of their columns."""
LEAST_PRODUCTS = (1 << 20, 1 << 18)
"""The fewest products of a sample that are worth more ops, of rows and of their columns: the former take 20 us."""
TAPS = 3


@dataclass(frozen=True)
class Pairs:
    """A convolution and the spatial axis (0 or 1) along which its positions are computed in pairs.

    `depth`: 1 if the convolution is a product of pairs along the other axis, else 0.
    """

    node: Node
    window: Window
    axis: int
    depth: int

    @property
    def growth(self) -> int:
        """The bytes by which the kernel grows: float32 ones, of the sums of taps, replace what is stored."""
        kernel = self.node.operand(1)
        size: int = math.prod(kernel.shape) * kernel.dtype.bits // 8
        return size + size // TAPS - (size if kernel.data is None else stored_size(kernel.data))

    @property
    def count(self) -> int:
        """The number of rows of the result; with an odd one, a row of padding completes the last pair."""
        return int(self.node.result.shape[self.node.attr("output_spatial_dimensions")[self.axis]])

    @property
    def positions(self) -> int:
        """The number of positions of the result: how often each element of the kernel is multiplied."""
        return math.prod(spatial_sizes(attributes_of(self.node), "output", self.node.result.shape))


def compute_pairs_of_rows(graph: Graph, growth: Growth | None = None) -> bool:
    """Rewrite the convolutions with most products for each element of the kernel, as far as these may grow.

    Their own products are convolutions over three columns, which are computed in pairs in turn.
    """
    kernels = [node for node in graph.nodes if node.op is ops.Conv and node.operand(1).is_constant]
    found = [pairs for node in kernels if (pairs := _pairs(node)) is not None]
    growth = growth or Growth()
    work = [(-pairs.positions, place, pairs) for place, pairs in enumerate(found)]
    heapq.heapify(work)
    changed, places = False, itertools.count(len(work))
    while work:
        *_, pairs = heapq.heappop(work)
        if not growth.take(graph, pairs.growth):
            continue
        b = Builder(graph, pairs.node, maker="pairs of rows")
        graph.replace(pairs.node, [_rewritten(b, pairs)])
        for node in b.created if pairs.depth == 0 else ():
            if (inner := _pairs(node, depth=1)) is not None:
                heapq.heappush(work, (-inner.positions, next(places), inner))
        changed = True
    return changed


def _pairs(node: Node, depth: int = 0) -> Pairs | None:
    """The convolution `node` in pairs along one of its axes; its kernel is constant, or computed from constants."""
    if node.op is not ops.Conv or not may_match(node, False):
        return None
    x, kernel, attributes = node.operand(0), node.operand(1), attributes_of(node)
    samples = sample_sizes(attributes, "input", x.shape), sample_sizes(attributes, "output", node.result.shape)
    if (
        x.dtype is not DType.FLOAT32
        or not all(map(is_static, samples))
        or len(attributes["input_spatial_dimensions"]) != 2
    ):
        return None
    if not _saves_time(node, math.prod(samples[0]) + 2 * math.prod(samples[1]), depth):
        return None
    window = conv_window(attributes, kernel.shape).explicit(spatial_sizes(attributes, "input", x.shape))
    counts = spatial_sizes(attributes, "output", node.result.shape)
    for axis in sorted(range(window.rank), key=lambda axis: counts[axis] % 2):
        along = window.along([axis])
        is_plain = (along.shape, along.strides, along.dilations) == ((TAPS,), (1,), (1,))
        if is_plain and tuple(along.explicit_padding) == (1, 1) and counts[axis] > 2:
            return Pairs(node, window, axis, depth)
    return None


def _saves_time(node: Node, elements: int, depth: int) -> bool:
    """Whether there are enough products, and enough features for so many elements (of the result: twice as many)."""
    kernel, attributes = node.operand(1), attributes_of(node)
    read, made = (kernel.shape[attributes[f"kernel_{side}_feature_dimension"]] for side in ("input", "output"))
    positions = math.prod(spatial_sizes(attributes, "output", node.result.shape))
    if positions * math.prod(kernel.shape) < LEAST_PRODUCTS[depth]:
        return False
    least = LEAST_FEATURES[depth] * max(1.0, elements / SMALL_IMAGES[depth]) ** (1 / 3)
    return bool(read * made >= least * (read * attributes["feature_group_count"] + made))


def _rewritten(b: Builder, pairs: Pairs) -> Value:
    first, middle, last = (_tap(b, pairs, tap) for tap in range(TAPS))
    half = np.asarray(0.5, np.float32)
    ends, center = b(ops.Mul, b(ops.Add, first, last), half), b(ops.Mul, middle, half)
    bias = pairs.node.optional(2)
    m0 = _product(b, pairs, _combined(b, pairs, (1, 0, -1), (1, 0)), first)
    m1 = _product(b, pairs, _combined(b, pairs, (1, 1), (0, 0)), b(ops.Add, ends, center), bias)
    m2 = _product(b, pairs, _combined(b, pairs, (-1, 1), (0, 0)), b(ops.Sub, ends, center))
    m3 = _product(b, pairs, _combined(b, pairs, (-1, 0, 1), (0, 1)), last)
    even, odd = b(ops.Add, b(ops.Add, m1, m2), m0), b(ops.Add, b(ops.Sub, m1, m2), m3)
    return _in_turn(b, pairs, even, odd)


def _tap(b: Builder, pairs: Pairs, tap: int) -> Value:
    """One of the three taps of the kernel along the axis."""
    kernel = pairs.node.operand(1)
    axis = pairs.node.attr("kernel_spatial_dimensions")[pairs.axis]
    if kernel.data is not None:
        return constant(PartData(kernel.data, tap, tap + 1, axis))
    return slice_axes(b, kernel, {axis: slice(tap, tap + 1)})


def _combined(b: Builder, pairs: Pairs, factors: tuple[int, ...], padding: tuple[int, int]) -> Value:
    """The sum of neighbors along the axis, times `factors`, for each pair; `padding` at both ends."""
    node, rank = pairs.node, pairs.window.rank
    attributes, x = attributes_of(node), node.operand(0)
    features = x.size(attributes["input_feature_dimension"])
    sizes, strides, amounts = [1] * rank, [1] * rank, [0] * (2 * rank)
    sizes[pairs.axis], strides[pairs.axis] = len(factors), 2
    amounts[pairs.axis], amounts[rank + pairs.axis] = padding[0], padding[1] + pairs.count % 2
    kernel = np.broadcast_to(np.asarray(factors, np.float32).reshape(1, 1, *sizes), (features, 1, *sizes))
    order = {"kernel_output_feature_dimension": 0, "kernel_input_feature_dimension": 1}
    sides = {name: value for name, value in attributes.items() if name.startswith(("input_", "output_"))}
    like_input = {name.replace("input_", "output_"): v for name, v in sides.items() if name.startswith("input_")}
    spatial = {"kernel_spatial_dimensions": tuple(range(2, rank + 2)), "feature_group_count": features}
    window = Window.of(tuple(sizes), tuple(strides), (1,) * rank, tuple(amounts))
    numbers = {**sides, **like_input, **order, **spatial}
    return b(ops.Conv, x, np.ascontiguousarray(kernel), **{**attributes, **numbers, **window_attributes(window)})


def _product(b: Builder, pairs: Pairs, x: Value, kernel: Value, bias: Value | None = None) -> Value:
    """The convolution of `x` with one tap along the axis."""
    window, rank = pairs.window, pairs.window.rank
    amounts, sizes = list(window.explicit_padding), list(window.shape)
    amounts[pairs.axis] = amounts[rank + pairs.axis] = 0
    sizes[pairs.axis] = 1
    part = Window.of(tuple(sizes), window.strides, window.dilations, tuple(amounts))
    return b(ops.Conv, x, kernel, bias, **{**attributes_of(pairs.node), **window_attributes(part)})


def _in_turn(b: Builder, pairs: Pairs, even: Value, odd: Value) -> Value:
    """The positions of `even` and `odd` in turn along the axis."""
    axis = pairs.node.attr("output_spatial_dimensions")[pairs.axis]
    rows = [reshape(b, v, (*v.shape[: axis + 1], 1, *v.shape[axis + 1 :])) for v in (even, odd)]
    shape = (*even.shape[:axis], 2 * even.shape[axis], *even.shape[axis + 1 :])
    return slice_axes(b, reshape(b, b(ops.Concatenate, *rows, axis=axis + 1), shape), {axis: slice(0, pairs.count)})
