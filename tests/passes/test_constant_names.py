"""Constants of the result have the names of the source's weights, or those of what they are for."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto, helper

import onnxtfl
from onnxtfl.formats.onnx.reader import read as read_onnx
from onnxtfl.formats.tflite.reader import read as read_tflite
from onnxtfl.ir.graph import Graph
from tests.unit.tiny_models import onnx_model


def convolution() -> bytes:
    """x -> Conv(w) -> BatchNormalization -> Relu -> y."""
    vectors = {name: np.full(4, 0.5, np.float32) for name in ("scale", "shift", "mean", "variance")}
    constants = {"conv.w": np.ones((4, 3, 2, 2), np.float32), **vectors}
    nodes = [
        helper.make_node("Conv", ["x", "conv.w"], ["c"]),
        helper.make_node("BatchNormalization", ["c", "scale", "shift", "mean", "variance"], ["b"]),
        helper.make_node("Relu", ["b"], ["y"]),
    ]
    x, y = ("x", TensorProto.FLOAT, (1, 3, 5, 5)), ("y", TensorProto.FLOAT, (1, 4, 4, 4))
    return onnx_model(nodes, [x], [y], constants).SerializeToString()


def constants(graph: Graph) -> set[str | None]:
    return {
        v.name
        for node in graph.nodes
        for v in node.operands
        if v is not None and v.data is not None and v.data.size > 1 and v.dtype.is_float
    }


def test_a_fused_weight_has_the_name_of_the_weight_that_it_was_computed_from() -> None:
    made = onnxtfl.onnx_to_tflite(convolution(), check=False).data or b""
    names = constants(read_tflite(made).main)
    assert "conv.w" in names
    (other,) = names - {"conv.w"}
    assert other is not None and other.endswith("/bias")
    again = onnxtfl.tflite_to_onnx(made, check=False).data or b""
    assert constants(read_onnx(again).main) == names


def test_equal_models_have_equal_bytes() -> None:
    assert onnxtfl.onnx_to_tflite(convolution(), check=False).data == onnxtfl.onnx_to_tflite(convolution()).data
