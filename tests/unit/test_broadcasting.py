"""Expand and broadcasting to a shape."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto, helper

import onnxtfl
from tests.unit.onnx_nodes import agrees_on
from tests.unit.tiny_models import onnx_model

FLOAT = TensorProto.FLOAT


def test_a_constant_is_expanded_to_the_shape_of_another_tensor_that_may_have_ones() -> None:
    nodes = [helper.make_node("Shape", ["x"], ["s"]), helper.make_node("Expand", ["c", "s"], ["y"])]
    constants = {"c": np.arange(6, dtype=np.float32).reshape(6, 1)}
    model = onnx_model(nodes, [("x", FLOAT, ["A", "B"])], [("y", FLOAT, None)], constants)
    result = onnxtfl.onnx_to_tflite(model, check=False).data
    assert agrees_on(result, model, np.zeros((1, 3), np.float32))
    assert agrees_on(result, model, np.zeros((6, 2), np.float32))
