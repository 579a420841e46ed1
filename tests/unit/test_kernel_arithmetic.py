"""Kernels on integers of TFLite models, in LiteRT and, converted to ONNX, in ONNX Runtime."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import onnxtfl
from onnxtfl.ir.data import Array
from tests.harness.litert import run_onnx, run_tflite
from tests.unit.test_quantized_tfl import both, tflite, to_onnx

SEED = 1
RNG = np.random.default_rng(5)


@pytest.fixture(autouse=True)
def _same_numbers_in_any_order_of_tests() -> None:
    RNG.bit_generator.state = np.random.default_rng(SEED).bit_generator.state


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


SCALES = [(0.05, 0.03, 0.04), (0.01, 0.1, 0.1), (0.02, 0.5, 0.02), (1.0, 0.01, 1.0)]


@pytest.mark.parametrize("activation", ["NONE", "RELU6"])
@pytest.mark.parametrize("scales", SCALES)
@pytest.mark.parametrize("dtype", ["uint8", "int8"])
def test_quotients(dtype: str, scales: tuple[float, ...], activation: str) -> None:
    """All pairs of stored integers; the kernel shifts quotients near 0 by more than 31 bits, and is 130 steps off."""
    low, zeros = np.iinfo(dtype).min, np.add((100, 10, 130), np.iinfo(dtype).min)
    x, y, z = (f"quant<{dtype} {scale}:{zero}>" for scale, zero in zip(scales, zeros, strict=True))
    text = f"""
    graph main(%x: tensor<256x1xfloat32, {x}>, %d: tensor<1x255xfloat32, {y}>) -> (%y) {{
      %y = tfl.DIV@1(%x, %d) {{fused_activation_function = "{activation}"}} : tensor<256x255xfloat32, {z}>
    }}"""
    every = np.arange(low, low + 256).astype(dtype)
    wanted, found = both(text, every[:, None], every[None, every != zeros[1]])
    differences = np.abs(np.subtract(found, wanted, dtype=int))
    assert differences.max() <= int(scales[0] > 0.5)
    assert differences.mean() < 0.01


@pytest.mark.parametrize(
    ("x", "y", "shape", "axes"),
    [
        ("int16 0.001:0", "int16 0.001:0", (40, 4), [1]),
        ("int16 0.0001:0", "int16 0.02:0", (3, 20, 2), [-1, 0]),
        ("int8 0.1:3", "int8 0.5:-4", (8, 20), [0]),
        ("int8 0.02:3", "int8 0.01:-4", (20, 3), [1]),
    ],
)
@pytest.mark.parametrize("keep", ["true", "false"])
def test_products(x: str, y: str, shape: tuple[int, ...], axes: list[int], keep: str) -> None:
    """Products of which the kernel keeps 32 bits, after each factor; int16 with a factor of 15 bits."""
    reduced = [a % len(shape) for a in axes]
    sizes = [1 if i in reduced else n for i, n in enumerate(shape) if keep == "true" or i not in reduced]
    text = f"""
    graph main(%x: tensor<{"x".join(map(str, shape))}xfloat32, quant<{x}>>) -> (%y) {{
      %a = constant tensor<{len(axes)}xint32> {axes}
      %y = tfl.REDUCE_PROD@2(%x, %a) {{keep_dims = {keep}}} : tensor<{"x".join(map(str, sizes))}xfloat32, quant<{y}>>
    }}"""
    wanted, found = both(text, stored(x.partition(" ")[0], *shape))
    assert np.abs(np.subtract(found, wanted, dtype=int)).max() <= int(x.startswith("int8"))


def with_variable(data: bytes, name: str) -> bytes:
    """The .tflite, in which an input is a variable tensor, a state."""
    import flatbuffers
    from ai_edge_litert import schema_py_generated as schema

    model = schema.ModelT.InitFromPackedBuf(data, 0)
    graph, signature = model.subgraphs[0], model.signatureDefs[0]
    (place,) = (i for i, tensor in enumerate(graph.tensors) if tensor.name == name.encode())
    graph.tensors[place].isVariable = True
    graph.inputs = [i for i in graph.inputs if i != place]
    signature.inputs = [found for found in signature.inputs if found.tensorIndex != place]
    builder = flatbuffers.Builder(1024)
    builder.Finish(model.Pack(builder), b"TFL3")
    return bytes(builder.Output())


@pytest.mark.parametrize(("size", "scale"), [(30000, 10.0), (300, 0.005)])
def test_svdf_of_int8(size: int, scale: float) -> None:
    """Sums of 32 bits wrap around (time weights of this `size`), and the kernel ignores the activation."""
    times = RNG.integers(-size, size, (8, 3))
    bias = np.asarray([2**31 - 9, 9 - 2**31, 2**31 - 9, 9 - 2**31]) // (1 if size > 1000 else 10**6)
    result = f"quant<int8 {scale}:-30>"
    text = f"""
    graph main(%x: tensor<2x16xfloat32, quant<int8 0.02:3>>, %s: tensor<2x24xfloat32, quant<int16 0.001:0>>) -> (%y) {{
      %w = constant tensor<8x16xfloat32, quant<int8 0.01:0>> [{listed(stored("int8", 8, 16))}]
      %t = constant tensor<8x3xfloat32, quant<int16 0.0004:0>> [{listed(times)}]
      %b = constant tensor<4xfloat32, quant<int32 0.0000004:0>> [{listed(bias)}]
      %y = tfl.SVDF@3(%x, %w, %t, %b, %s) {{rank = 2, fused_activation_function = "RELU",
        asymmetric_quantize_inputs = false}} : tensor<2x4xfloat32, {result}>
    }}"""
    data, x = with_variable(tflite(text), "s"), np.full((2, 16), 127, np.int8)
    ((_, wanted),) = run_tflite(data, [x], kernels="builtin")
    model = to_onnx(data)
    names = [v.name for v in onnx.load_from_string(model).graph.input]
    state = {name: np.zeros((2, 24), np.int16) for name in names[1:]}
    found = next(iter(run_onnx(model, {names[0]: x, **state}).values()))
    assert np.ptp(wanted.astype(int)) > 20
    assert np.abs(np.subtract(found, wanted, dtype=int)).max() <= 1


@pytest.mark.parametrize(
    ("dtype", "scale", "remark"), [("int16", 0.01, "int16"), ("uint8", 0.01, "bits"), ("uint8", 9, "")]
)
def test_the_report_says_that_quotients_are_those_of_the_kernel(dtype: str, scale: float, remark: str) -> None:
    text = f"""
    graph main(%x: tensor<4xfloat32, quant<{dtype} {scale}:0>>, %d: tensor<4xfloat32, quant<{dtype} 0.1:0>>) -> (%y) {{
      %y = tfl.DIV@1(%x, %d) {{fused_activation_function = "NONE"}} : tensor<4xfloat32, quant<{dtype} 0.1:0>>
    }}"""
    report = onnxtfl.tflite_to_onnx(tflite(text), check=False).report.quantization
    assert report is not None
    assert [remark in said for _, said in report.kernels] == [True] * bool(remark)


_STEPS = 'padding = "VALID", stride_w = 1, stride_h = 1, dilation_w_factor = 1, dilation_h_factor = 1'
_LAYERS = {
    "CONV_2D": ((1, 4, 4, 3), (5, 2, 2, 3), (1, 3, 3, 5), _STEPS),
    "DEPTHWISE_CONV_2D": ((1, 4, 4, 3), (1, 2, 2, 6), (1, 3, 3, 6), f"{_STEPS}, depth_multiplier = 2"),
    "FULLY_CONNECTED": (
        (7, 3),
        (5, 3),
        (7, 5),
        'weights_format = "DEFAULT", keep_num_dims = false, asymmetric_quantize_inputs = false',
    ),
}


@pytest.mark.parametrize("activation", ["NONE", "RELU6", "RELU_N1_TO_1"])
@pytest.mark.parametrize("zeros", [(0, 255, 3), (100, 7, 255)])
@pytest.mark.parametrize("op", _LAYERS)
def test_layers_of_uint8_with_a_zero_point_of_the_weights(op: str, zeros: tuple[int, ...], activation: str) -> None:
    """The first versions of the ops; the kernels round halves of the accumulator differently, by one step at most."""
    x, w, y, options = _LAYERS[op]
    count = y[-1]
    types = [
        f"{'x'.join(map(str, shape))}xfloat32, quant<uint8 {scale}:{zero}>"
        for shape, scale, zero in zip((x, w, y), (0.0625, 0.015625, 0.3), zeros, strict=True)
    ]
    text = f"""
    graph main(%x: tensor<{types[0]}>) -> (%y) {{
      %w = constant tensor<{types[1]}> [{listed(stored("uint8", *w))}]
      %b = constant tensor<{count}xfloat32, quant<int32 0.0009765625:0>> [{listed(RNG.integers(-9000, 9000, count))}]
      %y = tfl.{op}@1(%x, %w, %b) {{fused_activation_function = "{activation}", {options}}} : tensor<{types[2]}>
    }}"""
    wanted, found = both(text, stored("uint8", *x))
    assert np.abs(np.subtract(found, wanted, dtype=int)).max() <= 1
