"""Images whose rows and columns are repeated: concatenations where XNNPACK runs, and one Resize in ONNX."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import onnxtfl
from tests.harness.litert import run_tflite
from tests.harness.rounds import floats, parsed, there_and_back

QUANTIZED = """g (float[1, 8, 6, 5] x) => (float[a, b, c, d] y)
  <float s = {0.02}, int8 z = {3}, float[4] by = {1, 1, 2, 3}> {
    q = QuantizeLinear (x, s, z)  d = DequantizeLinear (q, s, z)
    r = Resize <mode = "nearest", coordinate_transformation_mode = "asymmetric", nearest_mode = "floor"> (d, "", by)
    p = QuantizeLinear (r, s, z)  y = DequantizeLinear (p, s, z) }"""
UNUSUAL = (np.nan, np.inf, -np.inf, -0.0, 1e-42)


def upsampling(height: int, width: int, features: int = 8) -> str:
    """An image whose rows and columns are repeated so often."""
    return f"""g (float[1, {features}, 6, 5] x) => (float[a, b, c, d] y) <float[4] by = {{1, 1, {height}, {width}}}> {{
      y = Resize <mode = "nearest"> (x, "", by) }}"""


@pytest.mark.parametrize("factors", [(2, 2), (3, 1), (1, 2), (4, 3), (5, 5), (8, 6)], ids=str)
def test_repeated_rows_and_columns(factors: tuple[int, int]) -> None:
    x = floats(1, 8, 6, 5)
    x.reshape(-1)[: len(UNUSUAL)] = UNUSUAL
    there, back = there_and_back(upsampling(*factors), {"x": x}, opset=18, tolerance=0)
    assert "RESIZE_NEAREST_NEIGHBOR" not in there and there["CONCATENATION"] > 0
    assert back["Resize"] == 1 and "Concat" not in back


def test_repeated_rows_and_columns_of_a_dynamic_batch() -> None:
    model = parsed(upsampling(2, 3).replace("float[1, ", "float[n, "), 18)
    result = onnxtfl.onnx_to_tflite(model, check=False)
    assert result.data is not None and "RESIZE_NEAREST_NEIGHBOR" not in result.report.ops_after
    for batch in (1, 3):
        x = floats(batch, 8, 6, 5)
        ((_, found),) = run_tflite(result.data, [x])
        np.testing.assert_array_equal(found, x.repeat(2, axis=2).repeat(3, axis=3))


def test_repeated_quantized_elements() -> None:
    there, back = there_and_back(QUANTIZED, {"x": floats(1, 8, 6, 5)})
    assert "RESIZE_NEAREST_NEIGHBOR" not in there
    assert back["Resize"] == 1 and "Concat" not in back


@pytest.mark.parametrize(
    ("model", "options"),
    [
        (upsampling(7, 7), {}),  # XNNPACK concatenates few tensors at once
        (upsampling(2, 2, 1024), {}),  # slower: the kernel copies many features at once
        (upsampling(2, 2), {"target": "gpu"}),
        (upsampling(2, 2), {"target": "micro"}),
    ],
    ids=["7 times", "many features", "gpu", "micro"],
)
def test_where_the_op_is_better(model: str, options: dict[str, Any]) -> None:
    report = onnxtfl.onnx_to_tflite(parsed(model, 18), check=False, **options).report
    assert report.ops_after["RESIZE_NEAREST_NEIGHBOR"] == 1


def test_the_kernel_costs_more_between_other_ops() -> None:
    model = """g (float[1, 256, 10, 10] x) => (float[a, b, c, d] y) <float[4] by = {1, 1, 2, 2}> {
      a = Sigmoid (x)  r = Resize <mode = "nearest"> (a, "", by)  y = Sigmoid (r) }"""
    ops = onnxtfl.onnx_to_tflite(parsed(model, 18), check=False).report.ops_after
    assert "RESIZE_NEAREST_NEIGHBOR" not in ops and "CONCATENATION" in ops


def test_repeated_features_stay_a_concatenation() -> None:
    text = "g (float[1, 2, 3, 4] x) => (float[1, 2, 3, 8] z) { y = Concat <axis = 3> (x, x)  z = Relu (y) }"
    _, back = there_and_back(text, {"x": floats(1, 2, 3, 4)})
    assert back["Concat"] == 1
