"""Options of TFLite ops in the values that kernels treat otherwise than the option says."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import onnxtfl
from onnxtfl.errors import UnsupportedError
from onnxtfl.ir.data import Array
from tests.harness.litert import run_onnx, run_tflite
from tests.unit.test_quantized_tfl import both, tflite
from tests.unit.tfl_states import int8_lstm

for module in ("onnxruntime", "ai_edge_litert"):
    pytest.importorskip(module, reason=f"{module} is not installed")

RNG = np.random.default_rng(0)


def _numbers(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("activation", ["NONE", "RELU", "RELU6", "RELU_N1_TO_1", "TANH", "SIGN_BIT"])
def test_hybrid_products_have_each_activation(activation: str) -> None:
    """The kernel for real inputs and integer weights applies TANH and SIGN_BIT, which others ignore."""
    weights = ", ".join(map(str, RNG.integers(-127, 128, 20)))
    text = f"""
    graph main(%x: tensor<3x4xfloat32>) -> (%y) {{
      %w = constant tensor<5x4xfloat32, quant<int8 0.02:0>> [{weights}]
      %y = tfl.FULLY_CONNECTED@3(%x, %w, _) {{fused_activation_function = "{activation}"}} : tensor<3x5xfloat32>
    }}"""
    wanted, found = both(text, _numbers(3, 4))
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


def _lstm(options: str) -> str:
    matrices = [f"%{n}{i} = constant tensor<3x3xfloat32> {_numbers(9).tolist()}" for n in "wr" for i in range(4)]
    biases = [f"%b{i} = constant tensor<3xfloat32> {_numbers(3).tolist()}" for i in range(4)]
    given = ", ".join([*(f"%{n}{i}" for n in "wr" for i in range(4)), "_, _, _", *(f"%b{i}" for i in range(4))])
    return f"""graph main(%x: tensor<1x5x3xfloat32>) -> (%y) {{
     state %h: tensor<1x3xfloat32> -> %h
     state %c: tensor<1x3xfloat32> -> %c
     {chr(10).join(matrices + biases)}
     %y = tfl.UNIDIRECTIONAL_SEQUENCE_LSTM@1(%x, {given}, _, _, %h, %c, _, _, _, _) {{{options}}} : \
tensor<1x5x3xfloat32>
    }}"""


def _first_run(text: str, x: Array) -> tuple[Array, Array]:
    """The output of LiteRT, and of the model converted to ONNX, whose states are 0."""
    data = tflite(text)
    ((_, wanted),) = run_tflite(data, [x], kernels="builtin")
    model = onnxtfl.tflite_to_onnx(data, check=False).data
    given = {}
    for value in onnx.load_from_string(model).graph.input:
        type_ = value.type.tensor_type
        zeros = np.zeros([d.dim_value for d in type_.shape.dim], onnx.helper.tensor_dtype_to_np_dtype(type_.elem_type))
        given[value.name] = x if value.name == "x" else zeros
    return wanted, next(iter(run_onnx(model, given).values()))


def test_outputs_of_lstms_without_projection_are_not_clipped() -> None:
    """CalculateLstmOutputFloat clips what the projection returns."""
    text = _lstm('fused_activation_function = "TANH", proj_clip = 0.05')
    wanted, found = _first_run(text, _numbers(1, 5, 3))
    assert np.abs(wanted).max() > 0.1
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


def test_lstms_whose_kernel_reads_what_it_did_not_write_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="without activation"):
        onnxtfl.tflite_to_onnx(tflite(_lstm('fused_activation_function = "NONE"')), check=False)


@pytest.mark.parametrize("activation", ["NONE", "RELU", "SIGN_BIT"])
def test_integer_lstms_compute_tanh(activation: str) -> None:
    """LstmStepInteger8x8_16 has no activation."""
    text = int8_lstm("0.0078125:0", "0.0078125:0").replace('"TANH"', f'"{activation}", proj_clip = 0.01')
    x = RNG.integers(-128, 128, (1, 3, 3)).astype(np.int8)
    wanted, found = _first_run(text, x)
    assert np.abs(found.astype(int) - wanted).max() <= 1


def test_an_onnx_lstm_without_activations_is_no_kernel_of_a_layer() -> None:
    node = onnx.helper.make_node(
        "LSTM", ["x", "w", "r"], ["y"], hidden_size=3, activations=["Sigmoid", "Affine", "Affine"],
        activation_alpha=[1.0, 1.0], activation_beta=[0.0, 0.0],
    )  # fmt: skip
    info, make = onnx.helper.make_tensor_value_info, onnx.numpy_helper.from_array
    weights = [make(_numbers(1, 12, 3) / 4, name) for name in "wr"]
    graph = onnx.helper.make_graph(
        [node], "g", [info("x", 1, [60, 1, 3])], [info("y", 1, [60, 1, 1, 3])], initializer=weights
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    assert onnxtfl.onnx_to_tflite(model.SerializeToString(), check="require").data


_REFUSED = {
    "fused activation RELU": 'tfl.CONCATENATION@1(%x, %x) {axis = 0, fused_activation_function = "RELU"}',
    "num_bits 100": "tfl.FAKE_QUANT@1(%x) {min = 0.0, max = 1.0, num_bits = 100}",
    "new_axis_mask 10 has bits": "tfl.STRIDED_SLICE@1(%x, %b, %e, %o) {new_axis_mask = 10}",
}


@pytest.mark.parametrize("message", _REFUSED)
def test_options_that_kernels_refuse_or_misread_are_refused(message: str) -> None:
    text = f"""
    graph main(%x: tensor<2x3x4xfloat32>) -> (%y) {{
      %b = constant tensor<2xint32> [0, 0]
      %e = constant tensor<2xint32> [2, 2]
      %o = constant tensor<2xint32> [1, 1]
      %y = {_REFUSED[message]} : tensor<*xfloat32>
    }}"""
    with pytest.raises(UnsupportedError, match=message):
        onnxtfl.tflite_to_onnx(tflite(text), check=False)


def test_sizes_that_a_transposed_convolution_does_not_have_are_cropped_and_reported() -> None:
    """As in tflite-runtime 2.14; LiteRT's kernel refuses them, XNNPACK returns 10 x 10."""
    text = f"""
    graph main(%x: tensor<1x4x4x1xfloat32>) -> (%y) {{
      %n = constant tensor<4xint32> [1, 8, 8, 1]
      %f = constant tensor<1x4x4x1xfloat32> {[0.5] * 16}
      %y = tfl.TRANSPOSE_CONV@1(%n, %f, %x) {{padding = "VALID", stride_w = 2, stride_h = 2}} : tensor<1x8x8x1xfloat32>
    }}"""
    made = onnxtfl.tflite_to_onnx(tflite(text), check=False)
    assert "8 elements need an operand of 3, not 4" in " ".join(str(made.report).split())
    (found,) = run_onnx(made.data, {"x": np.ones((1, 4, 4, 1), np.float32)}).values()
    assert found.shape == (1, 8, 8, 1)
    assert found[0, 2, 2, 0] == 2.0


# --- parameters of quantized tensors ---------------------------------------------------------------------------------


def test_integer_lstms_read_biases_in_units_of_products_and_weights_without_zero_point() -> None:
    text = int8_lstm("0.0078125:0", "0.0078125:0").replace("int8 0.01:0", "int8 0.01:3").replace("0.0002:0", "0.001:9")
    x = RNG.integers(-128, 128, (1, 3, 3)).astype(np.int8)
    wanted, found = _first_run(text, x)
    assert np.abs(found.astype(int) - wanted).max() <= 1


def test_cell_states_whose_scale_is_no_power_of_two_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="power of two"):
        onnxtfl.tflite_to_onnx(tflite(int8_lstm("0.0078125:0", "0.0078125:0", "0.0003")), check=False)


def test_zero_points_of_hybrid_recurrent_weights_are_ignored() -> None:
    text = """graph main(%x: tensor<2x3xfloat32>) -> (%y) {
     state %h: tensor<2x2xfloat32> -> %h
     %w = constant tensor<2x3xfloat32, quant<int8 0.01:7>> [10, -20, 30, 40, 50, -60]
     %r = constant tensor<2x2xfloat32, quant<int8 0.01:0>> [1, 2, 3, 4]
     %b = constant tensor<2xfloat32> [0.1, 0.2]
     %y = tfl.RNN@2(%x, %w, %r, %b, %h) {fused_activation_function = "TANH"} : tensor<2x2xfloat32>
    }"""
    wanted, found = _first_run(text, _numbers(2, 3))
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("axis", [0, 1])
def test_hybrid_batches_read_a_scale_for_each_column(axis: int) -> None:
    """Whatever axis the file says."""
    values = ", ".join(map(str, RNG.integers(-127, 128, 9)))
    text = f"""graph main(%x: tensor<2x4x3xfloat32>) -> (%y) {{
     %w = constant tensor<3x3xfloat32, quant<int8 axis={axis} 0.01:0 0.02:0 0.03:0>> [{values}]
     %y = tfl.BATCH_MATMUL@4(%x, %w) {{adj_x = false, adj_y = false}} : tensor<2x4x3xfloat32>
    }}"""
    wanted, found = both(text, _numbers(2, 4, 3))
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


_SCALES = {
    "of 5 columns": ("float32", "tensor<3x5xfloat32, quant<int8 axis=0 0.01:0 0.02:0 0.03:0>>", "3x5"),
    "has 4": ("float32, quant<int8 axis=1 0.1:0 0.1:0 0.1:0 0.1:0>", "tensor<3x5xfloat32, quant<int8 0.1:0>>", "3x5"),
}


@pytest.mark.parametrize("message", _SCALES)
def test_batches_with_scales_that_kernels_do_not_read_are_refused(message: str) -> None:
    lhs, rhs, _ = _SCALES[message]
    result = "float32" if lhs == "float32" else "float32, quant<int8 0.1:0>"
    text = f"""graph main(%x: tensor<2x4x3x{lhs}>) -> (%y) {{
     %w = constant {rhs} {list(range(15))}
     %y = tfl.BATCH_MATMUL@4(%x, %w) {{adj_x = false, adj_y = false}} : tensor<2x4x5x{result}>
    }}"""
    with pytest.raises(UnsupportedError, match=message):
        onnxtfl.tflite_to_onnx(tflite(text), check=False)


def test_small_integers_without_scale_are_not_dequantized() -> None:
    """The kernel multiplies them by 0."""
    text = """graph main(%x: tensor<4xfloat32>) -> (%z) {
     %w = constant tensor<4xint4> [1, 2, -3, 4]
     %y = tfl.DEQUANTIZE@6(%w) : tensor<4xfloat32>
     %z = tfl.ADD@1(%x, %y) : tensor<4xfloat32>
    }"""
    with pytest.raises(UnsupportedError, match="no scale"):
        onnxtfl.tflite_to_onnx(tflite(text), check=False)
