"""Products of quantized activations whose results are not quantized, as quantizers for other kernels leave them."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import onnxtfl
from tests.harness.litert import Array, run_onnx, run_tflite
from tests.unit.test_quantized_tfl import tflite

RNG = np.random.default_rng(0)
_PRODUCTS: dict[str, tuple[str, tuple[Any, ...], tuple[int, ...], int, dict[str, Any]]] = {
    "convolution": ("Conv", ("n", 20, 9, 11), (72, 20, 3, 3), 0, {"pads": [1, 1, 1, 1]}),
    "convolution with strides": (
        "Conv",
        ("n", 20, 9, 11),
        (72, 20, 3, 3),
        0,
        {"pads": [1, 0, 1, 1], "strides": [2, 2]},
    ),
    "convolution of a sequence": ("Conv", ("n", 20, 33), (72, 20, 5), 0, {"pads": [2, 2]}),
    "product of matrices": ("MatMul", ("n", 7, 40), (40, 70), 1, {}),
    "layer": ("Gemm", ("n", 40), (40, 70), 1, {}),
}
_ZEROS = {"uint8": 120, "int8": -128}


def model(
    name: str, batch: int | str = 2, zero: str = "uint8", scales: bool = True, features: int | None = None
) -> onnx.ModelProto:
    """tanh(product) of activations in 8 bits, and weights of int8 with one scale or `scales`."""
    op, shape, size, axis, attributes = _PRODUCTS[name]
    size = tuple(features or n if i == axis else n for i, n in enumerate(size))
    count = size[axis] if scales else None
    constants = {
        "w": RNG.integers(-127, 128, size).astype(np.int8),
        "ws": RNG.uniform(0.001, 0.01, count).astype(np.float32) if count else np.float32(0.002),
        "wz": np.zeros(count or (), np.int8),
        "xs": np.float32(0.02),
        "xz": np.asarray(_ZEROS[zero], zero),
        "b": RNG.standard_normal(size[axis]).astype(np.float32),
    }
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "xs", "xz"], ["xq"]),
        helper.make_node("DequantizeLinear", ["xq", "xs", "xz"], ["xd"]),
        helper.make_node("DequantizeLinear", ["w", "ws", "wz"], ["wd"], axis=axis),
        helper.make_node(op, ["xd", "wd", "b"][: 2 if op == "MatMul" else 3], ["p"], **attributes),
        helper.make_node("Tanh", ["p"], ["y"]),
    ]
    given = helper.make_tensor_value_info("x", TensorProto.FLOAT, [batch if n == "n" else n for n in shape])
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    initializers = [numpy_helper.from_array(np.asarray(a), n) for n, a in constants.items()]
    graph = helper.make_graph(nodes, "g", [given], [result], initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def sample(name: str) -> Array:
    """Activations, some of which are outside of the range of 8 bits; of one sample all are small."""
    x = RNG.normal(0, 2, [2 if n == "n" else n for n in _PRODUCTS[name][1]]).astype(np.float32)
    x[1] /= 10
    return x


def hybrid_ops(conversion: onnxtfl.Conversion) -> int:
    assert conversion.report.quantization is not None
    return sum(conversion.report.quantization.hybrid_ops.values())


@pytest.mark.parametrize("scales", [True, False], ids=["a scale each", "one scale"])
@pytest.mark.parametrize("zero", _ZEROS)
@pytest.mark.parametrize("batch", [2, "n"], ids=["fixed batch", "open batch"])
@pytest.mark.parametrize("name", _PRODUCTS)
def test_weights_stay_integers_and_activations_are_not_rounded_again(
    name: str, batch: int | str, zero: str, scales: bool
) -> None:
    source, x = model(name, batch, zero, scales), sample(name)
    conversion = onnxtfl.onnx_to_tflite(source, check=False)
    assert hybrid_ops(conversion) == 1
    wanted = run_onnx(source.SerializeToString(), {"x": x})["y"]
    for kernels in ("default", "builtin"):
        np.testing.assert_allclose(run_tflite(conversion.data or b"", [x], kernels=kernels)[0][1], wanted, atol=1e-5)


@pytest.mark.parametrize("scales", [True, False], ids=["a scale each", "one scale"])
@pytest.mark.parametrize("name", _PRODUCTS)
def test_back_in_onnx_they_are_as_before(name: str, scales: bool) -> None:
    source = model(name, scales=scales)
    data = onnxtfl.onnx_to_tflite(source, check=False).data or b""
    back = onnxtfl.tflite_to_onnx(data, check=False).data or b""
    x = sample(name)
    wanted, result = (run_onnx(m, {"x": x})["y"] for m in (source.SerializeToString(), back))
    np.testing.assert_allclose(result, wanted, atol=1e-5)
    graph = onnx.load_from_string(back).graph
    assert {"Concat", "Mul", "Round", "ReduceMax", "Slice"}.isdisjoint(node.op_type for node in graph.node)
    (weights,) = (i for i in graph.initializer if i.data_type == TensorProto.INT8 and len(i.dims) > 1)
    before, factors = (i for i in source.graph.initializer if i.name in ("w", "ws"))
    kept = [numpy_helper.to_array(i).ravel().tolist() for i in graph.initializer if i.data_type == TensorProto.FLOAT]
    assert numpy_helper.to_array(factors).ravel().tolist() in kept
    assert sorted(numpy_helper.to_array(weights).ravel()) == sorted(numpy_helper.to_array(before).ravel())


@pytest.mark.parametrize(("name", "features"), [("convolution of a sequence", 12), ("layer", 63)])
def test_small_products_stay_in_float(name: str, features: int) -> None:
    source, x = model(name, features=features), sample(name)
    conversion = onnxtfl.onnx_to_tflite(source, check=False)
    assert hybrid_ops(conversion) == 0
    assert "CONCATENATION" not in conversion.report.ops_after
    wanted = run_onnx(source.SerializeToString(), {"x": x})["y"]
    np.testing.assert_allclose(run_tflite(conversion.data or b"", [x])[0][1], wanted, atol=1e-5)


_LAYER = """graph main(%x: tensor<1x2xfloat32, quant<int8 0.5:0>>) -> (%y) {{
  %w = constant tensor<2x4xfloat32, quant<int8 0.5:0>> [1, 2, 0, 0, 3, 4, 0, 0]
  %e = constant tensor<1x2xfloat32, quant<int8 0.5:0>> [-128, {last}]
  %c = tfl.CONCATENATION@2(%x, %e) {{axis = 1, fused_activation_function = "NONE"}} :
       tensor<1x4xfloat32, quant<int8 0.5:0>>
  {between}
  %r = tfl.DEQUANTIZE@2({read}) : tensor<1x4xfloat32>
  %y = tfl.FULLY_CONNECTED@9(%r, %w, _) {{asymmetric_quantize_inputs = true, fused_activation_function = "NONE",
       keep_num_dims = false, quantized_bias_type = "FLOAT32", weights_format = "DEFAULT"}} : tensor<1x2xfloat32>
}}"""
_REQUANTIZED = "%q = tfl.QUANTIZE@2(%c) : tensor<1x4xfloat32, quant<int8 0.7:0>>"


@pytest.mark.parametrize(
    ("last", "between", "read", "rounds"),
    [(127, "", "%c", False), (126, "", "%c", True), (127, _REQUANTIZED, "%q", True)],
    ids=["the ends", "another range", "other steps"],
)
def test_a_file_with_the_ends_of_another_range_is_rounded(last: int, between: str, read: str, rounds: bool) -> None:
    data = tflite(_LAYER.format(last=last, between=between, read=read).replace(":\n      ", ":"))
    back = onnxtfl.tflite_to_onnx(data, check=False).data or b""
    assert ("Round" in {node.op_type for node in onnx.load_from_string(back).graph.node}) == rounds
    x = np.array([[-7, 100]], np.int8)
    result = run_onnx(back, {"x": x}, optimized=False)["y"]  # optimized, it leaves out the second rounding
    np.testing.assert_allclose(result, run_tflite(data, [x])[0][1], rtol=1e-6)
