"""Outputs that are dequantized constants: XNNPACK writes nothing to them unless an op reads the constant."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxtfl import onnx_to_tflite


def dequantized(count: int) -> onnx.ModelProto:
    arrays = {"w": np.arange(count).astype(np.int8), "s": np.float32(0.5), "z": np.int8(3)}
    node = helper.make_node("DequantizeLinear", list(arrays), ["y"])
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, [count])
    constants = [numpy_helper.from_array(np.asarray(array), name) for name, array in arrays.items()]
    graph = helper.make_graph([node], "g", [], [result], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


@pytest.mark.parametrize("count", [4, 100_000])
def test_an_output_that_is_a_dequantized_constant(count: int) -> None:
    converted = onnx_to_tflite(dequantized(count), check="require")
    assert converted.check is not None
    assert converted.check.ok
