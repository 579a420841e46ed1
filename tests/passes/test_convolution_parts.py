"""Sums of convolutions of parts of one value are read as one convolution."""

from __future__ import annotations

import pytest

from onnxtfl.ir import ops
from onnxtfl.ir.graph import Graph
from onnxtfl.passes.canonical.parted_convolutions import FEATURES, READ_TAPS
from onnxtfl.passes.recognize.convolution_parts import CONVOLUTION_PARTS
from onnxtfl.rewriting.patterns import Patterns
from tests.passes.helpers import op_counts, transformed
from tests.passes.test_parted_convolutions import convolution


def read(text: str) -> Graph:
    """The graph of `text`, with its convolutions joined."""
    return transformed(text, CONVOLUTION_PARTS.apply)


@pytest.mark.parametrize(
    ("features", "size", "padding", "strides", "dilation", "kernel"),
    [
        (700, "6x6", "[1, 1, 1, 1]", "1, 1", "1, 1", (2, 700, 3, 3)),  # two parts of the features
        (1400, "6x6", "[1, 1, 1, 1]", "1, 1", "1, 1", (2, 1400, 3, 3)),  # three
        (200, "8x8", "[7, 7, 7, 7]", "1, 1", "7, 7", (2, 200, 3, 3)),  # taps along both axes
        (200, "8x60", "[7, 1, 7, 1]", "1, 1", "7, 1", (2, 200, 3, 3)),
        (200, "9x8", "[7, 7, 7, 7]", "2, 2", "7, 7", (2, 200, 3, 2)),  # one of the columns reads nothing
    ],
)
def test_parts_are_one_convolution(
    features: int, size: str, padding: str, strides: str, dilation: str, kernel: tuple[int, ...]
) -> None:
    text, parts = convolution(features, size, "3x3", padding, strides, dilation), list[int]()

    def part_and_join(graph: Graph) -> None:
        Patterns.of(READ_TAPS, FEATURES).apply(graph)
        parts.append(op_counts(graph)["Conv"])
        CONVOLUTION_PARTS.apply(graph)

    (node,) = [node for node in transformed(text, part_and_join).nodes if node.op is ops.Conv]
    assert parts[0] > 1
    assert node.operand(1).shape == kernel


SIDES = ", ".join(f"{side}_spatial_dimensions = [2]" for side in ("input", "kernel", "output"))
WINDOW = f"{{{SIDES}, window_strides = [1], padding = [0, 0], rhs_dilation = [1], feature_group_count = 1}}"


def two_parts(first: slice, second: slice, pad: str, taps: int = 1, features: tuple[slice, slice] | None = None) -> str:
    """The sum of a convolution of positions `first`, and of one of positions `second` that is padded to as many."""
    of_first, of_second = features or (slice(0, 4), slice(0, 4))
    count = of_first.stop - of_first.start
    return f"""graph main(%x: tensor<1x4x6xfloat32>) -> (%y) {{
      %s1 = constant tensor<3xint64> [0, {of_first.start}, {first.start}]
      %e1 = constant tensor<3xint64> [1, {of_first.stop}, {first.stop}]
      %s2 = constant tensor<3xint64> [0, {of_second.start}, {second.start}]
      %e2 = constant tensor<3xint64> [1, {of_second.stop}, {second.stop}]
      %ones = constant tensor<3xint64> [1, 1, 1]
      %a = Slice(%x, %s1, %e1, %ones)
      %c = Slice(%x, %s2, %e2, %ones)
      %k = constant tensor<1x{count}x{taps}xfloat32> {[i / 4 - 1 for i in range(count * taps)]}
      %f = Conv(%a, %k) {WINDOW}
      %g = Conv(%c, %k) {WINDOW}
      %n = constant tensor<3x2xint64> [0, 0, 0, 0, {pad}]
      %p = Pad(%g, %n) {{mode = "constant"}}
      %y = Add(%f, %p)
    }}"""


@pytest.mark.parametrize(
    ("text", "convolutions"),
    [
        (two_parts(slice(0, 6), slice(0, 5), "1, 0"), 1),
        (two_parts(slice(0, 6), slice(0, 4), "2, 0"), 1),
        (two_parts(slice(0, 6), slice(0, 4), "1, 1"), 2),  # the last position has no second tap
        (two_parts(slice(0, 6), slice(1, 6), "1, 0"), 2),  # both read the same
        (two_parts(slice(0, 6), slice(0, 6), "0, 0", 1), 2),
        (two_parts(slice(0, 6), slice(0, 6), "0, 0", 1, (slice(0, 2), slice(2, 4))), 1),
        (two_parts(slice(0, 6), slice(0, 6), "0, 0", 1, (slice(0, 2), slice(1, 3))), 2),
        (two_parts(slice(0, 6), slice(0, 6), "0, 0", 3, (slice(2, 4), slice(0, 2))), 1),
    ],
)
def test_sums_that_are_and_are_not_one_convolution(text: str, convolutions: int) -> None:
    assert op_counts(read(text))["Conv"] == convolutions
