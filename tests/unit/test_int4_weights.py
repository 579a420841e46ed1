"""TFLite's 4-bit weights with a scale for each channel: ONNX Runtime computes what LiteRT does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import onnxtfl
from onnxtfl.formats.tflite import schema
from tests.harness.litert import run_onnx, run_tflite
from tests.unit.test_tflite_reader import file_of, table

Shape = tuple[int, ...]
WINDOW = {"padding": "VALID", "stride_w": 1, "stride_h": 1}
CASES: list[tuple[str, int, Shape, Shape, Shape, int, dict[str, Any]]] = [
    ("FULLY_CONNECTED", 12, (3, 16), (5, 16), (3, 5), 0, {}),
    ("CONV_2D", 8, (1, 5, 5, 4), (6, 3, 3, 4), (1, 3, 3, 6), 0, WINDOW),
    ("DEPTHWISE_CONV_2D", 7, (1, 5, 5, 4), (1, 3, 3, 4), (1, 3, 3, 4), 3, {**WINDOW, "depth_multiplier": 1}),
]
OPTIONS = {
    "FULLY_CONNECTED": "FullyConnectedOptions",
    "CONV_2D": "Conv2DOptions",
    "DEPTHWISE_CONV_2D": "DepthwiseConv2DOptions",
}


def model(case: Any, quantized: bool) -> bytes:
    """One op with packed weights, and a bias; `quantized`: its operand and result are int8."""
    op, version, x, weights, y, axis, options = case
    rng, count, kind = np.random.default_rng(0), weights[axis], "INT8" if quantized else "FLOAT32"
    nibbles = rng.integers(0, 16, weights).astype(np.uint8).reshape(-1)
    scales = (rng.random(count) * 0.2 + 0.05).astype(np.float32)
    biases = rng.integers(-300, 300, count).astype(np.int32) if quantized else rng.random(count).astype(np.float32)
    zeros = (0,) * count
    of_weights = {"scale": tuple(scales.tolist()), "zero_point": zeros, "quantized_dimension": axis}
    of_bias = {"scale": tuple((scales * np.float32(0.05)).tolist()), "zero_point": zeros}
    of_x, of_y = {"scale": (0.05,), "zero_point": (3,)}, {"scale": (0.2,), "zero_point": (-4,)}
    tensors = [
        table("Tensor", shape=x, type=kind, name="x", quantization=of_x if quantized else None),
        table("Tensor", shape=weights, type="INT4", name="w", buffer=1, quantization=of_weights),
        table("Tensor", shape=(count,), type="INT32" if quantized else "FLOAT32", name="b", buffer=2,
              quantization=of_bias if quantized else None),
        table("Tensor", shape=y, type=kind, name="y", quantization=of_y if quantized else None),
    ]  # fmt: skip
    number = schema.unions()["BuiltinOptions"].index(OPTIONS[op]) + 1
    written = {"builtin_options_type": number, "builtin_options": (schema.table(OPTIONS[op]), options)}
    node = table("Operator", inputs=(0, 1, 2), outputs=(3,), **written)
    main = table("SubGraph", tensors=tensors, inputs=(0,), outputs=(3,), operators=[node])
    buffers = [{}, {"data": (nibbles[::2] | nibbles[1::2] << 4).tobytes()}, {"data": biases.tobytes()}]
    code = table("OperatorCode", builtin_code=op, version=version)
    return file_of(subgraphs=[main], buffers=buffers, operator_codes=[code])


@pytest.mark.parametrize(
    ("case", "quantized"), [(case, quantized) for case in CASES for quantized in (True, False)][:-1]
)
def test_channels_with_scales_of_their_own(case: Any, quantized: bool) -> None:
    """Integers within a step: the kernels round twice. DEPTHWISE_CONV_2D has no kernel for floats."""
    data, rng = model(case, quantized), np.random.default_rng(1)
    x = rng.integers(-100, 100, case[2]).astype(np.int8) if quantized else rng.random(case[2]).astype(np.float32)
    ((_, wanted),) = run_tflite(data, [x], kernels="builtin")
    (found,) = run_onnx(onnxtfl.tflite_to_onnx(data, check=False).data or b"", {"x": x}).values()
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1 if quantized else 1e-5)
