"""Convolutions that read much padding, or add up too many products, as sums of convolutions of parts."""

from __future__ import annotations

import math

import pytest

from onnxtfl.passes.canonical.parted_convolutions import FEATURES, MOST_SUMMED, READ_TAPS
from onnxtfl.rewriting.patterns import Patterns
from tests.passes.helpers import op_counts, transformed


def convolution(
    features: int, size: str, kernel: str, padding: str, strides: str = "1, 1", dilation: str = "1, 1", results: int = 2
) -> str:
    """The text of a convolution from `features` to `results`, with a bias."""
    shape = f"{results}x{features}x{kernel}"
    count = math.prod(map(int, shape.split("x")))
    numbers = [((7 * i) % 13 - 6) / 8 for i in range(count)]
    sides = ", ".join(f"{side}_spatial_dimensions = [2, 3]" for side in ("input", "kernel", "output"))
    window = f"window_strides = [{strides}], padding = {padding}, rhs_dilation = [{dilation}]"
    return (
        f"graph main(%x: tensor<1x{features}x{size}xfloat32>) -> (%y) {{\n"
        f" %k = constant tensor<{shape}xfloat32> {numbers}\n"
        f" %b = constant tensor<{results}xfloat32> {numbers[:results]}\n"
        f" %y = Conv(%x, %k, %b) {{{sides}, {window}, feature_group_count = 1}}\n}}"
    )


@pytest.mark.parametrize(
    ("size", "kernel", "padding", "strides", "dilation", "kernels"),
    [
        ("8x8", "3x3", "[7, 7, 7, 7]", "1, 1", "7, 7", ["1x1"] * 9),
        ("8x8", "3x3", "[8, 8, 8, 8]", "1, 1", "8, 8", ["1x1"]),  # only the center reads elements
        ("8x60", "3x3", "[7, 1, 7, 1]", "1, 1", "7, 1", ["1x3"] * 3),
        ("9x8", "3x3", "[7, 7, 7, 7]", "2, 2", "7, 7", ["1x1"] * 6),  # one of the columns reads nothing
        ("8x8", "3x1", "[14, 0, 0, 0]", "1, 1", "7, 1", ["1x1"] * 2),  # the first tap reads nothing
    ],
)
def test_taps_that_read_padding(
    size: str, kernel: str, padding: str, strides: str, dilation: str, kernels: list[str]
) -> None:
    graph = transformed(convolution(200, size, kernel, padding, strides, dilation), READ_TAPS.apply)
    found = ["x".join(map(str, node.operand(1).shape[2:])) for node in graph.nodes if node.op.name == "Conv"]
    assert found == kernels
    assert op_counts(graph)["Add"] == len(kernels) - 1


def test_parts_of_the_features() -> None:
    graph = transformed(convolution(700, "6x6", "3x3", "[1, 1, 1, 1]"), FEATURES.apply)
    kernels = [node.operand(1).shape for node in graph.nodes if node.op.name == "Conv"]
    assert kernels == [(2, 350, 3, 3)] * 2
    assert op_counts(graph) == {"Conv": 2, "Slice": 2, "Add": 1}


@pytest.mark.parametrize(
    ("features", "size", "dilation"),
    [
        (MOST_SUMMED // 9, "6x6", "1, 1"),  # the cache has room
        (700, "5x6", "1, 1"),  # each part of the kernel is used a few times
        (200, "20x2", "7, 7"),  # no row of taps reads elements only
        (8, "8x8", "3, 3"),  # the sum would cost more than it saves
    ],
)
def test_others_stay(features: int, size: str, dilation: str) -> None:
    padding = {"1, 1": "[1, 1, 1, 1]", "3, 3": "[3, 3, 3, 3]", "7, 7": "[20, 20, 20, 20]"}[dilation]
    text = convolution(features, size, "3x3", padding, dilation=dilation)
    assert op_counts(transformed(text, Patterns.of(READ_TAPS, FEATURES).apply)) == {"Conv": 1}
