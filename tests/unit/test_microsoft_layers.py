"""Convolutions, pools and products of com.microsoft, computed by ONNX Runtime's own kernels and by converted models."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import onnxtfl
from onnxtfl.errors import UnsupportedError
from tests.harness.litert import run_onnx, run_tflite
from tests.unit.test_gated_layers import with_open_batch
from tests.unit.test_microsoft_ops import compare, made, normal


@pytest.mark.parametrize("open_", [False, True])
@pytest.mark.parametrize(("dim", "size", "step"), [(-1, 3, 2), (1, 4, 1), (0, 1, 3)])
def test_unfolded_slices(dim: int, size: int, step: int, open_: bool) -> None:
    x = {"x": normal(3, 5, 8)}
    compare(made("UnfoldTensor", x, dim=dim, size=size, step=step, open_=open_), x)


@pytest.mark.parametrize(("shape", "pooled"), [((2, 3, 9), (3,)), ((1, 2, 6, 7), (2, 3)), ((1, 1, 3, 4, 5), (2, 2, 2))])
def test_pools_up_to_a_masked_element(shape: tuple[int, ...], pooled: tuple[int, ...]) -> None:
    mask = (np.random.default_rng(1).random((1, 1, *shape[2:])) > 0.3).astype(np.int32)
    mask[..., 0] = 0
    inputs = {"x": normal(*shape), "mask": mask}
    options: dict[str, Any] = {"kernel_shape": pooled, "strides": [2] * len(pooled), "pads": [1] * 2 * len(pooled)}
    compare(made("MaxpoolWithMask", inputs, **options), inputs)
    compare(with_open_batch(made("MaxpoolWithMask", inputs, kernel_shape=pooled)), inputs)


def test_a_mask_for_each_channel_is_refused() -> None:
    inputs = {"x": normal(1, 2, 6), "mask": np.ones((1, 2, 6), np.int32)}
    with pytest.raises(UnsupportedError, match="a mask for each channel"):
        onnxtfl.onnx_to_tflite(made("MaxpoolWithMask", inputs, kernel_shape=[2]), check=False)


def test_products_of_16_bits() -> None:
    rng = np.random.default_rng(2)
    inputs = {name: rng.integers(-30000, 30000, (2, 3)).astype(np.int16) for name in "ab"}
    inputs["b"] = inputs["b"].T.copy() // 4
    compare(made("MatMulInteger16", inputs, results=TensorProto.INT32), inputs)


def test_the_op_that_returns_its_operand() -> None:
    compare(made("SampleOp", {"x": normal(2, 3)}), {"x": normal(2, 3)})


def test_transposed_convolution_with_padding_as_an_operand() -> None:
    x = {"x": normal(1, 2, 4, 5)}
    weights = {"w": normal(2, 3, 3, 3), "pads": np.array([0, 1, 2, 0], np.int64), "b": normal(3)}
    compare(made("ConvTransposeWithDynamicPads", x, 1, weights, strides=[2, 1]), x)


@pytest.mark.parametrize("channels_last", [0, 1])
@pytest.mark.parametrize(("dilation", "activation"), [(1, "silu"), (2, "none")])
def test_causal_convolution_with_its_state(dilation: int, activation: str, channels_last: int) -> None:
    shapes = [(2, 3, 5), (2, 3, 3 * dilation)]
    x, past = (normal(n, k, c) if channels_last else normal(n, c, k) for n, c, k in shapes)
    weights, inputs = {"w": normal(3, 1, 4), "b": normal(3)}, {"x": x, "past": past}
    options: dict[str, Any] = {"dilation": dilation, "activation": activation, "channels_last": channels_last}
    compare(made("CausalConvWithState", inputs, 2, weights, "x,w,b,past", **options), inputs)
    compare(with_open_batch(made("CausalConvWithState", {"x": x}, 2, weights, "x,w,b", **options)), {"x": x})


def test_the_state_of_a_causal_convolution_of_one_element_has_known_sizes() -> None:
    """It has no elements, whatever the length: a Squeeze of it removes the ones of the batch only."""
    opened = onnx.load_from_string(made("CausalConvWithState", {"x": normal(2, 3, 5)}, 2, {"w": normal(3, 1, 1)}))
    for i, name in ((0, "n"), (2, "length")):
        opened.graph.input[0].type.tensor_type.shape.dim[i].dim_param = name
    model = opened.SerializeToString()
    assert [str(size) for size in onnxtfl.onnx_to_tflite(model, check=False).report.outputs[1].shape[1:]] == ["3", "0"]


@pytest.mark.parametrize("axis", [1, 3])
def test_softmax_with_a_bias(axis: int) -> None:
    """ONNX Runtime has a kernel for CUDA only: the definition is computed here."""
    x, bias = normal(2, 3, 4, 5), normal(2, 1, 1, 5)
    model = made("BiasSoftmax", {"x": x, "bias": bias}, axis=axis, is_inner_broadcast=1)
    ((_, found),) = run_tflite(onnxtfl.onnx_to_tflite(model, check=False).data or b"", [x, bias])
    powers = np.exp(x + bias)
    np.testing.assert_allclose(found, powers / powers.sum(tuple(range(axis, 4)), keepdims=True), rtol=1e-4)


@pytest.mark.parametrize("op", ["SkipLayerNormalization", "SkipSimplifiedLayerNormalization"])
def test_statistics_of_halves_are_float32(op: str) -> None:
    """The mean and the inverse deviation; the first is 0 where it is not subtracted."""
    x = {name: normal(2, 2, 8).astype(np.float16) for name in ("x", "s")}
    gamma = {"g": normal(8).astype(np.float16)}
    model = onnx.ModelProto.FromString(made(op, x, 4, gamma, results=TensorProto.FLOAT16, epsilon=1e-5))
    for i in (1, 2):
        model.graph.output[i].type.tensor_type.elem_type = TensorProto.FLOAT
    wanted = run_onnx(model.SerializeToString(), x)
    found = run_tflite(onnxtfl.onnx_to_tflite(model, check=False).data or b"", x)
    for value, (_, got) in zip(wanted.values(), found, strict=True):
        assert got.dtype == value.dtype
        np.testing.assert_allclose(got, value, rtol=5e-3, atol=5e-3)


@pytest.mark.parametrize("op", ["LayerNormalization", "SimplifiedLayerNormalization"])
@pytest.mark.parametrize("types", [(np.float16, np.float32), (np.float32, np.float16)])
def test_a_scale_of_another_type(op: str, types: tuple[type, type]) -> None:
    """Normalization of ONNX Runtime, before opset 17: the result is of the scale's type."""
    x, gamma = {"x": normal(3, 8).astype(types[0])}, {"g": normal(8).astype(types[1])}
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(types[1]))
    model = onnx.ModelProto.FromString(made(op, x, 1, gamma, domain="", results=kind, axis=-1))
    model.opset_import[0].version = 12
    wanted = run_onnx(model.SerializeToString(), x)["y0"]
    found = run_tflite(onnxtfl.onnx_to_tflite(model, check=False).data or b"", x)[0][1]
    assert found.dtype == wanted.dtype
    np.testing.assert_allclose(found, wanted, rtol=5e-3, atol=5e-3)
