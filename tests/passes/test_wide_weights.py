"""Weights that int8 cannot store with zero point 0 are sums: the features that they multiply are repeated."""

from __future__ import annotations

import numpy as np
import pytest

from onnxtfl.ir.graph import Graph
from onnxtfl.ir.interpret import run
from onnxtfl.ir.text import parse_graph
from onnxtfl.ir.verify import verify
from onnxtfl.passes.quantize import store_as_int8
from tests.passes.helpers import CONV2D, only_node, op_counts

FEATURES = 48
ONE, TWO = ("0.25:{0}", "0.125:0"), ("axis=0 0.25:{0} 0.5:128", "axis=0 0.125:0 0.25:0")
"""Scales of the weights and of the bias: of all output features, and of each of two."""


def convolution(
    wide: dict[tuple[int, int], int], zero: int = 120, groups: int = 1, scales: tuple[str, str] = ONE
) -> Graph:
    """A convolution of two output features; its weights fit int8, except for those of (output, input feature)."""
    weights = np.random.default_rng(0).integers(zero, min(zero + 127, 255), (2, FEATURES // groups))
    for place, weight in wide.items():
        weights[place] = weight
    text = f"""graph main(%x: tensor<1x{FEATURES}x4x4xfloat32, quant<uint8 0.5:100>>) -> (%y) {{
      %w = constant tensor<{"x".join(map(str, (*weights.shape, 1, 1)))}xfloat32, quant<uint8 {scales[0].format(zero)}>>
        {weights.ravel().tolist()}
      %b = constant tensor<2xfloat32, quant<int32 {scales[1]}>> [1, 2]
      %y = Conv(%x, %w, %b) {{{CONV2D}, feature_group_count = {groups}}}
        : tensor<1x2x4x4xfloat32, quant<uint8 16.0:128>>
    }}"""
    return parse_graph(text.replace(">>\n        ", ">> ").replace("}\n        :", "} :"))


def check(graph: Graph, wanted: Graph) -> None:
    verify(graph, "after")
    x = np.random.default_rng(0).integers(0, 256, (1, FEATURES, 4, 4)).astype(np.uint8)
    np.testing.assert_array_equal(run(graph, [x])[0], run(wanted, [x])[0])


@pytest.mark.parametrize(
    ("wide", "zero", "repeated", "slices"),
    [
        ({(0, 3): 255}, 120, 1, 1),  # 135
        ({(0, 3): 0, (1, 3): 1}, 140, 1, 1),  # -140 and -139
        ({(0, 3): 255, (1, 4): 250, (1, 9): 251}, 100, 3, 2),
        ({(1, FEATURES - 1): 255}, 0, 2, 2),  # 127 + 127 + 1
    ],
)
def test_features_of_wide_weights_are_repeated(
    wide: dict[tuple[int, int], int], zero: int, repeated: int, slices: int
) -> None:
    graph = convolution(wide, zero)
    store_as_int8(graph)
    kernel = only_node(graph, "Conv").operand(1)
    assert str(kernel.tensor_type) == f"tensor<2x{FEATURES + repeated}x1x1xfloat32, quant<int8 0.25:0>>"
    assert op_counts(graph)["Slice"] == slices
    check(graph, convolution(wide, zero))


def test_each_output_feature_may_have_its_zero_point() -> None:
    wide = {(0, 3): 255, (1, 3): 128}
    graph = convolution(wide, scales=TWO)
    store_as_int8(graph)
    assert only_node(graph, "Conv").operand(1).shape == (2, FEATURES + 1, 1, 1)
    check(graph, convolution(wide, scales=TWO))


def test_weights_with_several_scales_have_no_kernel_for_uint8() -> None:
    wide = {(i, 2 * j): 255 for i in range(2) for j in range(FEATURES // 2)}
    graph = convolution(wide, scales=TWO)
    store_as_int8(graph)
    assert only_node(graph, "Conv").operand(1).shape == (2, FEATURES + FEATURES // 2, 1, 1)
    check(graph, convolution(wide, scales=TWO))


@pytest.mark.parametrize(
    ("wide", "groups"),
    [({(0, i): 255 for i in range(4)}, 1), ({(0, 3): 255}, 2)],
    ids=["more than a sixteenth larger", "features are not added up"],
)
def test_other_weights_stay_uint8(wide: dict[tuple[int, int], int], groups: int) -> None:
    graph = convolution(wide, groups=groups)
    store_as_int8(graph)
    quantization = only_node(graph, "Conv").operand(1).tensor_type.quantization
    assert quantization is not None and quantization.storage == "uint8"
    check(graph, convolution(wide, groups=groups))


def test_a_target_without_uint8_repeats_any_features() -> None:
    wide = {(0, i): 255 for i in range(FEATURES)}
    graph = convolution(wide)
    store_as_int8(graph, always=True)
    assert only_node(graph, "Conv").operand(1).shape == (2, 2 * FEATURES, 1, 1)
    check(graph, convolution(wide))


@pytest.mark.parametrize(("x_type", "repeated"), [("quant<uint8 0.5:100>", 1), ("", 0)])
def test_products_repeat_features_of_integers(x_type: str, repeated: int) -> None:
    weights = np.full((FEATURES, 2), 120)
    weights[3, 1] = 255
    text = f"""graph main(%x: tensor<3x{FEATURES}xfloat32{x_type and ", "}{x_type}>) -> (%y) {{
      %w = constant tensor<{FEATURES}x2xfloat32, quant<uint8 0.25:120>> {weights.ravel().tolist()}
      %y = DotGeneral(%x, %w) {{lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [0]}}
        : tensor<3x2xfloat32{x_type and ", quant<uint8 16.0:128>"}>
    }}""".replace("}\n        :", "} :")
    graph = parse_graph(text)
    store_as_int8(graph)
    node = only_node(graph, "DotGeneral")
    assert node.operand(1).shape == (FEATURES + repeated, 2)
    x = np.random.default_rng(0).integers(0, 256, (3, FEATURES)).astype(np.uint8 if x_type else np.float32)
    np.testing.assert_array_equal(run(graph, [x])[0], run(parse_graph(text), [x])[0])
