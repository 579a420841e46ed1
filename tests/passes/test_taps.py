"""Depthwise convolutions of more than 25 taps: sums of smaller ones."""

from __future__ import annotations

import math

import pytest

from onnxtfl.passes.canonical.taps import MOST_TAPS, TAPS
from tests.passes.helpers import op_counts, transformed


def convolution(kernel: str, padding: str, strides: str = "1, 1", dilation: str = "1, 1", group: int = 3) -> str:
    """The text of a convolution of three features in groups of 3 / `group`, with a bias."""
    rank = strides.count(",") + 1
    spatial, shape = [2, 3][:rank], f"3x{3 // group}x{kernel}"
    numbers = [((7 * i) % 13 - 6) / 8 for i in range(math.prod(map(int, shape.split("x"))))]
    sides = ", ".join(f"{side}_spatial_dimensions = {spatial}" for side in ("input", "kernel", "output"))
    window = f"window_strides = [{strides}], padding = {padding}, rhs_dilation = [{dilation}]"
    return (
        f"graph main(%x: tensor<2x3x{'20x18' if rank == 2 else '60'}xfloat32>) -> (%y) {{\n"
        f" %k = constant tensor<{shape}xfloat32> {numbers}\n %b = constant tensor<3xfloat32> [0.5, -1.5, 2.0]\n"
        f" %y = Conv(%x, %k, %b) {{{sides}, {window}, feature_group_count = {group}}}\n}}"
    )


@pytest.mark.parametrize(
    ("kernel", "padding", "strides", "dilation", "parts"),
    [
        ("7x7", "[3, 3, 3, 3]", "1, 1", "1, 1", 3),
        ("3x9", "[1, 0, 2, 4]", "2, 3", "1, 2", 2),
        ("7x7", '"SAME"', "2, 2", "1, 1", 3),
        ("31", "[15, 15]", "1", "1", 2),
        ("13x13", "[6, 6, 6, 6]", "1, 1", "1, 1", 9),
        ("31x31", "[15, 15, 15, 15]", "1, 1", "1, 1", 44),
        ("5x26", "[0, 13, 0, 12]", "1, 1", "1, 1", 6),
    ],
)
def test_sums_of_parts(kernel: str, padding: str, strides: str, dilation: str, parts: int) -> None:
    graph = transformed(convolution(kernel, padding, strides, dilation), TAPS.apply)
    counts = op_counts(graph)
    assert (counts["Conv"], counts["Add"]) == (parts, parts - 1)
    kernels = [node.operand(1).shape[2:] for node in graph.nodes if node.op.name == "Conv"]
    assert max(map(math.prod, kernels)) <= MOST_TAPS


def test_both_axes_are_cut() -> None:
    assert op_counts(transformed(convolution("27x11", "[13, 5, 13, 5]"), TAPS.apply))["Conv"] == 14


@pytest.mark.parametrize(("kernel", "group"), [("5x5", 3), ("7x7", 1)])
def test_others_stay(kernel: str, group: int) -> None:
    assert op_counts(transformed(convolution(kernel, "[0, 0, 0, 0]", group=group), TAPS.apply))["Conv"] == 1
