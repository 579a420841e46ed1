"""Expand and broadcasting to a shape."""

from __future__ import annotations

import numpy as np
import pytest
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


@pytest.mark.parametrize("dtype", ["float32", "int64", "int32", "bool"])
@pytest.mark.parametrize("shape", [(), (1, 1)], ids=str)
def test_one_element_in_all_places(dtype: str, shape: tuple[int, ...]) -> None:
    """FILL takes up to a sixtieth of the time of BROADCAST_TO."""
    nodes = [helper.make_node("Shape", ["x"], ["s"]), helper.make_node("Expand", ["c", "s"], ["y"])]
    constants = {"c": np.full(shape, 3, dtype)}
    type_ = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    model = onnx_model(nodes, [("x", FLOAT, ["A", "B"])], [("y", type_, None)], constants)
    result = onnxtfl.onnx_to_tflite(model, check=False)
    assert result.report.ops_after == {"SHAPE": 1, "FILL": 1}
    for sizes in ((2, 3), (1, 1), (0, 4)):
        assert agrees_on(result.data, model, np.zeros(sizes, np.float32))
