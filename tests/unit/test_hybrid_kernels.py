"""Kernels on quantized weights and float activations: how the probe measures them, and what the target accepts."""

from __future__ import annotations

import numpy as np
import pytest
from tools.probe.case import evaluated
from tools.probe.hybrid import hybrid
from tools.probe.judge import judge

import onnxtfl
from onnxtfl.ir.graph import Value, constant
from onnxtfl.ir.quantization import Quantization
from onnxtfl.ir.types import DType, TensorType, tensor
from onnxtfl.rewriting.registry import Form
from onnxtfl.targets.tflite import TfliteTarget
from tests.unit.test_quantized_tfl import tflite
from tests.unit.tflite_files import assert_converts_alike

TYPES = {"T": "float32", "W": "float32", "B": "float32"}


def test_results_may_be_off_by_half_a_step_of_the_activations() -> None:
    x, w = np.array([[1.27, -0.5]], np.float32), np.array([[1.0, 1.0], [0.5, -1.0]], np.float32)
    case = evaluated(
        "FULLY_CONNECTED", TYPES, [x, w, None], lambda a, b, _: [a @ b.T], constants=frozenset({1}), extra={}
    )
    made = next(c for c in hybrid([case]) if c.types["W"] == "qint8")
    assert np.array_equal(made.operands[1] if made.operands[1] is not None else [], [[127, 127], [64, -127]])
    (bounds,) = made.bounds
    assert np.allclose(bounds, [[2 * 0.005 * 1.1, 1.504 * 0.005 * 1.1]], rtol=1e-3)
    assert judge(made, "ran", [made.expected[0] + bounds * 0.9]) == "correct"
    assert judge(made, "ran", [made.expected[0] + bounds * 1.1]) == "wrong"


def _accepts(op: str, filter_shape: tuple[int, ...], axis: int | None, runtime: str = "2.14") -> bool:
    count = 1 if axis is None else filter_shape[axis]
    w = constant(np.zeros(filter_shape, np.int8))
    w.type = TensorType(DType.FLOAT32, filter_shape, Quantization("int8", (0.5,) * count, (0,) * count, axis))
    x, bias, y = (Value(tensor("float32", *s)) for s in ((1, 8, 8, 4), (4,), (1, 8, 8, 4)))
    return TfliteTarget(runtime, hybrid=True).refusal(Form(op, (x, w, bias), {}), [y]) is None


@pytest.mark.parametrize(
    ("op", "shape", "axis", "accepted"),
    [
        ("CONV_2D", (4, 3, 3, 4), 0, True),
        ("CONV_2D", (4, 3, 3, 2), 0, True),
        ("CONV_2D", (4, 3, 3, 2), None, False),
        ("DEPTHWISE_CONV_2D", (1, 3, 3, 4), 3, True),
        ("DEPTHWISE_CONV_2D", (1, 3, 3, 4), None, False),
    ],
)
def test_convolutions_want_a_scale_for_each_feature(
    op: str, shape: tuple[int, ...], axis: int | None, accepted: bool
) -> None:
    assert _accepts(op, shape, axis) == accepted


_IMAGE = np.asarray([[[[1], [2]], [[3], [4]]]], np.float32)


_WINDOW_TEXT = 'padding = "VALID", stride_w = 1, stride_h = 1'


_DILATION = "dilation_w_factor = 1, dilation_h_factor = 1"


_SCALES = {"one scale": "0.05:3", "a scale each": "axis={} 0.05:3 0.1:2"}


@pytest.mark.parametrize("scales", _SCALES)
@pytest.mark.parametrize("op", ["CONV_2D", "DEPTHWISE_CONV_2D", "TRANSPOSE_CONV", "FULLY_CONNECTED", "BATCH_MATMUL"])
def test_hybrid_kernels_ignore_the_zero_points_of_weights(op: str, scales: str) -> None:
    axis = {"DEPTHWISE_CONV_2D": 3, "BATCH_MATMUL": 1}.get(op, 0)
    weights = f"quant<int8 {_SCALES[scales].format(axis)}>"
    if op == "DEPTHWISE_CONV_2D" and scales == "one scale":
        pytest.skip("LiteRT reads a scale for each channel, whatever the file has")
    matrix = f"%w = constant tensor<2x2xfloat32, {weights}> [1, 120, 3, 4]"
    filters = f"%w = constant tensor<2x1x1x1xfloat32, {weights}> [1, 120]"
    bias, image = "%b = constant tensor<2xfloat32> [0.5, 0.0]", "tensor<1x2x2x2xfloat32>"
    body = {
        "CONV_2D": f"{filters}\n{bias}\n%y = tfl.CONV_2D@5(%x, %w, %b) {{{_WINDOW_TEXT}, {_DILATION}}} : {image}",
        "DEPTHWISE_CONV_2D": f"{filters.replace('2x1x1x1', '1x1x1x2')}\n{bias}\n"
        f"%y = tfl.DEPTHWISE_CONV_2D@6(%x, %w, %b) {{{_WINDOW_TEXT}, {_DILATION}, depth_multiplier = 2}} : {image}",
        "TRANSPOSE_CONV": f"%s = constant tensor<4xint32> [1, 2, 2, 2]\n{filters}\n"
        f"%y = tfl.TRANSPOSE_CONV@3(%s, %w, %x) {{{_WINDOW_TEXT}}} : {image}",
        "FULLY_CONNECTED": f"{matrix}\n%y = tfl.FULLY_CONNECTED@3(%x, %w) : tensor<1x2xfloat32>",
        "BATCH_MATMUL": f"{matrix}\n%y = tfl.BATCH_MATMUL@3(%x, %w) : tensor<1x2xfloat32>",
    }[op]
    x = _IMAGE if "CONV" in op else np.asarray([[1, 0.5]], np.float32)
    shape = "x".join(map(str, x.shape))
    assert_converts_alike(tflite(f"graph main(%x: tensor<{shape}xfloat32>) -> (%y) {{\n{body}\n}}"), x, tolerance=1e-5)


@pytest.mark.parametrize("op", ["CONV_2D@5", "FULLY_CONNECTED@3"])
def test_hybrid_kernels_read_weights_of_uint8_as_int8(op: str) -> None:
    """Files of the first hybrid models have them."""
    weights = "%w = constant tensor<2x2x1x1xfloat32, quant<uint8 0.05:3>> [1, 200, 130, 4]"
    options = f" {{{_WINDOW_TEXT}, {_DILATION}}}"
    x, results = np.arange(4, dtype=np.float32).reshape(1, 2, 2, 1), "tensor<1x1x2x2xfloat32>"
    if "FULLY" in op:
        weights, options, x, results = weights.replace("2x2x1x1", "2x2"), "", x.reshape(2, 2), "tensor<2x2xfloat32>"
    shape = "x".join(map(str, x.shape))
    text = f"""
    graph main(%x: tensor<{shape}xfloat32>) -> (%y) {{
      {weights}
      %b = constant tensor<2xfloat32> [0.0, 0.0]
      %y = tfl.{op}(%x, %w, %b){options} : {results}
    }}"""
    assert_converts_alike(tflite(text), x, tolerance=1e-5)
    several = text.replace("uint8 0.05:3", "uint8 axis=0 0.05:3 0.1:3")
    with pytest.raises(onnxtfl.UnsupportedError, match="constants with one scale"):
        onnxtfl.tflite_to_onnx(tflite(several), check=False)
