"""Models that ONNX Runtime optimized for one machine: channels in blocks, whose size the weights show or do not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper, parser

import onnxtfl
from onnxtfl.errors import UnsupportedError
from tests.harness.litert import Array, run_onnx, run_tflite
from tests.unit.test_microsoft_ops import made, normal

NCHWC = "com.microsoft.nchwc"
NET = """<ir_version: 8, opset_import: ["" : 17]>
net (float[1, 3, 16, 16] x) => (float[1, 40, 16, 16] y, float[1, 16, 16, 20] z) {
  a = Conv <pads = [1, 1, 1, 1]> (x, w0, b0)
  a1 = Relu (a)
  d = Conv <pads = [1, 1, 1, 1], group = 20> (a1, w1)
  d1 = Clip (d, zero, six)
  p = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (d1)
  q = AveragePool <kernel_shape = [2, 2], strides = [2, 2]> (d1)
  s = Add (p, q)
  c = Conv (s, w2, b0)
  r = Add (c, s)
  u = Resize <mode = "nearest", nearest_mode = "floor", coordinate_transformation_mode = "asymmetric"> (r, , scales)
  g = GlobalAveragePool (r)
  h = Sigmoid (g)
  m = Mul (u, h)
  y = Concat <axis = 1> (m, d1)
  z = Transpose <perm = [0, 2, 3, 1]> (d1)
}"""


def optimized(tmp_path: Path) -> tuple[bytes, bytes]:
    """A network, and what ONNX Runtime makes of it on this machine at its highest level."""
    model = parser.parse_model(NET)
    weights = {"w0": normal(20, 3, 3, 3), "b0": normal(20), "w1": normal(20, 1, 3, 3), "w2": normal(20, 20, 1, 1)}
    weights |= {"zero": np.float32(0), "six": np.float32(6), "scales": np.array([1, 1, 2, 2], np.float32)}
    model.graph.initializer.extend(numpy_helper.from_array(np.asarray(a), name) for name, a in weights.items())
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.optimized_model_filepath = str(tmp_path / "optimized.onnx")
    onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return model.SerializeToString(), (tmp_path / "optimized.onnx").read_bytes()


def test_a_network_in_the_layout_of_this_machine(tmp_path: Path) -> None:
    plain, model = optimized(tmp_path)
    if NCHWC not in {node.domain for node in onnx.load_from_string(model).graph.node}:
        pytest.skip("ONNX Runtime has no such layout for this machine")
    x = {"x": normal(1, 3, 16, 16)}
    found = run_tflite(onnxtfl.onnx_to_tflite(model, check=False).data or b"", x)
    for (name, wanted), (_, got) in zip(run_onnx(plain, x).items(), found, strict=True):
        np.testing.assert_allclose(got, wanted, atol=1e-4, err_msg=name)


def in_blocks(weights: Array, block: int) -> Array:
    """[o, i, h, w] as the optimizer stores it, with zeros after its channels."""
    rows, columns, height, width = weights.shape
    alone = columns < block
    padded = np.zeros((-(-rows // block) * block, columns if alone else -(-columns // block) * block, height, width))
    padded[:rows, :columns] = weights
    if alone:
        parts = padded.reshape(-1, block, columns, height, width).transpose(0, 2, 3, 4, 1)
    else:
        parts = padded.reshape(-1, block, padded.shape[1] // block, block, height, width).transpose(0, 2, 4, 5, 3, 1)
    return np.ascontiguousarray(parts).reshape(padded.shape).astype(np.float32)


def blocked(block: int, channels: int, inputs: int = 20) -> tuple[bytes, Array]:
    """ReorderInput, Conv and ReorderOutput, and the weights of the convolution."""
    weights = normal(channels, inputs, 3, 3)
    nodes = [
        helper.make_node("ReorderInput", ["x"], ["r"], domain=NCHWC),
        helper.make_node("Conv", ["r", "w"], ["c"], domain=NCHWC, pads=[1, 1, 1, 1], activation="Relu"),
        helper.make_node("ReorderOutput", ["c"], ["y"], domain=NCHWC, channels=channels),
    ]
    shapes = [("x", [1, inputs, 6, 6]), ("y", [1, channels, 6, 6])]
    x, y = (helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape) for name, shape in shapes)
    graph = helper.make_graph(nodes, "g", [x], [y], [numpy_helper.from_array(in_blocks(weights, block), "w")])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(NCHWC, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString(), weights


@pytest.mark.parametrize("block", [8, 16])
@pytest.mark.parametrize(("channels", "inputs"), [(24, 32), (32, 20), (20, 48)])
def test_weights_that_show_the_size_of_blocks(block: int, channels: int, inputs: int) -> None:
    model, weights = blocked(block, channels, inputs)
    x = {"x": normal(1, inputs, 6, 6)}
    plain = made("Conv", x, 1, {"w": weights}, domain="", pads=[1, 1, 1, 1])
    found = run_tflite(onnxtfl.onnx_to_tflite(model, check=False).data or b"", x)[0][1]
    np.testing.assert_allclose(found, np.maximum(run_onnx(plain, x)["y0"], 0), atol=1e-4)


@pytest.mark.parametrize("block", [8, 16])
def test_weights_that_do_not_show_it(block: int) -> None:
    with pytest.raises(UnsupportedError, match=r"blocks of 8 or 16.*ORT_ENABLE_EXTENDED"):
        onnxtfl.onnx_to_tflite(blocked(block, 32, 64)[0], check=False)
