"""`io_layout`: images of inputs and outputs in the axis order that the caller has, in both directions."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import onnxtfl
from onnxtfl.errors import UsageError

CONV = """<ir_version: 8, opset_import: ["" : 17]>
  g (float[N,4,4,4] x, float[2,3] v) => (float[N,4,4,4] y, float[2,3] z) <float[4,4,3,3] w> {
    %s  y = Relu (c)
    z = Neg (v)
}"""
QUANTIZE = """one = Constant <value = int8 {0}> ()
    s = Constant <value = float {0.05}> ()
    q = QuantizeLinear (x, s, one)
    d = DequantizeLinear (q, s, one)
    k = QuantizeLinear (w, s, one)
    f = DequantizeLinear (k, s, one)
    e = Conv <pads = [1, 1, 1, 1]> (d, f)
    p = QuantizeLinear (e, s, one)
    c = DequantizeLinear (p, s, one)"""


def source(*, quantized: bool = False, **options: object) -> bytes:
    """A .tflite of a convolution of an image whose axes are all 4 long: its sizes do not tell its layout."""
    body = QUANTIZE if quantized else "c = Conv <pads = [1, 1, 1, 1]> (x, w)"
    model = onnx.parser.parse_model(CONV.replace("%s", body))
    weights = np.random.default_rng(0).standard_normal((4, 4, 3, 3)).astype(np.float32)
    model.graph.initializer.append(onnx.numpy_helper.from_array(weights, "w"))
    data = onnxtfl.onnx_to_tflite(model, check=False, io_layout="channels-last", **options).data  # type: ignore[arg-type]
    assert data is not None
    return data


def converted(data: bytes, layout: object, **options: object) -> onnx.ModelProto:
    """The checked ONNX model."""
    result = onnxtfl.tflite_to_onnx(data, io_layout=layout, check="require", **options)  # type: ignore[arg-type]
    assert result.data is not None
    return onnx.load_from_string(result.data)


def transposes(model: onnx.ModelProto) -> int:
    return sum(node.op_type == "Transpose" for node in model.graph.node)


@pytest.mark.parametrize("quantized", [False, True])
def test_the_images_of_a_tflite_become_channels_first_without_a_transpose(quantized: bool) -> None:
    data = source(quantized=quantized)
    assert transposes(converted(data, "source")) == 2
    moved = converted(data, "channels-first")
    assert transposes(moved) == 0
    assert [d.dim_param or d.dim_value for d in moved.graph.input[0].type.tensor_type.shape.dim][1:] == [4, 4, 4]


def test_only_what_is_named_is_moved() -> None:
    assert transposes(converted(source(), {"x": "channels-first"})) == 1
    assert transposes(converted(source(), {"*": "channels-first", "x": "source"})) == 1


def test_a_quantized_input_is_moved_too() -> None:
    data = source(quantized=True, quantized_io="int8")
    moved = converted(data, "channels-first")
    assert transposes(moved) == 0
    assert moved.graph.input[0].type.tensor_type.elem_type in (onnx.TensorProto.INT8, onnx.TensorProto.UINT8)


def test_there_and_back_is_the_same_layout() -> None:
    """Channels-first of TFLite is what channels-last of ONNX was; asked for what it has, a model stays as it is."""
    data = source()
    again = converted(data, "channels-first")
    assert transposes(converted(onnxtfl.onnx_to_tflite(again, check=False).data or b"", "channels-first")) == 0
    kept = onnxtfl.onnx_to_tflite(again, check="require", io_layout="channels-first")
    same = onnxtfl.onnx_to_tflite(again, check="require")
    assert kept.report.ops_after == same.report.ops_after


def test_a_name_that_the_model_has_not() -> None:
    with pytest.raises(UsageError, match="no input or output 'X'"):
        converted(source(), {"X": "channels-first"})
    with pytest.raises(UsageError, match="io_layout"):
        converted(source(), {"x": "NCHW"})


def test_the_record_has_the_axes_of_constant_outputs_in_another_type() -> None:
    """A folded float64 output of 4 axes becomes float32, and channels-last."""
    constants = [numpy_helper.from_array(np.arange(40.0).reshape(8, 1, 1, 5), "w")]
    result = helper.make_tensor_value_info("y", TensorProto.DOUBLE, [8, 1, 1, 5])
    graph = helper.make_graph([helper.make_node("Neg", ["w"], ["y"])], "g", [], [result], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    made = onnxtfl.onnx_to_tflite(model.SerializeToString(), check=False, io_layout="channels-last")
    assert ("y", (0, 2, 3, 1)) in [(entry.target, entry.permutation) for entry in made.record.tensors]
