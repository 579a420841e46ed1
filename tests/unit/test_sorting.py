"""Sorting, boundaries and the largest elements."""

from __future__ import annotations

import numpy as np
from onnx import parser

import onnxtfl
from tests.harness.litert import run_onnx, run_tflite
from tests.unit.test_quantized_tfl import tflite
from tests.unit.tflite_files import assert_converts_alike


def test_nan_is_above_all_boundaries() -> None:
    text = """
    graph main(%x: tensor<4xfloat32>) -> (%y) {
      %y = tfl.BUCKETIZE@1(%x) {boundaries = [0.0, 1.0]} : tensor<4xint32>
    }"""
    assert_converts_alike(tflite(text), np.asarray([np.nan, -1, 0, 2], np.float32))


def test_the_largest_bytes_of_rows_of_open_axes() -> None:
    """LiteRT's TOPK_V2 of int8 is correct for matrices."""
    model = parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 17]> g (int8[n, m, k] x) => (int8[n, m, 2] y, int64[n, m, 2] i)
        <int64[1] two = {2}> { y, i = TopK (x, two) }"""
    )
    data = onnxtfl.onnx_to_tflite(model, check=False).data
    for shape in ((2, 3, 5), (1, 1, 2)):
        x = np.random.default_rng(0).permutation(60)[: np.prod(shape)].reshape(shape).astype(np.int8)
        expected = run_onnx(model.SerializeToString(), {"x": x})
        for name, array in run_tflite(data, {"x": x}):
            np.testing.assert_array_equal(array, expected[name])
