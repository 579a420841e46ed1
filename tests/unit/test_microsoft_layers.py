"""Convolutions, pools and products of com.microsoft, computed by ONNX Runtime's own kernels and by converted models."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto

import onnxtfl
from onnxtfl.errors import UnsupportedError
from tests.harness.litert import run_tflite
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


@pytest.mark.parametrize("axis", [1, 3])
def test_softmax_with_a_bias(axis: int) -> None:
    """ONNX Runtime has a kernel for CUDA only: the definition is computed here."""
    x, bias = normal(2, 3, 4, 5), normal(2, 1, 1, 5)
    model = made("BiasSoftmax", {"x": x, "bias": bias}, axis=axis, is_inner_broadcast=1)
    ((_, found),) = run_tflite(onnxtfl.onnx_to_tflite(model, check=False).data or b"", [x, bias])
    powers = np.exp(x + bias)
    np.testing.assert_allclose(found, powers / powers.sum(tuple(range(axis, 4)), keepdims=True), rtol=1e-4)
