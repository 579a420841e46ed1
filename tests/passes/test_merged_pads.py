"""Pads of an inner axis are over rows of all elements after it."""

from __future__ import annotations

import pytest

from onnxtfl.ir.graph import Graph
from onnxtfl.passes.canonical.merged_pads import MOST_ELEMENTS, pad_rows
from tests.passes.helpers import only_node, op_counts, transformed


def padded(shape: str, pads: str, reader: str = "Relu(%p)", count: int = 4) -> Graph:
    return transformed(
        f"graph main(%x: tensor<{shape}xfloat32>) -> (%y) {{\n %a = constant tensor<{count}x2xint64> [{pads}]\n"
        f" %v = constant tensor<float32> [-2.0]\n %p = Pad(%x, %a, %v)\n %y = {reader}\n}}",
        pad_rows,
    )


@pytest.mark.parametrize(
    ("shape", "pads", "inner"),
    [
        ("1x6x5x4", "0, 0, 1, 0, 1, 0, 0, 0", (1, 7, 1, 24)),
        ("2x6x5x4", "0, 0, 1, 2, 3, 0, 0, 0", (2, 9, 1, 32)),
        ("1x6x5x1", "0, 0, 0, 0, 0, 1, 0, 0", (1, 6, 1, 6)),
        ("1x6x3x5x4", "0, 0, 1, 0, 1, 1, 0, 0, 0, 0", (1, 7, 1, 1, 100)),
    ],
)
def test_rows_are_padded(shape: str, pads: str, inner: tuple[int, ...]) -> None:
    graph = padded(shape, pads, count=len(inner))
    pad = only_node(graph, "Pad")
    assert pad.result.shape == inner


@pytest.mark.parametrize(
    ("shape", "pads"),
    [
        ("1x6x5x4", "0, 0, 0, 0, 1, 0, 2, 0"),
        (f"1x2x2x{2 * MOST_ELEMENTS}", "0, 0, 1, 0, 1, 0, 0, 0"),
    ],
    ids=["the last axis", "many elements"],
)
def test_others_stay(shape: str, pads: str) -> None:
    assert op_counts(padded(shape, pads))["Reshape"] == 0


def test_a_pad_before_a_convolution_stays() -> None:
    numbers = (
        "input_feature_dimension = 3, input_spatial_dimensions = [1, 2], kernel_output_feature_dimension = 0, "
        "kernel_input_feature_dimension = 3, kernel_spatial_dimensions = [1, 2], output_feature_dimension = 3, "
        "output_spatial_dimensions = [1, 2], window_strides = [1, 1], padding = [0, 0, 0, 0], rhs_dilation = [1, 1]"
    )
    graph = transformed(
        "graph main(%x: tensor<1x6x5x2xfloat32>) -> (%y) {\n"
        f" %k = constant tensor<3x1x1x2xfloat32> {[1.0] * 6}\n"
        " %a = constant tensor<4x2xint64> [0, 0, 1, 1, 1, 1, 0, 0]\n"
        f" %p = Pad(%x, %a)\n %y = Conv(%p, %k) {{{numbers}}}\n}}",
        pad_rows,
    )
    assert op_counts(graph)["Reshape"] == 0
