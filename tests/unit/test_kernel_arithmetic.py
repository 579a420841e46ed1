"""Kernels on integers of TFLite models, in LiteRT and, converted to ONNX, in ONNX Runtime."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from onnxtfl.ir.data import Array
from tests.harness.litert import run_onnx, run_tflite
from tests.unit.test_quantized_tfl import both, tflite, to_onnx

RNG = np.random.default_rng(5)


def stored(dtype: str, *shape: int) -> Array:
    """Any integers of a type."""
    bounds = np.iinfo(dtype)
    return RNG.integers(bounds.min, bounds.max, shape, dtype, endpoint=True)


def listed(values: Array) -> str:
    """The elements of a constant as text."""
    return ", ".join(map(str, values.ravel()))


def test_the_basic_lstm_has_a_bias_of_int32() -> None:
    """Its third operand after the input is called weights in the signature, and hidden states are uint8."""
    states = ["tensor<2x4xfloat32, quant<uint8 0.0078125:128>>", "tensor<2x4xfloat32, quant<int16 0.00048828125:0>>"]
    text = f"""
    graph main(%x: tensor<2x3xfloat32, quant<uint8 0.0078125:128>>, %h: {states[0]}, %c: {states[1]}) -> (%a, %b) {{
      %w = constant tensor<16x7xfloat32, quant<uint8 0.02:120>> [{listed(stored("uint8", 16, 7))}]
      %bias = constant tensor<16xfloat32, quant<int32 0.00015625:0>> [{listed(RNG.integers(-3000, 3000, 16))}]
      %a, %b, %s, %t = tfl.LSTM@2(%x, %h, %w, %bias, %c) {{fused_activation_function = "TANH", cell_clip = 0.0,
        proj_clip = 0.0, kernel_type = "BASIC", asymmetric_quantize_inputs = false}} : {states[0]}, {states[1]},
        tensor<2x7xfloat32, quant<uint8 0.0078125:128>>, tensor<2x16xfloat32, quant<int16 0.000244140625:0>>
    }}"""
    inputs = [stored("uint8", 2, 3), stored("uint8", 2, 4), RNG.integers(-9000, 9000, (2, 4), np.int16)]
    data = tflite(text)
    wanted = [array for _, array in run_tflite(data, inputs, kernels="builtin")]
    model = to_onnx(data)
    names = [v.name for v in onnx.load_from_string(model).graph.input]
    hidden, cell = run_onnx(model, dict(zip(names, inputs, strict=True))).values()
    assert np.abs(np.subtract(hidden, wanted[0], dtype=int)).max() <= 1
    assert np.abs(np.subtract(cell, wanted[1], dtype=int)).max() <= 4


@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize(("x", "w"), [("float32, quant<int8 0.02:3>", "float32, quant<int8 0.05:5>"), ("int8", "int8")])
def test_products_of_int8_matrices_in_int32(x: str, w: str, constant: bool) -> None:
    """The kernel sums products of stored integers, without scales and zero points."""
    weights = stored("int8", 2, 16, 5)
    text = f"""
    graph main(%x: tensor<2x3x16x{x}>{"" if constant else f", %w: tensor<2x16x5x{w}>"}) -> (%y) {{
      {f"%w = constant tensor<2x16x5x{w}> [{listed(weights)}]" if constant else ""}
      %y = tfl.BATCH_MATMUL@2(%x, %w) {{adj_x = false, adj_y = false, asymmetric_quantize_inputs = false}} :
        tensor<2x3x5xint32>
    }}"""
    wanted, found = both(text, stored("int8", 2, 3, 16), *([] if constant else [weights]))
    np.testing.assert_array_equal(found, wanted)
