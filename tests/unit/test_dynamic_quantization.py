"""Dynamic quantization: exact in float, or by TFLite's hybrid kernels within a tolerance that the report names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import onnxtfl
from tests.harness.litert import Array, run_onnx, run_tflite

F = TensorProto.FLOAT
RNG = np.random.default_rng(0)
X = RNG.standard_normal((4, 600)).astype(np.float32)


def model(nodes: list[onnx.NodeProto], x: Array, shape: Sequence[int | None], constants: dict[str, Array]) -> bytes:
    given, result = helper.make_tensor_value_info("x", F, x.shape), helper.make_tensor_value_info("y", F, shape)
    initializers = [numpy_helper.from_array(np.asarray(a), n) for n, a in constants.items()]
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    graph = helper.make_graph(nodes, "g", [given], [result], initializers)
    return helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()


def integer_product(op: str, scale: Array) -> list[onnx.NodeProto]:
    """As ONNX Runtime's quantizer writes a dynamically quantized product."""
    return [
        helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"]),
        helper.make_node(op, ["q", "w", "z", "wz"], ["p"]),
        helper.make_node("Cast", ["p"], ["f"], to=F),
        helper.make_node("Mul", ["s", "ws"], ["scale"]),
        helper.make_node("Mul", ["f", "scale"], ["y"]),
    ]


def weights(shape: tuple[int, ...], scale: Array, dtype: type = np.int8) -> dict[str, Array]:
    zero = np.zeros(scale.shape, np.int8) if dtype is np.int8 else np.full(scale.shape, 130, np.uint8)
    low = -127 if dtype is np.int8 else 3
    stored = RNG.integers(low, low + 250, shape).astype(dtype)
    return {"w": stored, "ws": scale, "wz": zero}


SCALES = [np.float32(0.01), RNG.uniform(0.001, 0.01, 32).astype(np.float32)]


@pytest.mark.parametrize("scale", SCALES, ids=["one scale", "by column"])
@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
def test_products(scale: Array, dtype: type) -> None:
    """600 terms are more than float32 adds up exactly at once."""
    scale = np.asarray(scale)
    data = model(integer_product("MatMulInteger", scale), X, [4, 32], weights((600, 32), scale, dtype))
    wanted = run_onnx(data, {"x": X})["y"]
    exact = onnxtfl.onnx_to_tflite(data, check=False)
    np.testing.assert_allclose(run_tflite(exact.data or b"", [X])[0][1], wanted, rtol=1e-6, atol=1e-6)
    hybrid = onnxtfl.onnx_to_tflite(data, check=False, dynamic_quant="hybrid")
    assert hybrid.report.quantization is not None
    assert hybrid.report.quantization.hybrid_ops == {"FULLY_CONNECTED": 1}
    assert hybrid.report.ops_after.get("CAST", 0) == 0
    tolerance = hybrid.report.quantization.tolerance
    assert 0 < tolerance <= 0.05
    for kernels in ("default", "builtin"):
        y = run_tflite(hybrid.data or b"", [X], kernels=kernels)[0][1]
        assert np.abs(y - wanted).max() <= tolerance * np.abs(wanted).max()


def test_the_report_names_the_option_that_helps() -> None:
    """Columns with zero points of their own that do not fit int8; TFLite Micro has no hybrid kernels."""
    scale = np.asarray(np.float32(0.01))
    constants = weights((600, 32), scale)
    constants["w"][:2] = [[-128], [127]]
    constants["wz"] = RNG.integers(-20, 20, 32).astype(np.int8)
    data = model(integer_product("MatMulInteger", scale), X, [4, 32], constants)
    exact, hybrid, micro = (
        onnxtfl.onnx_to_tflite(data, check=False, **options)
        for options in ({}, {"dynamic_quant": "hybrid"}, {"target": "micro"})
    )
    told = "1 product of activations that the source quantizes at run time: dynamic_quant='hybrid' computes them"
    assert [told in made.table(width=1000) for made in (exact, hybrid, micro)] == [True, False, False]
    assert hybrid.report.size < exact.report.size


def test_convolutions() -> None:
    scale = np.asarray(np.float32(0.01))
    x = RNG.standard_normal((1, 8, 9, 9)).astype(np.float32)
    data = model(integer_product("ConvInteger", scale), x, [1, 16, 7, 7], weights((16, 8, 3, 3), scale))
    wanted = run_onnx(data, {"x": x})["y"]
    hybrid = onnxtfl.onnx_to_tflite(data, check=False, dynamic_quant="hybrid")
    assert hybrid.report.quantization is not None and hybrid.report.quantization.hybrid_ops == {"CONV_2D": 1}
    y = run_tflite(hybrid.data or b"", [x])[0][1]
    assert np.abs(y - wanted).max() <= hybrid.report.quantization.tolerance * np.abs(wanted).max()


@pytest.mark.parametrize("kind", [np.int8, np.uint8])
@pytest.mark.parametrize("attributes", [{}, {"group": 4, "pads": [1, 1, 0, 2], "strides": [2, 1]}], ids=["", "groups"])
def test_convolutions_whose_weights_bound_the_sums(kind: type, attributes: dict[str, Any]) -> None:
    """576 products, or 144: the kernel adds up whole numbers in float32; the weights are stored in 8 bits."""
    x = RNG.standard_normal((2, 64, 9, 9)).astype(np.float32)
    scale = np.asarray(np.float32(0.01))
    constants = weights((16, 64 // attributes.get("group", 1), 3, 3), scale, kind)
    nodes = integer_product("ConvInteger", scale)
    nodes[1].attribute.extend(helper.make_attribute(k, v) for k, v in attributes.items())
    data = model(nodes, x, [None] * 4, constants)
    conversion = onnxtfl.onnx_to_tflite(data, check=False)
    assert conversion.report.ops_after["CONV_2D"] == 1
    assert "CAST" not in conversion.report.ops_after and len(conversion.data or b"") < 3 * len(data)
    found = run_tflite(conversion.data or b"", [x])[0][1]
    np.testing.assert_allclose(found, run_onnx(data, {"x": x})["y"], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(("channels", "window"), [(64, 3), (3, 14), (1, 16)])
def test_convolutions_whose_sums_float32_rounds(channels: int, window: int, bias: bool) -> None:
    """Sums over 2**24 are rounded, as by the Cast that follows; `bias`: the source adds one in int32."""
    x = RNG.standard_normal((1, channels, 28, 28)).astype(np.float32)
    scale = np.asarray(0.01, np.float32)
    stored = weights((8, channels, window, window), scale, np.uint8)
    stored["w"][0], stored["w"][1] = 255, 0
    stored["wz"] = np.asarray(0, np.uint8)
    nodes = integer_product("ConvInteger", scale)
    if bias:
        stored["bias"] = np.arange(-40000, 40000, 10000, dtype=np.int32).reshape(1, 8, 1, 1)
        nodes.insert(2, helper.make_node("Add", [nodes[1].output[0], "bias"], ["sum"]))
        nodes[3].input[0] = "sum"
    data = model(nodes, x, [1, 8, 29 - window, 29 - window], stored)
    converted = onnxtfl.onnx_to_tflite(data, check=False)
    ops = converted.report.ops_after
    assert ops["CONV_2D"] == 1 and "CAST" not in ops
    found = run_tflite(converted.data or b"", [x])[0][1]
    wanted = run_onnx(data, {"x": x})["y"]
    assert np.abs(found - wanted).max() <= 1e-6 * np.abs(wanted).max()


LARGE = [
    ({"strides": [32, 32]}, (3, 64, 64), (4, 3, 32, 32)),
    ({"dilations": [2, 1], "pads": [3, 0, 2, 1], "strides": [3, 2]}, (1, 50, 40), (4, 1, 20, 20)),
    ({"auto_pad": "SAME_UPPER", "group": 2}, (2, 30, 30), (2, 1, 19, 19)),
    ({}, (2, 700), (4, 2, 600)),
]


@pytest.mark.parametrize(("attributes", "image", "kernel"), LARGE, ids=["patches", "padded", "groups", "1-D"])
def test_convolutions_with_large_windows(
    attributes: dict[str, Any], image: tuple[int, ...], kernel: tuple[int, ...]
) -> None:
    """Windows of more positions than float32 adds up exactly: patches of 32 x 32 (CLIP)."""
    x = RNG.standard_normal((2, *image)).astype(np.float32)
    scale = np.asarray(0.01, np.float32)
    stored = weights(kernel, scale, np.uint8)
    nodes = integer_product("ConvInteger", scale)
    nodes[1].attribute.extend(helper.make_attribute(k, v) for k, v in attributes.items())
    data = model(nodes, x, [None] * x.ndim, stored)
    converted = onnxtfl.onnx_to_tflite(data, check=False)
    found = run_tflite(converted.data or b"", [x])[0][1]
    np.testing.assert_allclose(found, run_onnx(data, {"x": x})["y"], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(("groups", "op"), [(64, "DEPTHWISE_CONV_2D"), (2, None)])
def test_convolutions_of_groups(groups: int, op: str | None) -> None:
    """Of one feature each: hybrid. Others have no hybrid kernel in tflite-runtime 2.14 where all scales are equal."""
    scale = np.asarray(np.float32(0.01))
    x = RNG.standard_normal((2, 64, 9, 9)).astype(np.float32)
    nodes = integer_product("ConvInteger", scale)
    nodes[1].attribute.append(helper.make_attribute("group", groups))
    data = model(nodes, x, [2, 128, 7, 7], weights((128, 64 // groups, 3, 3), scale))
    wanted = run_onnx(data, {"x": x})["y"]
    hybrid = onnxtfl.onnx_to_tflite(data, check=False, dynamic_quant="hybrid")
    assert hybrid.report.quantization is not None and hybrid.report.quantization.hybrid_ops == ({op: 1} if op else {})
    for kernels in ("default", "builtin"):
        y = run_tflite(hybrid.data or b"", [x], kernels=kernels)[0][1]
        assert np.abs(y - wanted).max() <= 0.05 * np.abs(wanted).max()


def test_grouped_convolutions_with_more_terms_than_float32_adds_up_exactly() -> None:
    """Groups of 64 features under 3x3 taps."""
    scale = np.asarray(np.float32(0.01))
    x = RNG.standard_normal((1, 128, 6, 6)).astype(np.float32)
    nodes = integer_product("ConvInteger", scale)
    nodes[1].attribute.append(helper.make_attribute("group", 2))
    data = model(nodes, x, [1, 16, 4, 4], weights((16, 64, 3, 3), scale))
    conversion = onnxtfl.onnx_to_tflite(data, check=False)
    found = run_tflite(conversion.data or b"", [x])[0][1]
    np.testing.assert_allclose(found, run_onnx(data, {"x": x})["y"], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("mode", ["exact", "hybrid"])
def test_the_check_uses_the_tolerance(mode: onnxtfl.api.DynamicQuant) -> None:
    scale = SCALES[1]
    node = helper.make_node("DynamicQuantizeMatMul", ["x", "w", "ws", "wz"], ["y"], domain="com.microsoft")
    data = model([node], X, [4, 32], weights((600, 32), scale))
    conversion = onnxtfl.onnx_to_tflite(data, dynamic_quant=mode)
    assert conversion.check is not None and conversion.check.status == "passed"
    assert (conversion.check.atol > 0.01) == (mode == "hybrid")


@pytest.mark.parametrize("mode", ["exact", "hybrid"])
def test_constant_weights_of_a_float_product(mode: onnxtfl.api.DynamicQuant) -> None:
    nodes = [
        helper.make_node("DequantizeLinear", ["w", "ws", "wz"], ["r"], axis=1),
        helper.make_node("MatMul", ["x", "r"], ["y"]),
    ]
    data = model(nodes, X, [4, 32], weights((600, 32), SCALES[1]))
    conversion = onnxtfl.onnx_to_tflite(data, check=False, dynamic_quant=mode)
    assert len(conversion.data or b"") < 1.2 * len(data)
    assert ("DEQUANTIZE" in conversion.report.ops_after) == (mode == "exact")


def test_zero_points_of_weights_are_subtracted_before_run_time() -> None:
    scale = np.asarray(np.float32(0.01))
    constants = weights((600, 32), scale, np.uint8) | {"w": RNG.integers(20, 240, (600, 32)).astype(np.uint8)}
    data = model(integer_product("MatMulInteger", scale), X, [4, 32], constants)
    conversion = onnxtfl.onnx_to_tflite(data, check=False)
    wanted = run_onnx(data, {"x": X})["y"]
    np.testing.assert_allclose(run_tflite(conversion.data or b"", [X])[0][1], wanted, rtol=1e-6, atol=1e-6)
    assert conversion.report.ops_after["SUB"] == 3 + 2  # range, scale of an empty range, zero point; ends of the rows


@pytest.mark.parametrize("zeros", [np.asarray(90, np.uint8), RNG.integers(60, 200, 32).astype(np.uint8)])
@pytest.mark.parametrize("kernels", ["default", "builtin"])
def test_zero_points_of_weights_that_do_not_fit_int8(zeros: Array, kernels: str) -> None:
    """The sum of each row of activations times the zero point is subtracted afterwards."""
    scale = np.asarray(np.float32(0.01))
    stored = np.clip(np.rint(RNG.normal(128, 40, (600, 32))), 1, 254).astype(np.uint8)
    stored[:, 0], stored[:, 1] = np.minimum(stored[:, 0], 250), np.maximum(stored[:, 1], 5)
    stored[0, 0], stored[0, 1] = 0, 255
    constants = {"w": stored, "ws": scale, "wz": zeros}
    data = model(integer_product("MatMulInteger", scale), X, [4, 32], constants)
    conversion = onnxtfl.onnx_to_tflite(data, check=False)
    assert conversion.report.ops_after["FULLY_CONNECTED"] == 1
    wanted = run_onnx(data, {"x": X})["y"]
    found = run_tflite(conversion.data or b"", [X], kernels=kernels)[0][1]
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("mode", ["exact", "hybrid"])
@pytest.mark.parametrize("kernels", ["default", "builtin"])
def test_weights_of_the_least_int8(mode: onnxtfl.api.DynamicQuant, kernels: str) -> None:
    """LiteRT's FULLY_CONNECTED without XNNPACK negates -128 in int8: weights of hybrid kernels are from -127."""
    stored = weights((600, 32), np.asarray(SCALES[0])) | {"w": RNG.integers(-128, 127, (600, 32)).astype(np.int8)}
    stored["w"][:300], stored["w"][0, 0] = -128, 127
    conversion = onnxtfl.onnx_to_tflite(
        model(integer_product("MatMulInteger", SCALES[0]), X, [4, 32], stored), check=False, dynamic_quant=mode
    )
    wanted = run_onnx(model(integer_product("MatMulInteger", SCALES[0]), X, [4, 32], stored), {"x": X})["y"]
    found = run_tflite(conversion.data or b"", [X], kernels=kernels)[0][1]
    assert np.abs(found - wanted).max() <= (1e-6 if mode == "exact" else 0.05) * np.abs(wanted).max()


MICROSOFT_OPS = {
    "DynamicQuantizeMatMul": [
        helper.make_node("DynamicQuantizeMatMul", ["x", "w", "ws", "wz", "b"], ["y"], domain="com.microsoft")
    ],
    "MatMulIntegerToFloat": [
        helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"]),
        helper.make_node("MatMulIntegerToFloat", ["q", "w", "s", "ws", "z", "wz", "b"], ["y"], domain="com.microsoft"),
    ],
}


@pytest.mark.parametrize("op", MICROSOFT_OPS)
def test_products_of_onnx_runtime(op: str) -> None:
    """They multiply the same integers: by the kernel for int8 weights, without rounding the activations further."""
    constants = weights((600, 32), SCALES[1]) | {"b": RNG.standard_normal(32).astype(np.float32)}
    data = model(MICROSOFT_OPS[op], X, [4, 32], constants)
    conversion = onnxtfl.onnx_to_tflite(data, check=False)
    quantization = conversion.report.quantization
    assert quantization is not None and quantization.hybrid_ops == {"FULLY_CONNECTED": 1}
    assert quantization.tolerance == 0 and quantization.dynamic_ops == 0
    found = run_tflite(conversion.data or b"", [X])[0][1]
    np.testing.assert_allclose(found, run_onnx(data, {"x": X})["y"], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("x", [np.zeros((2, 600)), np.full((2, 600), -3.0), X[:2] * 1e-3 + 5], ids=["0", "-", "+"])
def test_ranges_on_one_side_of_zero(x: Array) -> None:
    x = x.astype(np.float32)
    data = model(integer_product("MatMulInteger", SCALES[0]), x, [2, 32], weights((600, 32), np.asarray(SCALES[0])))
    conversion = onnxtfl.onnx_to_tflite(data, check=False)
    found = run_tflite(conversion.data or b"", [x])[0][1]
    np.testing.assert_allclose(found, run_onnx(data, {"x": x})["y"], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("largest", [0.0, 1e-30, 1.0, 3e38])
@pytest.mark.parametrize("kernels", ["default", "builtin"])
def test_scale_of_a_range(largest: float, kernels: str) -> None:
    """An empty range has scale 1; XNNPACK computes that without comparing."""
    nodes = [helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "y", "z"])]
    x = np.asarray([[0, largest, largest]], np.float32)
    converted = onnxtfl.onnx_to_tflite(model(nodes, x, [], {}), check=False)
    assert {"EQUAL", "SELECT_V2"}.isdisjoint(converted.report.ops_after)
    ((_, found),) = run_tflite(converted.data or b"", [x], kernels=kernels)
    np.testing.assert_allclose(found, np.float32(largest) / np.float32(255) if largest else 1.0, rtol=1e-6)
