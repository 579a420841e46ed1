"""Sorting, boundaries and the largest elements."""

from __future__ import annotations

import numpy as np

from tests.unit.test_quantized_tfl import tflite
from tests.unit.tflite_files import assert_converts_alike


def test_nan_is_above_all_boundaries() -> None:
    text = """
    graph main(%x: tensor<4xfloat32>) -> (%y) {
      %y = tfl.BUCKETIZE@1(%x) {boundaries = [0.0, 1.0]} : tensor<4xint32>
    }"""
    assert_converts_alike(tflite(text), np.asarray([np.nan, -1, 0, 2], np.float32))
