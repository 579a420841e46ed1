"""What is computed from weights before run time may enlarge a model a little; weights of few bits stay so."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import onnxtfl
from onnxtfl.formats.tflite.reader import read


def _model(weight: np.ndarray, table: np.ndarray, places: np.ndarray) -> onnx.ModelProto:
    """x W plus biases of attention: a row of the table for each pair of places."""
    nodes = [
        helper.make_node("Cast", ["w"], ["wide"], to=TensorProto.FLOAT),
        helper.make_node("MatMul", ["x", "wide"], ["product"]),
        helper.make_node("Gather", ["table", "places"], ["biases"], axis=0),
        helper.make_node("Transpose", ["biases"], ["moved"], perm=[2, 0, 1]),
        helper.make_node("Mul", ["product", "moved"], ["y"]),
    ]
    weights = [numpy_helper.from_array(a, name) for a, name in ((weight, "w"), (table, "table"), (places, "places"))]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, len(places), len(weight)])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "g", [x], [y], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def _ops(model: onnx.ModelProto) -> set[str]:
    data = onnxtfl.onnx_to_tflite(model).data
    assert data is not None
    return {node.op.name.removeprefix("tfl.") for node in read(data).main.nodes}


def test_biases_of_attention_are_computed_before_run_time() -> None:
    """24 kB of 290 kB of weights: the kernels of GATHER and TRANSPOSE would compute them in each run."""
    random = np.random.default_rng(0)
    places = random.integers(0, 49, (39, 39))
    found = _ops(_model(random.random((1900, 39), np.float32), random.random((49, 4), np.float32), places))
    assert not found & {"GATHER", "GATHER_ND", "TRANSPOSE"}


def test_biases_that_would_enlarge_the_model_much_are_not() -> None:
    random = np.random.default_rng(0)
    places = random.integers(0, 49, (39, 39))
    assert "GATHER" in _ops(_model(random.random((200, 39), np.float32), random.random((49, 4), np.float32), places))


def test_weights_in_float16_stay_so() -> None:
    """XNNPACK widens them when it loads the model."""
    random = np.random.default_rng(0)
    places = random.integers(0, 49, (39, 39))
    weight, table = random.random((240, 39)).astype(np.float16), random.random((24000, 4), np.float32)
    assert "DEQUANTIZE" in _ops(_model(weight, table, places))
