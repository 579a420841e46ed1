"""Models that ONNX Runtime's optimizer saved (`SessionOptions.optimized_model_filepath`), at each of its levels."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import onnxruntime
import pytest
from onnx import numpy_helper

import onnxtfl
from onnxtfl.errors import UnsupportedError
from tests.unit.lifting import Array, floats

BLOCK = """<ir_version: 7, opset_import: ["" : %d]>
block (float[2, 4, 8] x) => (float[2, 4, 8] y) {
  q0 = MatMul (x, wq)
  q1 = Add (q0, bq)
  k0 = MatMul (x, wk)
  v0 = MatMul (x, wv)
  kt = Transpose <perm = [0, 2, 1]> (k0)
  s0 = MatMul (q1, kt)
  s1 = Div (s0, root)
  p = Softmax <axis = -1> (s1)
  a = MatMul (p, v0)
  r = Add (a, x)
  mean = ReduceMean <axes = [-1]> (r)
  d = Sub (r, mean)
  d2 = Pow (d, two)
  var = ReduceMean <axes = [-1]> (d2)
  var1 = Add (var, eps)
  dev = Sqrt (var1)
  n = Div (d, dev)
  n1 = Mul (n, scale)
  n2 = Add (n1, shift)
  f = MatMul (n2, wf)
  f1 = Add (f, bf)
  e0 = Div (f1, sqrt2)
  e1 = Erf (e0)
  e2 = Add (e1, one)
  e3 = Mul (f1, e2)
  g = Mul (e3, half)
  h = MatMul (g, wo)
  y = Add (h, n2)
}"""
NUMBERS = {"root": 8**0.5, "two": 2, "eps": 1e-5, "sqrt2": 2**0.5, "one": 1, "half": 0.5}
LEVELS = {"basic": "BASIC", "extended": "EXTENDED", "all": "ALL"}


def transformer(opset: int) -> bytes:
    """Attention of one head, a layer normalization and two dense layers with GELU, as exporters write them."""
    weights = {name: floats(8, 8, seed=i) * np.float32(0.3) for i, name in enumerate(("wq", "wk", "wv"))}
    weights |= {"bq": floats(8), "scale": floats(8, seed=1), "shift": floats(8, seed=2), "bf": floats(16, seed=3)}
    weights |= {"wf": floats(8, 16, seed=4), "wo": floats(16, 8, seed=5)}
    return completed(BLOCK % opset, weights | {name: np.float32(x) for name, x in NUMBERS.items()})


def completed(text: str, constants: dict[str, Array]) -> bytes:
    model = onnx.parser.parse_model(text)
    model.graph.initializer.extend(numpy_helper.from_array(np.asarray(a), name) for name, a in constants.items())
    return bytes(model.SerializeToString())


def optimized(model: bytes, level: str, folder: Path) -> bytes:
    """`model` as ONNX Runtime's optimizer saves it."""
    options, path = onnxruntime.SessionOptions(), folder / "optimized.onnx"
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, f"ORT_ENABLE_{LEVELS[level]}")
    options.optimized_model_filepath, options.log_severity_level, options.intra_op_num_threads = str(path), 4, 1
    onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return path.read_bytes()


def ops_of(model: bytes) -> set[str]:
    return {node.op_type for node in onnx.load_from_string(model).graph.node}


def passed(model: bytes) -> onnxtfl.Conversion:
    done = onnxtfl.onnx_to_tflite(model, check="require")
    assert done.check is not None
    assert done.check.status == "passed"
    return done


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("opset", [13, 17])
def test_a_transformer_block(opset: int, level: str, tmp_path: Path) -> None:
    """The optimizer writes LayerNormalization into models of opsets that do not have it yet, too."""
    model = optimized(transformer(opset), level, tmp_path)
    if level != "basic":
        assert ops_of(model) >= {"Gelu", "FusedMatMul"}
        assert not ops_of(model).isdisjoint({"LayerNormalization", "SkipLayerNormalization"})
    passed(model)


QUANTIZED = """<ir_version: 7, opset_import: ["" : 13]>
net (uint8[1, 3, 8, 8] x) => (uint8[1, 4, 1, 1] y) {
  a = QLinearConv <pads = [1, 1, 1, 1]> (x, s, z, w, ws, wz, s, z, b)
  m = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (a)
  y = com.microsoft.QLinearGlobalAveragePool <channels_last = 0> (m, s, z, s, z)
}"""


def test_a_quantized_network_whose_tensors_became_channels_last(tmp_path: Path) -> None:
    """Only the input of the model is transposed: TFLite's kernels are channels-last too."""
    weights = np.random.default_rng(0).integers(-128, 128, (4, 3, 3, 3)).astype(np.int8)
    scales = {"s": np.float32(0.05), "z": np.uint8(120), "ws": np.float32(0.01), "wz": np.int8(0)}
    text = QUANTIZED.replace('["" : 13]', '["" : 13, "com.microsoft" : 1]')
    source = completed(text, {"w": weights, "b": np.arange(4, dtype=np.int32), **scales})
    model = optimized(source, "all", tmp_path)
    assert "NhwcMaxPool" in ops_of(model)
    ops = passed(model).report.ops_after
    assert ops["CONV_2D"] == ops["MAX_POOL_2D"] == ops["TRANSPOSE"] == 1


def test_weights_in_the_layout_of_one_machine_are_refused(tmp_path: Path) -> None:
    """Blocks of channels have the size of that machine's vectors, which the file does not say."""
    header = '<ir_version: 7, opset_import: ["" : 13]>'
    text = "net (float[1, 16, 8, 8] x) => (float[1, 16, 6, 6] y) { y = Conv (x, w) }"
    model = optimized(completed(header + text, {"w": floats(16, 16, 3, 3)}), "all", tmp_path)
    if "ReorderOutput" not in ops_of(model):
        pytest.skip("ONNX Runtime has no such layout for this machine")
    with pytest.raises(UnsupportedError, match="ORT_ENABLE_EXTENDED"):
        onnxtfl.onnx_to_tflite(model, check=False)
