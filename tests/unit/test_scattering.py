"""ScatterND and other writes at given positions."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto, helper

import onnxtfl
from tests.unit.tiny_models import onnx_model

FLOAT = TensorProto.FLOAT


def test_factors_for_rows_of_open_size() -> None:
    constants = {"at": np.array([[0, 1], [1, 0], [0, 1]], np.int64), "by": np.array([2, 3, 5], np.float32)}
    model_inputs = [("x", FLOAT, ["N", "M"])]
    node = helper.make_node("ScatterND", ["x", *constants], ["y"], reduction="mul")
    model = onnx_model([node], model_inputs, [("y", FLOAT, None)], constants)
    assert "UNSORTED_SEGMENT_PROD" in onnxtfl.onnx_to_tflite(model, check="require").report.ops_after
