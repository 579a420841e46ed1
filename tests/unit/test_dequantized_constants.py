"""Dequantized constants; outputs that are such ones: XNNPACK writes nothing to them unless an op reads the constant."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper, parser

import onnxtfl
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


@pytest.mark.parametrize(
    "body",
    [
        "r = Expand (d, sizes)  q = QuantizeLinear (r, s, z)  y = DequantizeLinear (q, s, z)",
        "r = Gather (d, ids)  q = QuantizeLinear (r, s, z)  y = DequantizeLinear (q, s, z)",
        "r = Concat <axis = 0> (xd, d)  q = QuantizeLinear (r, s, z)  y = DequantizeLinear (q, s, z)",
        "y = Gather (d, ids)",
    ],
    ids=["Expand", "Gather", "Concat", "real"],
)
def test_int32_constants_are_not_moved_as_integers(body: str) -> None:
    """A bias of which another op reads the elements: no kernel dequantizes int32, other than as a constant."""
    text = f"""<ir_version: 8, opset_import: ["" : 17]> g (float[3] x, int64[2] ids) => (float[?] p, float y)
      <int32[3] b = {{1000, -20, 3}}, float sb = {{0.001}}, float s = {{0.01}}, int8 z = {{3}},
       int64[2] sizes = {{2, 3}}> {{
        xq = QuantizeLinear (x, s, z)  xd = DequantizeLinear (xq, s, z)  p = Identity (xd)
        d = DequantizeLinear (b, sb)  {body} }}"""
    model = parser.parse_model(text)
    model.graph.output[1].type.tensor_type.ClearField("shape")
    conversion = onnxtfl.onnx_to_tflite(model)
    assert conversion.check is not None and conversion.check.status == "passed"


@pytest.mark.parametrize("zero", [0, 5])
@pytest.mark.parametrize("last", ["y = Neg (g)", "q = QuantizeLinear (g, s, z)  y = DequantizeLinear (q, s, z)"])
def test_rows_of_a_table_of_16_bits_with_a_zero_point(zero: int, last: str) -> None:
    """No kernel quantizes to int16 with a zero point, or dequantizes it."""
    model = parser.parse_model(
        f"""<ir_version: 10, opset_import: ["" : 21]> g (int64[4] i) => (float[4, 3] y)
      <float s = {{0.01}}, int16 z = {{{zero}}}, int16[2, 3] w = {{1, 2, 3, 4, 5, 6}}>
      {{ d = DequantizeLinear (w, s, z)  g = Gather (d, i)  {last} }}"""
    )
    converted = onnx_to_tflite(model, check="require")
    assert converted.check is not None
    assert converted.check.ok
