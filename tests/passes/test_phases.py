"""Transposed convolutions by phase: as one convolution, whose features become blocks."""

from __future__ import annotations

import math

import pytest

from onnxtfl.passes.canonical.phases import PHASES
from tests.passes.helpers import op_counts, transformed


def convolution(kernel: str, strides: str, padding: str, x: str = "2x3x8x9", rest: str = "", outputs: int = 2) -> str:
    """The text of a ConvTranspose to `outputs` features with a bias."""
    rank = strides.count(",") + 1
    count = math.prod(map(int, kernel.split("x"))) * 3 * outputs
    numbers = str([((7 * i) % 13 - 6) / 8 for i in range(count)])
    spatial = str([2, 3, 4][:rank])
    attributes = f"window_strides = [{strides}], padding = [{padding}], rhs_dilation = {[1] * rank}"
    sides = ", ".join(f"{side}_spatial_dimensions = {spatial}" for side in ("input", "kernel", "output"))
    return (
        f"graph main(%x: tensor<{x}xfloat32>) -> (%y) {{\n"
        f" %k = constant tensor<3x{outputs}x{kernel}xfloat32> {numbers}\n"
        f" %b = constant tensor<{outputs}xfloat32> {[0.5, -1.5][:outputs]}\n"
        f" %{'t' if rest else 'y'} = ConvTranspose(%x, %k, %b) {{{sides}, {attributes}}}\n{rest}}}"
    )


@pytest.mark.parametrize(
    ("kernel", "strides", "padding", "sliced"),
    [("2x2", "2, 2", "0, 0, 0, 0", 0), ("4x4", "2, 2", "1, 1, 1, 1", 1), ("6x3", "3, 3", "4, 0, 3, 2", 1)],
)
def test_kernels_that_are_multiples_of_the_stride(kernel: str, strides: str, padding: str, sliced: int) -> None:
    counts = op_counts(transformed(convolution(kernel, strides, padding), PHASES.apply))
    assert (counts["ConvTranspose"], counts["Conv"], counts["DepthToSpace"], counts["Slice"]) == (0, 1, 1, sliced)


def test_one_spatial_axis() -> None:
    counts = op_counts(transformed(convolution("8", "4", "2, 2", "2x3x20"), PHASES.apply))
    assert (counts["ConvTranspose"], counts["Conv"], counts["DepthToSpace"]) == (0, 1, 1)


@pytest.mark.parametrize(
    ("kernel", "strides", "padding"),
    [("2x2x2", "2, 2, 2", "0, 0, 0, 0, 0, 0"), ("3x2x2", "3, 2, 2", "0, 1, 0, 0, 0, 1")],
)
def test_volumes_are_planes(kernel: str, strides: str, padding: str) -> None:
    counts = op_counts(transformed(convolution(kernel, strides, padding, "2x3x3x4x5"), PHASES.apply))
    taps = int(kernel[0])
    assert (counts["ConvTranspose"], counts["Conv"], counts["DepthToSpace"]) == (0, taps, taps)


@pytest.mark.parametrize(
    ("kernel", "strides", "padding", "x"),
    [
        ("3x2x2", "2, 2, 2", "0, 0, 0, 0, 0, 0", "1x3x3x4x5"),  # planes that overlap
        ("2x2x2", "2, 2, 2", "1, 0, 0, 0, 0, 0", "1x3x3x4x5"),  # planes that are cropped
        ("3x3", "2, 2", "1, 1, 1, 1", "1x3x8x9"),  # phases of different sizes
        ("4x2", "4, 2", "0, 0, 0, 0", "1x3x8x9"),  # other blocks than squares
        ("2x2", "2, 2", "0, 0, -1, 0", "1x3x8x9"),  # more than the kernel reaches
        ("4x4", "2, 2", "1, 1, 1, 1", "1x3x2x2"),  # mostly border
    ],
)
def test_others_stay(kernel: str, strides: str, padding: str, x: str) -> None:
    counts = op_counts(transformed(convolution(kernel, strides, padding, x), PHASES.apply))
    assert (counts["ConvTranspose"], counts["Conv"]) == (1, 0)


@pytest.mark.parametrize(
    ("kernel", "strides", "padding", "x", "convolution_padding"),
    [
        ("3x3", "2, 2", "1, 1, 0, 0", "[n]x3x8x9", (0, 0, 1, 1)),  # a zero before the kernel: no position is cropped
        ("3x3", "2, 2", "0, 0, 1, 1", "[n]x3x8x9", (1, 1, 0, 0)),  # a zero after it
        ("5x4", "3, 3", "1, 1, 1, 0", "[n]x3x8x9", (1, 0, 1, 1)),
        ("4x4", "2, 2", "1, 1, 1, 1", "[n]x3x2x2", (1, 1, 1, 1)),  # mostly border
        ("5", "4", "1, 1", "[n]x3x20", (1, 0)),
    ],
)
def test_dynamic_sizes_which_the_delegate_does_not_take(
    kernel: str, strides: str, padding: str, x: str, convolution_padding: tuple[int, ...]
) -> None:
    graph = transformed(convolution(kernel, strides, padding, x), PHASES.apply)
    counts = op_counts(graph)
    assert (counts["ConvTranspose"], counts["Conv"]) == (0, 1)
    assert next(n for n in graph.nodes if n.op.name == "Conv").attr("padding") == convolution_padding


@pytest.mark.parametrize(
    ("kernel", "padding", "x", "outputs"),
    [
        ("4x4", "1, 1, 1, 1", "[n]x3x1x1", 2),  # four times the products
        ("3x3", "1, 1, 0, 0", "[n]x3x8x9", 1),  # four features, of the 16 that a kernel computes
    ],
)
def test_dynamic_sizes_that_are_slower_by_phase(kernel: str, padding: str, x: str, outputs: int) -> None:
    counts = op_counts(transformed(convolution(kernel, "2, 2", padding, x, outputs=outputs), PHASES.apply))
    assert (counts["ConvTranspose"], counts["Conv"]) == (1, 0)


def test_an_activation_stays_next_to_the_convolution() -> None:
    text = convolution("4x4", "2, 2", "1, 1, 1, 1", rest=" %y = Relu(%t)\n")
    graph = transformed(text, PHASES.apply)
    relu = next(node for node in graph.nodes if node.op.name == "Relu")
    producer = relu.operand(0).producer
    assert producer is not None and producer.op.name == "Conv"
