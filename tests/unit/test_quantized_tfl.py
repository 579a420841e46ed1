"""Quantized TFLite ops, as text, in LiteRT's own kernels and, converted to ONNX, in ONNX Runtime."""

from __future__ import annotations

import io
import json
from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

import onnxtfl
from onnxtfl.errors import InvalidModelError, OnnxtflError
from onnxtfl.formats.tflite import writer
from onnxtfl.ir.data import Array
from onnxtfl.ir.model import Model
from onnxtfl.ir.text import parse_graph
from onnxtfl.options import Options, Quantized
from onnxtfl.pipeline import tflite_to_onnx
from tests.harness.litert import run_onnx, run_tflite

RNG = np.random.default_rng(0)


def tflite(text: str) -> bytes:
    """The .tflite of a graph of tfl ops."""
    file = io.BytesIO()
    writer.write(Model(parse_graph(text)), file)
    return file.getvalue()


def to_onnx(data: bytes, quantized: Quantized = "qdq") -> bytes:
    """Converted to ONNX."""
    file = io.BytesIO()
    tflite_to_onnx(data, file, Options(quantized=quantized))
    return file.getvalue()


def ops_of(model: bytes) -> Counter[str]:
    """The ops of an ONNX model, with their domain."""
    nodes = onnx.load_from_string(model).graph.node
    return Counter(".".join(filter(None, (node.domain, node.op_type))) for node in nodes)


def both(text: str, *inputs: Array, quantized: Quantized = "qdq") -> tuple[Array, Array]:
    """The only output in LiteRT and, converted, in ONNX Runtime."""
    data = tflite(text)
    ((_, wanted),) = run_tflite(data, inputs, kernels="builtin")
    converted = to_onnx(data, quantized)
    names = [v.name for v in onnx.load_from_string(converted).graph.input]
    (found,) = run_onnx(converted, dict(zip(names, inputs, strict=True))).values()
    assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
    return wanted, found


def optimized_ops(model: bytes, folder: Path) -> Counter[str]:
    """The ops that ONNX Runtime runs, after its optimizer."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.optimized_model_filepath = str(folder / "optimized.onnx")
    onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return Counter(node.op_type for node in onnx.load(folder / "optimized.onnx").graph.node)


def _stored(*shape: int, dtype: str = "int8") -> Array:
    bounds = np.iinfo(dtype)
    return RNG.integers(bounds.min, bounds.max, shape, dtype, endpoint=True)


def _numbers(count: int) -> str:
    return ", ".join(map(str, RNG.integers(-127, 128, count)))


_SCALES = {"one scale": "0.02:0", "a scale each": "axis={axis} 0.02:0 0.01:0 0.03:0 0.015:0"}


@pytest.mark.parametrize("scales", _SCALES)
@pytest.mark.parametrize("asymmetric", ["false", "true"])
@pytest.mark.parametrize("shape", [(3, 16), (2, 3, 16)])
def test_hybrid_fully_connected(shape: tuple[int, ...], asymmetric: str, scales: str, tmp_path: Path) -> None:
    """Activations are quantized row by row, at run time; ONNX Runtime must not quantize them once more."""
    keep, sizes = str(len(shape) > 2).lower(), "x".join(map(str, shape))
    text = f"""
    graph main(%x: tensor<{sizes}xfloat32>) -> (%y) {{
      %w = constant tensor<4x16xfloat32, quant<int8 {_SCALES[scales].format(axis=0)}>> [{_numbers(64)}]
      %b = constant tensor<4xfloat32> [1.0, 2.0, 3.0, 4.0]
      %y = tfl.FULLY_CONNECTED@12(%x, %w, %b) {{asymmetric_quantize_inputs = {asymmetric},
        fused_activation_function = "NONE", keep_num_dims = {keep}, weights_format = "DEFAULT"}} :
        tensor<{sizes[:-2]}4xfloat32>
    }}"""
    x = RNG.standard_normal(shape).astype(np.float32)
    x[0] *= 10
    wanted, found = both(text, x)
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)
    assert optimized_ops(to_onnx(tflite(text)), tmp_path)["MatMulNBits"] == 0


def test_hybrid_activations_of_zeros() -> None:
    text = f"""
    graph main(%x: tensor<2x4xfloat32>) -> (%y) {{
      %w = constant tensor<1x4xfloat32, quant<int8 0.02:0>> [{_numbers(4)}]
      %b = constant tensor<1xfloat32> [1.5]
      %y = tfl.FULLY_CONNECTED@3(%x, %w, %b) {{asymmetric_quantize_inputs = false, keep_num_dims = false,
        fused_activation_function = "NONE", weights_format = "DEFAULT"}} : tensor<2x1xfloat32>
    }}"""
    wanted, found = both(text, np.zeros((2, 4), np.float32))
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("scales", _SCALES)
@pytest.mark.parametrize("op", ["CONV_2D", "DEPTHWISE_CONV_2D"])
def test_hybrid_convolutions(op: str, scales: str) -> None:
    """Activations are quantized image by image."""
    kernel, axis, more = ("4x3x3x4", 0, "") if op == "CONV_2D" else ("1x3x3x4", 3, "depth_multiplier = 1,")
    if op == "DEPTHWISE_CONV_2D" and scales == "one scale":
        pytest.skip("the kernel reads a scale for each channel")
    text = f"""
    graph main(%x: tensor<2x6x5x4xfloat32>) -> (%y) {{
      %w = constant tensor<{kernel}xfloat32, quant<int8 {_SCALES[scales].format(axis=axis)}>>
        [{_numbers(144 if op == "CONV_2D" else 36)}]
      %b = constant tensor<4xfloat32> [1.0, 2.0, 3.0, 4.0]
      %y = tfl.{op}@6(%x, %w, %b) {{{more} dilation_h_factor = 1, dilation_w_factor = 1, stride_h = 1, stride_w = 1,
        fused_activation_function = "NONE", padding = "SAME"}} : tensor<2x6x5x4xfloat32>
    }}"""
    x = RNG.standard_normal((2, 6, 5, 4)).astype(np.float32)
    x[0] *= 10
    wanted, found = both(text, x)
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("scales", _SCALES)
def test_hybrid_transposed_convolution(scales: str) -> None:
    text = f"""
    graph main(%x: tensor<2x3x3x4xfloat32>) -> (%y) {{
      %s = constant tensor<4xint32> [2, 6, 6, 4]
      %w = constant tensor<4x2x2x4xfloat32, quant<int8 {_SCALES[scales].format(axis=0)}>> [{_numbers(64)}]
      %y = tfl.TRANSPOSE_CONV@1(%s, %w, %x) {{stride_h = 2, stride_w = 2, padding = "VALID",
        fused_activation_function = "NONE"}} : tensor<2x6x6x4xfloat32>
    }}"""
    x = RNG.standard_normal((2, 3, 3, 4)).astype(np.float32)
    x[0] *= 10
    wanted, found = both(text, x)
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("adjoint", ["false", "true"])
def test_hybrid_batch_matmul(adjoint: str) -> None:
    """Each row of the left matrices is quantized on its own."""
    left = (2, 8, 3) if adjoint == "true" else (2, 3, 8)
    text = f"""
    graph main(%x: tensor<{"x".join(map(str, left))}xfloat32>) -> (%y) {{
      %w = constant tensor<2x8x5xfloat32, quant<int8 0.02:0>> [{_numbers(80)}]
      %y = tfl.BATCH_MATMUL@4(%x, %w) {{adj_x = {adjoint}, adj_y = false, asymmetric_quantize_inputs = true}} :
        tensor<2x3x5xfloat32>
    }}"""
    wanted, found = both(text, RNG.standard_normal(left).astype(np.float32))
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


def test_an_int8_average_pool_runs_on_integers(tmp_path: Path) -> None:
    text = """
    graph main(%x: tensor<1x6x6x2xfloat32, quant<int8 0.02:3>>) -> (%y) {
      %y = tfl.AVERAGE_POOL_2D@2(%x) {filter_height = 3, filter_width = 3, fused_activation_function = "NONE",
        padding = "VALID", stride_h = 1, stride_w = 1} : tensor<1x4x4x2xfloat32, quant<int8 0.02:3>>
    }"""
    wanted, found = both(text, _stored(1, 6, 6, 2))
    assert np.abs(wanted.astype(int) - found).max() <= 1
    assert optimized_ops(to_onnx(tflite(text)), tmp_path)["QLinearAveragePool"] == 1


@pytest.mark.parametrize("shape", [(8,), (3, 8)])
def test_int16_rows_times_int8_weights_are_not_rounded_to_int8(shape: tuple[int, ...]) -> None:
    rows = "x".join(map(str, shape[:-1] or (1,)))
    text = f"""
    graph main(%x: tensor<{"x".join(map(str, shape))}xfloat32, quant<int16 0.0002:0>>) -> (%y) {{
      %w = constant tensor<4x8xfloat32, quant<int8 0.02:0>> [{_numbers(32)}]
      %y = tfl.FULLY_CONNECTED@7(%x, %w, _) {{asymmetric_quantize_inputs = false, fused_activation_function = "NONE",
        keep_num_dims = false, quantized_bias_type = "FLOAT32", weights_format = "DEFAULT"}} :
        tensor<{rows}x4xfloat32, quant<int16 0.003:0>>
    }}"""
    wanted, found = both(text, _stored(*shape, dtype="int16"))
    assert np.abs(wanted.astype(int) - found).max() <= 1


def test_halves_are_quantized_as_xnnpack_does() -> None:
    text = """
    graph main(%x: tensor<2x4xfloat16>) -> (%y) {
      %y = tfl.QUANTIZE@1(%x) : tensor<2x4xfloat32, quant<int8 0.02:3>>
    }"""
    x = RNG.standard_normal((2, 4)).astype(np.float16)
    data = tflite(text)
    ((_, wanted),) = run_tflite(data, [x])
    (found,) = run_onnx(to_onnx(data), {"x": x}).values()
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("name", ["EXP", "LOG", "RSQRT"])
def test_int16_tables(name: str) -> None:
    """The kernel's table, element by element; RSQRT refuses what is not positive."""
    text = f"""
    graph main(%x: tensor<1x512xfloat32, quant<int16 0.0002:0>>) -> (%y) {{
      %y = tfl.{name}@2(%x) : tensor<1x512xfloat32, quant<int16 0.0005:0>>
    }}"""
    x = np.linspace(0 if name == "RSQRT" else -(2**15), 2**15 - 1, 512).astype(np.int16).reshape(1, 512)
    wanted, found = both(text, x)
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("approximate", ["true", "false"])
def test_int16_gelu(approximate: str) -> None:
    """Each element: the kernel interpolates between 513 samples. Its C library may round a sample of erfc otherwise."""
    text = f"""
    graph main(%x: tensor<256x256xfloat32, quant<int16 0.0001220703125:0>>) -> (%y) {{
      %y = tfl.GELU@2(%x) {{approximate = {approximate}}} : tensor<256x256xfloat32, quant<int16 0.0001001:0>>
    }}"""
    wanted, found = both(text, np.arange(-(2**15), 2**15).astype(np.int16).reshape(256, 256))
    off = np.abs(found.astype(int) - wanted)
    assert off.max() <= 1 and np.count_nonzero(off) <= 256


@pytest.mark.parametrize("op", ["LEAKY_RELU@2(%x) {alpha", "SOFTMAX@2(%x) {beta"])
@pytest.mark.parametrize("number", ["nan", "inf"])
def test_integer_kernels_have_no_infinite_factor(op: str, number: str) -> None:
    text = f"""
    graph main(%x: tensor<2x4xfloat32, quant<int8 0.5:0>>) -> (%y) {{
      %y = tfl.{op} = {number}}} : tensor<2x4xfloat32, quant<int8 0.00390625:-128>>
    }}"""
    with pytest.raises(InvalidModelError, match=f"is {number}, by which no integer kernel multiplies"):
        to_onnx(tflite(text))


def test_softmax_of_int8_is_int16() -> None:
    """As in keyword models of TFLite Micro."""
    text = f"""
    graph main(%x: tensor<64x8xfloat32, quant<int8 0.1:0>>) -> (%y) {{
      %y = tfl.SOFTMAX@2(%x) {{beta = 1.0}} : tensor<64x8xfloat32, quant<int16 {2.0**-16}:-32768>>
    }}"""
    wanted, found = both(text, _stored(64, 8))
    assert found.dtype == np.int16
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("name", ["LOGISTIC", "TANH"])
@pytest.mark.parametrize("scale", [2.0**-13, 2.0**-12, 2.0**-11, 2.0**-11 * 1.0005, 0.0001, 0.0077])
def test_int16_sigmoids(name: str, scale: float) -> None:
    """Each element: some powers of two, nearly, have kernels of their own."""
    text = f"""
    graph main(%x: tensor<256x256xfloat32, quant<int16 {scale}:0>>) -> (%y) {{
      %y = tfl.{name}@3(%x) : tensor<256x256xfloat32, quant<int16 {2.0**-15}:0>>
    }}"""
    wanted, found = both(text, np.arange(-(2**15), 2**15).astype(np.int16).reshape(256, 256))
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("shape", [(64, 20), (2, 4, 8, 3), (4, 1000), (3, 1)])
@pytest.mark.parametrize(("scale", "beta"), [(1e-5, 1.0), (0.0003, 1.0), (0.002, 0.5), (0.1, 1.0)])
def test_int16_softmax(shape: tuple[int, ...], scale: float, beta: float) -> None:
    """On integers, as the kernel: it is up to 37 steps off the function."""
    dims = "x".join(map(str, shape))
    text = f"""
    graph main(%x: tensor<{dims}xfloat32, quant<int16 {scale}:0>>) -> (%y) {{
      %y = tfl.SOFTMAX@3(%x) {{beta = {beta}}} : tensor<{dims}xfloat32, quant<int16 {2.0**-15}:0>>
    }}"""
    wanted, found = both(text, _stored(*shape, dtype="int16"))
    np.testing.assert_array_equal(found, wanted)


def test_int16_softmax_over_an_open_axis() -> None:
    text = f"""
    graph main(%x: tensor<[n]x[m]xfloat32, quant<int16 0.0003:0>>) -> (%y) {{
      %y = tfl.SOFTMAX@3(%x) {{beta = 1.0}} : tensor<[n]x[m]xfloat32, quant<int16 {2.0**-15}:0>>
    }}"""
    for shape in ((5, 2), (3, 1000), (2, 40000)):
        wanted, found = both(text, _stored(*shape, dtype="int16"))
        np.testing.assert_array_equal(found, wanted)


def test_scatter_fills_with_a_stored_0() -> None:
    """Also, stored elements with the same index are added as they are stored."""
    text = """
    graph main(%u: tensor<3x2xfloat32, quant<int8 0.5:-5>>) -> (%y) {
      %i = constant tensor<3x1xint32> [3, 1, 3]
      %s = constant tensor<2xint32> [5, 2]
      %y = tfl.SCATTER_ND@1(%i, %u, %s) : tensor<5x2xfloat32, quant<int8 0.5:-5>>
    }"""
    wanted, found = both(text, np.asarray([[1, 2], [-3, 4], [5, -6]], np.int8))
    np.testing.assert_array_equal(found, wanted)


def test_matrix_diag_fills_with_a_stored_0() -> None:
    text = """
    graph main(%d: tensor<2x3xfloat32, quant<uint8 0.5:120>>) -> (%y) {
      %y = tfl.MATRIX_DIAG@1(%d) : tensor<2x3x3xfloat32, quant<uint8 0.5:120>>
    }"""
    wanted, found = both(text, _stored(2, 3, dtype="uint8"))
    np.testing.assert_array_equal(found, wanted)


_CONV = """{dilation_h_factor = 1, dilation_w_factor = 1, stride_h = 1, stride_w = 1, padding = "SAME",
    fused_activation_function = "RELU6"}"""
_RESIDUAL = f"""
    graph main(%x: tensor<1x6x6x4xfloat32, quant<int8 0.02:3>>) -> (%y) {{
      %w = constant tensor<4x3x3x4xfloat32, quant<int8 axis=0 0.02:0 0.01:0 0.03:0 0.015:0>> [{_numbers(144)}]
      %d = constant tensor<1x3x3x4xfloat32, quant<int8 axis=3 0.02:0 0.01:0 0.03:0 0.015:0>> [{_numbers(36)}]
      %b = constant tensor<4xfloat32, quant<int32 axis=0 0.0004:0 0.0002:0 0.0006:0 0.0003:0>> [100, -200, 300, 400]
      %c = constant tensor<4xfloat32, quant<int32 axis=0 0.00047:0 0.000235:0 0.000705:0 0.0003525:0>> [1, -2, 3, 4]
      %p = tfl.CONV_2D@3(%x, %w, %b) {_CONV} : tensor<1x6x6x4xfloat32, quant<int8 0.0235:-128>>
      %q = tfl.DEPTHWISE_CONV_2D@3(%p, %d, %c) {_CONV.replace("{", "{depth_multiplier = 1, ")} :
        tensor<1x6x6x4xfloat32, quant<int8 0.0235:-128>>
      %y = tfl.ADD@2(%p, %q) {{fused_activation_function = "NONE", pot_scale_int16 = false}} :
        tensor<1x6x6x4xfloat32, quant<int8 0.04:5>>
    }}"""


def test_a_residual_block_runs_on_integers(tmp_path: Path) -> None:
    """ONNX Runtime mixes int8 and uint8 where two ops read an int8 tensor, and computes in float then."""
    wanted, found = both(_RESIDUAL, _stored(1, 6, 6, 4))
    assert np.abs(wanted.astype(int) - found).max() <= 2
    counts = optimized_ops(to_onnx(tflite(_RESIDUAL)), tmp_path)
    assert (counts["QLinearConv"], counts["QLinearAdd"], counts["Conv"], counts["Add"]) == (2, 1, 0, 0)


def test_qlinear_ops() -> None:
    """As ops with explicit parameters, of ONNX's own domain where it has them."""
    found = ops_of(to_onnx(tflite(_RESIDUAL), quantized="qoperator"))
    assert found == {"Transpose": 2, "QLinearConv": 2, "com.microsoft.QLinearAdd": 1}
    wanted, got = both(_RESIDUAL, _stored(1, 6, 6, 4), quantized="qoperator")
    assert np.abs(wanted.astype(int) - got).max() <= 2


def test_qlinear_ops_of_a_classifier() -> None:
    text = f"""
    graph main(%x: tensor<2x8xfloat32, quant<uint8 0.02:100>>) -> (%y) {{
      %w = constant tensor<4x8xfloat32, quant<uint8 0.02:120>> [{", ".join(map(str, range(60, 92)))}]
      %b = constant tensor<4xfloat32, quant<int32 0.0004:0>> [100, -200, 300, 400]
      %a = tfl.FULLY_CONNECTED@1(%x, %w, %b) {{asymmetric_quantize_inputs = false, keep_num_dims = false,
        fused_activation_function = "NONE", weights_format = "DEFAULT"}} : tensor<2x4xfloat32, quant<uint8 0.05:128>>
      %c = tfl.CONCATENATION@1(%a, %x) {{axis = 1, fused_activation_function = "NONE"}} :
        tensor<2x12xfloat32, quant<uint8 0.05:128>>
      %y = tfl.SOFTMAX@1(%c) {{beta = 1.0}} : tensor<2x12xfloat32, quant<uint8 0.00390625:0>>
    }}"""
    found = ops_of(to_onnx(tflite(text), quantized="qoperator"))
    assert found == {f"com.microsoft.{name}": 1 for name in ("QGemm", "QLinearConcat", "QLinearSoftmax")}
    wanted, got = both(text, _stored(2, 8, dtype="uint8"), quantized="qoperator")
    assert np.abs(wanted.astype(int) - got).max() <= 1


def test_a_global_average_pool_is_a_qlinear_op() -> None:
    text = """
    graph main(%x: tensor<1x4x4x3xfloat32, quant<int8 0.02:3>>) -> (%y) {
      %axes = constant tensor<2xint32> [1, 2]
      %y = tfl.MEAN@2(%x, %axes) {keep_dims = true} : tensor<1x1x1x3xfloat32, quant<int8 0.01:0>>
    }"""
    found = ops_of(to_onnx(tflite(text), quantized="qoperator"))
    assert found == {"Transpose": 1, "com.microsoft.QLinearGlobalAveragePool": 1, "Reshape": 1}
    wanted, got = both(text, _stored(1, 4, 4, 3), quantized="qoperator")
    assert np.abs(wanted.astype(int) - got).max() <= 1


def test_dequantized_ops_saturate_and_do_not_round() -> None:
    """Quantizers leave out a RELU6 whose bounds are those of the type."""
    text = _RESIDUAL.replace("RELU6", "NONE")
    found = ops_of(to_onnx(tflite(text), quantized="float"))
    assert (found["Conv"], found["Add"], found["Clip"]) == (2, 1, 2)
    wanted, got = both(text, _stored(1, 6, 6, 4), quantized="float")
    assert np.abs(wanted.astype(int) - got).max() <= 2


def test_int16_before_opset_21() -> None:
    """ONNX has it since opset 21, ONNX Runtime's own QuantizeLinear before."""
    text = """
    graph main(%x: tensor<2x8xfloat32, quant<int16 0.0002:0>>) -> (%y) {
      %a = tfl.MUL@2(%x, %x) {fused_activation_function = "NONE"} : tensor<2x8xfloat32, quant<int16 0.002:0>>
      %y = tfl.LOG@2(%a) : tensor<2x8xfloat32, quant<int16 0.0005:0>>
    }"""
    file = io.BytesIO()
    tflite_to_onnx(tflite(text), file, Options(opset=13))
    x = _stored(2, 8, dtype="int16")
    ((_, wanted),) = run_tflite(tflite(text), [x], kernels="builtin")
    np.testing.assert_array_equal(run_onnx(file.getvalue(), {"x": x})["y"], wanted)


def test_int16_ops_are_islands_between_quantize_and_dequantize() -> None:
    text = """
    graph main(%x: tensor<2x8xfloat32, quant<int16 0.02:0>>) -> (%y) {
      %y = tfl.MUL@2(%x, %x) {fused_activation_function = "NONE"} : tensor<2x8xfloat32, quant<int16 0.04:0>>
    }"""
    found = ops_of(to_onnx(tflite(text), quantized="qoperator"))
    assert found == {"DequantizeLinear": 1, "Mul": 1, "QuantizeLinear": 1}


_COPIES = {
    "RESHAPE": ("%y = tfl.RESHAPE@1(%x, %v) {{new_shape = [4, 6]}}", "[4, 6]", "4x6"),
    "REVERSE_V2": ("%y = tfl.REVERSE_V2@3(%x, %v) {{}}", "[1]", "2x12"),
    "PAD": ("%y = tfl.PAD@2(%x, %v) {{}}", "[[0, 1], [2, 0]]", "3x14"),
    "TILE": ("%y = tfl.TILE@3(%x, %v) {{}}", "[1, 2]", "2x24"),
}


@pytest.mark.parametrize("storage", ["int8", "uint8"])
@pytest.mark.parametrize("op", _COPIES)
def test_kernels_that_move_elements_copy_integers_whatever_the_scale_of_the_result(op: str, storage: str) -> None:
    call, vector, shape = _COPIES[op]
    sizes = "x".join(map(str, np.shape(json.loads(vector))))
    text = f"""
    graph main(%x: tensor<2x12xfloat32, quant<{storage} 0.02:3>>) -> (%y) {{
      %v = constant tensor<{sizes}xint32> {vector}
      {call.format()} : tensor<{shape}xfloat32, quant<{storage} 0.05:7>>
    }}"""
    wanted, found = both(text, _stored(2, 12, dtype=storage))
    np.testing.assert_array_equal(found, wanted)


_COPIES_OF_TWO = {
    "diagonal": ("tfl.MATRIX_SET_DIAG@1(%x, %v)", "[[10, -20, 30], [40, 50, 60]]", "2x3x4"),
    "padding": (
        "tfl.STABLEHLO_PAD@1(%x, %v) {edge_padding_low = [0, 1, -1], edge_padding_high = [1, 0, 0], "
        "interior_padding = [0, 1, 0]}",
        "[7]",
        "3x6x3",
    ),
}


@pytest.mark.parametrize("name", _COPIES_OF_TWO)
def test_stored_integers_of_constants_are_copied_too(name: str) -> None:
    """Constants that a rule reshapes are other values than the operands of the op."""
    call, numbers, shape = _COPIES_OF_TWO[name]
    sizes = "x".join(map(str, np.shape(json.loads(numbers))))
    text = f"""
    graph main(%x: tensor<2x3x4xfloat32, quant<int8 0.02:3>>) -> (%y) {{
      %v = constant tensor<{sizes}xfloat32, quant<int8 0.02:3>> {numbers}
      %y = {call} : tensor<{shape}xfloat32, quant<int8 0.05:7>>
    }}"""
    wanted, found = both(text, _stored(2, 3, 4))
    np.testing.assert_array_equal(found, wanted)


def test_places_of_stored_integers_that_are_not_0() -> None:
    text = """
    graph main(%x: tensor<4xfloat32, quant<int8 0.5:3>>) -> (%y) {
      %y = tfl.WHERE@2(%x) : tensor<[n]x1xint64>
    }"""
    wanted, found = both(text, np.asarray([3, 0, -1, 0], np.int8))
    np.testing.assert_array_equal(found, wanted)


def test_an_output_quantized_as_int32_is_a_number_of_steps() -> None:
    """ONNX's QuantizeLinear has no int32."""
    text = """
    graph main(%x: tensor<2x8xfloat32, quant<int8 0.02:-3>>) -> (%y) {
      %y = tfl.QUANTIZE@2(%x) : tensor<2x8xfloat32, quant<int32 0.005:7>>
    }"""
    x = _stored(2, 8)
    found = run_onnx(to_onnx(tflite(text)), {"x": x})["y"]
    np.testing.assert_array_equal(found, np.round((x.astype(np.float64) + 3) * 4) + 7)
    assert found.dtype == np.int32


@pytest.mark.parametrize("storage", ["int8", "int16"])
@pytest.mark.parametrize("adjoint", ["false", "true"])
def test_products_of_matrices_with_a_scale_for_each_column_are_zeros(storage: str, adjoint: str) -> None:
    """LiteRT's kernel reads one scale; the report says so."""
    text = f"""
    graph main(%x: tensor<2x3xfloat32, quant<{storage} 0.02:0>>) -> (%y) {{
      %w = constant tensor<3x3xfloat32, quant<int8 axis=1 0.5:0 0.25:0 0.125:0>> [1, 2, 3, 4, 5, 6, 7, 8, 9]
      %y = tfl.BATCH_MATMUL@3(%x, %w) {{adj_x = false, adj_y = {adjoint}, asymmetric_quantize_inputs = false}} :
        tensor<2x3xfloat32, quant<{storage} 0.04:0>>
    }}""".replace(" :\n       ", " :")
    wanted, found = both(text, _stored(2, 3, dtype=storage))
    assert not wanted.any() and not found.any()
    report = onnxtfl.tflite_to_onnx(tflite(text), check=False).report.quantization
    assert report is not None and [said for _, said in report.kernels] == [
        "BATCH_MATMUL: LiteRT computes zeros, since the second operand has a scale for each column"
    ]


@pytest.mark.parametrize(("option", "remarks"), [("", 1), (', quantized_bias_type = "INT32"', 0)])
def test_an_int32_bias_of_int16_activations_without_its_option(option: str, remarks: int) -> None:
    """LiteRT reads it as int64; the report says so."""
    text = f"""
    graph main(%x: tensor<1x2x2x2xfloat32, quant<int16 0.02:0>>) -> (%y) {{
      %w = constant tensor<1x1x1x2xfloat32, quant<int8 0.5:0>> [1, 2]
      %b = constant tensor<1xfloat32, quant<int32 0.01:0>> [7]
      %y = tfl.CONV_2D@4(%x, %w, %b) {{dilation_h_factor = 1, dilation_w_factor = 1, fused_activation_function = "NONE",
        padding = "VALID", stride_h = 1, stride_w = 1{option}}} : tensor<1x2x2x1xfloat32, quant<int16 0.04:0>>
    }}""".replace(",\n       ", ",")
    report = onnxtfl.tflite_to_onnx(tflite(text), check=False).report.quantization
    assert report is not None and len(report.kernels) == remarks


@pytest.mark.parametrize(("type_", "name"), [("float32", "float32"), ("float32, quant<uint8 0.5:3>", "uint8")])
def test_a_kernel_that_moves_stored_integers_returns_them(type_: str, name: str) -> None:
    text = f"""
    graph main(%x: tensor<2x4xfloat32, quant<int16 0.5:0>>) -> (%y) {{
      %shape = constant tensor<1xint32> [8]
      %y = tfl.RESHAPE@1(%x, %shape) : tensor<8x{type_}>
    }}"""
    with pytest.raises(OnnxtflError, match=f"declared as {name}, and stored as int16"):
        to_onnx(tflite(text))
