"""The ops of the family convolution: what they mean, how they are lifted, and what is written for them."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import onnxtfl
from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.graph import Graph, constant
from onnxtfl.ir.types import tensor
from tests.fuzz.both_ways import assert_converts_both_ways
from tests.harness.litert import run_onnx, run_tflite
from tests.unit.convolutions import check_convolution, check_preferred_layout, conv
from tests.unit.lifting import TFLITE, floats, onnx_target
from tests.unit.onnx_nodes import agrees_on, named_node, onnx_file
from tests.unit.test_quantized_tfl import tflite
from tests.unit.tflite_files import assert_converts_alike, tflite_file
from tests.unit.tflite_graphs import SAMPLE, TfliteGraph, assert_same_as_litert
from tests.unit.tiny_models import onnx_model

_CONVS = [
    ((2, 3, 9), (4, 3, 3), conv(1, padding=(1, 2), window_strides=(2,))),
    ((2, 3, 9, 8), (4, 3, 3, 3), conv(2, padding=(1, 1, 1, 1))),
    ((2, 3, 9, 8), (4, 3, 3, 3), conv(2, padding=(1, 0, 2, 1), window_strides=(2, 3), rhs_dilation=(1, 2))),
    ((2, 4, 9, 8), (8, 1, 3, 3), conv(2, feature_group_count=4, padding=(0, 1, 0, 0))),
    ((2, 4, 9, 8), (6, 2, 3, 3), conv(2, feature_group_count=2)),
    ((2, 4, 5, 6, 7), (6, 2, 2, 3, 2), conv(3, feature_group_count=2, padding=(1, 1, 1, 0, 0, 0))),
    ((1, 2, 7, 8), (3, 2, 3, 3), conv(2, padding="SAME", window_strides=(2, 2))),
    ((2, 1, 1, 6, 7, 3), (1, 1, 1, 2, 3, 1), conv(4, window_strides=(1, 2, 2, 1))),  # jax2onnx: sums over windows
    ((1, 2, 3, 5, 4, 3), (4, 1, 2, 2, 1, 3), conv(4, padding=(0, 1, 1, 0, 0, 0, 1, 1), feature_group_count=2)),
]


@pytest.mark.parametrize(("x", "kernel", "attributes"), _CONVS)
@pytest.mark.parametrize("target", [TFLITE, onnx_target(13)], ids=["tfl", "onnx"])
def test_in_every_form(x: Any, kernel: Any, attributes: Any, target: Any) -> None:
    check_convolution(ops.Conv, x, kernel, attributes, target)


@pytest.mark.parametrize(("x", "kernel", "attributes"), _CONVS)
@pytest.mark.parametrize("channels_last", [True, False])
def test_read_the_same_as_preferred(x: Any, kernel: Any, attributes: Any, channels_last: bool) -> None:
    check_preferred_layout(ops.Conv, x, kernel, attributes, channels_last)


def test_open_sizes_keep_their_symbols() -> None:
    graph = Graph()
    x = graph.add_input(tensor("float32", "n", 3, "h", "w"))
    kernel = constant(floats(8, 3, 3, 3))
    attributes = conv(2, padding=(1, 1, 1, 1), window_strides=(2, 1))
    result = Builder(graph)(ops.Conv, x, kernel, None, **attributes)
    assert str(result.type) == "tensor<[n]x8x[(h - 1)//2 + 1]x[w]xfloat32>"


@pytest.mark.parametrize("auto_pad", ["SAME_UPPER", "SAME_LOWER"])
@pytest.mark.parametrize(("kernel", "stride"), [(1, 4), (1, 8), (2, 5), (3, 7), (3, 4)])
@pytest.mark.parametrize("is_open", [False, True])
def test_same_padding_of_strides_over_the_window(auto_pad: str, kernel: int, stride: int, is_open: bool) -> None:
    """Where the padding is negative ONNX Runtime begins later; the ONNX model of the result computes the same."""
    weights = {"w": floats(3, 2, kernel)}
    node = helper.make_node("Conv", ["x", "w"], ["y"], auto_pad=auto_pad, strides=[stride])

    def model(size: int | str) -> onnx.ModelProto:
        return onnx_model([node], [("x", TensorProto.FLOAT, [1, 2, size])], [("y", TensorProto.FLOAT, None)], weights)

    def converted(size: int | str) -> tuple[bytes, bytes]:
        made = onnxtfl.onnx_to_tflite(model(size), check=False).data or b""
        return made, onnxtfl.tflite_to_onnx(made, check=False).data or b""

    once = converted("n") if is_open else None
    for size in range(stride, 2 * stride + 1):
        x = floats(1, 2, size)
        wanted = run_onnx(model("n").SerializeToString(), {"x": x})["y"]
        made, back = once or converted(size)
        np.testing.assert_allclose(run_tflite(made, {"x": x})[0][1], wanted, atol=1e-5)
        np.testing.assert_allclose(run_onnx(back, {"x": x})["y"], wanted, atol=1e-5)


FLOAT = TensorProto.FLOAT


def test_groups_of_channels_whose_number_depth_to_space_computes() -> None:
    """XNNPACK tells groups by the sizes in the file, so [N, C // 4, ...] has to be [N, 3, ...]."""
    nodes = [
        helper.make_node("DepthToSpace", ["x"], ["d"], blocksize=2),
        helper.make_node("Conv", ["d", "w"], ["y"], group=3),
    ]
    weight = np.random.default_rng(0).standard_normal((6, 1, 3, 3)).astype(np.float32)
    model = onnx_model(nodes, [("x", FLOAT, ["N", "C", "H", "W"])], [("y", FLOAT, None)], {"w": weight})
    x = np.random.default_rng(1).standard_normal((1, 12, 5, 2)).astype(np.float32)
    assert agrees_on(onnxtfl.onnx_to_tflite(model, check=False).data, model, x)


def test_groups_of_channels_to_which_two_open_sizes_broadcast() -> None:
    nodes = [helper.make_node("Add", ["x", "z"], ["s"]), helper.make_node("Conv", ["s", "w"], ["y"], group=2)]
    weight = np.random.default_rng(0).standard_normal((2, 1, 2)).astype(np.float32)
    inputs = [("x", FLOAT, [2, "C", 4]), ("z", FLOAT, [2, "D", 4])]
    model = onnx_model(nodes, inputs, [("y", FLOAT, None)], {"w": weight})
    found = onnxtfl.onnx_to_tflite(model, check=True, load=False).check
    assert found is not None and found.status == "passed", found


@pytest.mark.parametrize("op", ["Conv", "ConvTranspose"])
def test_the_weight_fixes_the_size_of_a_bias(op: str) -> None:
    node = helper.make_node(op, ["x", "w", "b"], ["y"])
    inputs = [("x", FLOAT, ["N", "C", 5, 5]), ("b", FLOAT, ["B"])]
    model = onnx_model([node], inputs, [("y", FLOAT, None)], {"w": np.ones((3, 3, 2, 2), np.float32)})
    x, bias = onnxtfl.onnx_to_tflite(model, check=False, load=False).report.inputs
    assert "[N,3,5,5]" in str(x) and "[3]" in str(bias)


@pytest.mark.parametrize("op", ["Conv", "ConvTranspose"])
@pytest.mark.parametrize("size", [5, "W"])
def test_a_convolution_of_no_channels_is_its_bias(op: str, size: int | str) -> None:
    weights = {"w": np.zeros((2, 0, 3) if op == "Conv" else (0, 2, 3), np.float32), "c": np.float32([1, -2])}
    node = helper.make_node(op, ["x", "w", "c"], ["y"])
    model = onnx_model([node], [("x", FLOAT, [1, 0, size])], [("y", FLOAT, None)], weights)
    result = onnxtfl.onnx_to_tflite(model, check=False).data
    from tests.harness.litert import run_tflite

    found = dict(run_tflite(result, {"x": np.zeros((1, 0, 5), np.float32)}))["y"]
    np.testing.assert_array_equal(found, np.broadcast_to([[[1], [-2]]], (1, 2, 3 if op == "Conv" else 7)))


F = np.float32


_STEPS = [("Quantize", "x", "q"), ("Dequantize", "q", "w")]


def test_a_computed_kernel_whose_sizes_only_its_convolution_knows() -> None:
    quantized, real = (helper.make_node(f"{op}Linear", [x, "s", "z"], [y], axis=0) for op, x, y in _STEPS)
    nodes = [quantized, real, named_node("Conv", "c w", kernel_shape=[3, 3])]
    scales = {"s": F([0.1, 0.2, 0.3, 0.4]), "z": np.zeros(4, np.int8)}
    data = onnx_file(nodes, [4, 2, 3, "n"], {"c": np.ones((1, 2, 5, 5), F), **scales})
    assert onnxtfl.onnx_to_tflite(data, check=False).data


@pytest.mark.parametrize("sizes", [(3, 3), (1, 3)])
def test_a_dilated_convolution_with_same_padding_over_open_sizes(sizes: tuple[int, int]) -> None:
    def build(g: TfliteGraph) -> Any:
        x = g.given(np.resize(SAMPLE, (1, 7, 6, 2)), open_axes=(0, 1, 2))
        inputs = [x, g.constant(np.resize(SAMPLE, (3, *sizes, 2))), g.constant(np.zeros(3), "float32")]
        strides = {"stride_h": 2, "stride_w": 3, "dilation_h_factor": 2, "dilation_w_factor": 1}
        return g.op("CONV_2D", inputs, padding="SAME", **strides)

    assert_same_as_litert(build, [(2, 8, 9, 2)], [(1, 1, 1, 2)], [(1, 12, 5, 2)])


def test_windows_without_a_position() -> None:
    """LiteRT computes an empty result where the operand is a little shorter than the window."""
    option = {"padding": "VALID", "stride_h": 1, "stride_w": 3, "fused_activation_function": "RELU"}
    x, weight = SAMPLE[:1, :, None].repeat(2, 2), np.ones([4, 1, 4, 4], np.float32)
    assert_same_as_litert(
        lambda g: g.op(
            "CONV_2D",
            [g.given(x, open_axes=[0]), g.constant(weight, "float32"), g.constant([1] * 4, "float32")],
            **option,
        )
    )
    assert_same_as_litert(lambda g: g.op("MAX_POOL_2D", [g.given(x)], **option, filter_height=1, filter_width=4))


@pytest.mark.parametrize(
    ("op", "kernel", "options", "message"),
    [
        ("CONV_2D", [-1, -1, -1, 3], {}, "a kernel of dynamic size"),
        (
            "DEPTHWISE_CONV_2D",
            [1, 2, 2, 8],
            {"depth_multiplier": 3},
            "a depthwise kernel of 8 features and multiplier 3",
        ),
    ],
)
def test_convolutions_of_unknown_sizes(op: str, kernel: list[int], options: dict[str, Any], message: str) -> None:
    class Open(TfliteGraph):
        def _tensor(self, name: str, buffer: int, kind: tuple[str, int] | None) -> dict[str, Any]:
            found = super()._tensor(name, buffer, kind)
            return found | {"shape_signature": kernel if name == "in1" else [-1] * 4} if name != "in2" else found

    g, weight = Open(0), np.ones([2 if n < 0 else n for n in kernel], np.float32)
    bias = np.zeros(weight.shape[-1 if op[0] == "D" else 0], np.float32)
    x = np.ones((1, 5, 5, 4 if op[0] == "D" else 3), np.float32)
    assert g.op(op, [g.given(x), g.given(weight), g.given(bias)], stride_w=1, stride_h=1, **options)
    with pytest.raises(onnxtfl.UnsupportedError, match=message):
        onnxtfl.tflite_to_onnx(g.model(), check=False)


_IMAGE = np.asarray([[[[1], [2]], [[3], [4]]]], np.float32)


_WINDOW_TEXT = 'padding = "VALID", stride_w = 1, stride_h = 1'


_DILATION = "dilation_w_factor = 1, dilation_h_factor = 1"


def test_a_bias_of_two_axes() -> None:
    text = f"""
    graph main(%x: tensor<1x2x2x1xfloat32>) -> (%y, %z) {{
      %w = constant tensor<2x1x1x1xfloat32> [1.0, 2.0]
      %b = constant tensor<2x1xfloat32> [0.5, 0.25]
      %s = constant tensor<4xint32> [1, 2, 2, 2]
      %y = tfl.CONV_2D@1(%x, %w, %b) {{{_WINDOW_TEXT}, {_DILATION}}} : tensor<1x2x2x2xfloat32>
      %z = tfl.TRANSPOSE_CONV@3(%s, %w, %x, %b) {{{_WINDOW_TEXT}}} : tensor<1x2x2x2xfloat32>
    }}"""
    assert_converts_alike(tflite(text), _IMAGE, tolerance=1e-6)


def test_a_constant_of_a_higher_rank_than_the_result_of_a_convolution() -> None:
    assert_converts_both_ways(
        "g (float[1, 1, 6, 6] x) => (float y, float z) { y = Conv (x, k) z = Mean (x, c) }",
        {"k": (1, 1, 2, 2), "c": (1, 1, 1, 1, 1)},
    )


@pytest.mark.parametrize("kernel", [(3, 1, 2), (1, 2, 3), (2, 3, 1)])
def test_the_axes_of_a_3d_kernel_from_tflite(kernel: tuple[int, int, int]) -> None:
    """A kernel of three different sizes, of which each belongs to one axis."""
    weights = np.random.default_rng(0).standard_normal((*kernel, 2, 3)).astype(np.float32)
    counts = (size - k + 1 for size, k in zip((5, 6, 7), kernel, strict=True))
    options = {f"{what}_{axis}{end}": 1 for what, end in (("stride", ""), ("dilation", "_factor")) for axis in "dhw"}
    options |= {"padding": "VALID", "fused_activation_function": "NONE"}
    result = tensor("float32", 1, *counts, 3)
    data = tflite_file("CONV_3D", [tensor("float32", 1, 5, 6, 7, 2), weights], result, **options)
    assert onnxtfl.tflite_to_onnx(data, check="require").check.ok


def test_evaluating_no_channels() -> None:
    """A sum of nothing, also in a constant that is folded."""
    node = helper.make_node("Conv", ["x", "w"], ["y"])
    model = onnx_model([node], [("x", FLOAT, [2, 0, 5]), ("w", FLOAT, [3, 0, 2])], [("y", FLOAT, None)])
    found = onnxtfl.run(model.SerializeToString(), {"x": np.zeros((2, 0, 5)), "w": np.zeros((3, 0, 2))})["y"]
    np.testing.assert_array_equal(found, np.zeros((2, 3, 4)))


def test_evaluating_in_pieces_computes_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Grouped, dilated and strided, one row of windows a piece."""
    axes = {f"{side}_spatial_dimensions": (2, 3) for side in ("input", "kernel", "output")}
    defaults = {"input_batch_dimension": 0, "input_feature_dimension": 1, "kernel_input_feature_dimension": 1}
    defaults |= {"kernel_output_feature_dimension": 0, "output_batch_dimension": 0, "output_feature_dimension": 1}
    window = {"window_strides": (2, 1), "padding": (1, 0, 2, 1), "rhs_dilation": (1, 2), "feature_group_count": 2}
    x, w = np.arange(2 * 4 * 7 * 8).reshape(2, 4, 7, 8), np.arange(6 * 2 * 3 * 2).reshape(6, 2, 3, 2)
    whole = ops.Conv.compute(x, w, None, **defaults, **axes, **window)
    monkeypatch.setattr("onnxtfl.ir.ops.convolution._MOST_COLUMNS", 1)
    np.testing.assert_array_equal(ops.Conv.compute(x, w, None, **defaults, **axes, **window), whole)
