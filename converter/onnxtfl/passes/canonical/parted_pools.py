"""Maxima of large windows, one axis after the other, for the CPU's kernels.

XNNPACK reads up to 9 elements of a window at once, so that 5 x 5 take three steps, and 5 x 1 and 1 x 5 one each.
Microseconds in one thread (x86 with AVX-512), stride 1:

==================  =========  ==========
input, window       both axes  each in turn
==================  =========  ==========
64 x 64 x 1, 3 x 3         20          33
64 x 64 x 1, 9 x 9        384          40
20 x 20 x 128, 5 x 5       68          47
20 x 20 x 256, 5 x 5      140          96
20 x 20 x 256, 9 x 9      474         107
20 x 20 x 128, 13 x 13    490          97
==================  =========  ==========

With int8 5 x 5 of 64 x 64 x 8 take 113 and 38; with stride 2, 7 x 7 of the same 44 and 25, but 5 x 5 17 and 33.
"""

from __future__ import annotations

import math
from fractions import Fraction

from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.dims import estimated_size
from onnxtfl.ir.graph import Node, Value
from onnxtfl.rewriting.patterns import Patterns

PARTED_POOLS = Patterns()

STEP = 9
"""The elements of a window that XNNPACK's kernel reads at once. Source: XNNPACK, the configurations of maxpool."""
LEAST_GAIN = Fraction(3, 2)
"""How many times fewer steps pay: the result of the first axis is written and read."""
LEAST_STEPS = 1 << 14
"""The fewest steps that are worth another op, which takes 1 us."""


@PARTED_POOLS.on(ops.MaxPool, quantized=True)
def axis_by_axis(b: Builder, node: Node) -> Value | None:
    """MaxPool(%x) {dims = [1, 2]}    ->    MaxPool(MaxPool(%x) {dims = [1]}) {dims = [2]}, where this is faster."""
    x, window, dims = node.operand(0), ops.pool_window(node.attributes), node.attr("dims")
    if window.rank != 2 or node.attr("return_indices"):
        return None
    if (whole := _steps(node.result, window.shape)) < LEAST_STEPS:
        return None
    steps, order = min((_steps_in_turn(node, order), order) for order in ((0, 1), (1, 0)))
    if whole < LEAST_GAIN * steps:
        return None
    for axis in order:
        (x,) = b.remade(node, x, **ops.pool_attributes(window.along([axis]), [dims[axis]]))
    return x


def _steps_in_turn(node: Node, order: tuple[int, int]) -> int:
    """The steps of the kernel for one axis after the other: the first result has all elements along the second one."""
    sizes, second = node.attr("kernel_shape"), node.attr("dims")[order[1]]
    between = Fraction(*(estimated_size(v.shape[second]) for v in (node.operand(0), node.result)))
    along = [_steps(node.result, [sizes[axis]]) for axis in order]
    return math.ceil(along[0] * between) + along[1]


def _steps(result: Value, sizes: list[int] | tuple[int, ...]) -> int:
    """The steps of the kernel for windows of these sizes with `result`."""
    return -(-math.prod(sizes) // STEP) * math.prod(map(estimated_size, result.shape))
