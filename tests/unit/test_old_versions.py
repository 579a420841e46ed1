"""Old op versions that no public case covers, of convolutions, pools, matmuls and normalizations: lifted and run."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from onnxtfl.errors import UnsupportedError
from onnxtfl.ir.data import Array
from onnxtfl.ir.interpret import run
from onnxtfl.pipeline import Options, inspect
from tests.unit.tiny_models import onnx_model

_RNG = np.random.default_rng(0)


def floats(*shape: int) -> Array:
    return _RNG.standard_normal(shape).astype(np.float32)


def lifted(op: str, opset: int, inputs: list[Array], results: int = 1, **attributes: Any) -> list[Array]:
    """The results of a model of one node."""
    names = [f"x{i}" for i in range(len(inputs))]
    node = helper.make_node(op, names, [f"y{i}" for i in range(results)], **attributes)
    specs = [(name, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape) for name, x in zip(names, inputs, strict=True)]
    outputs = [(name, TensorProto.FLOAT, None) for name in node.output[:1]]
    model = onnx_model([node], specs, outputs, opset=opset)
    return run(inspect(model.SerializeToString(), "lifted", Options()), inputs)


def normalized(x: Array, scale: Array, bias: Array, mean: Array, variance: Array) -> Array:
    shape = (1, -1, *[1] * (x.ndim - 2))
    scale, bias, mean, variance = (v.reshape(shape) for v in (scale, bias, mean, variance))
    return (x - mean) / np.sqrt(variance + 1e-3) * scale + bias


@pytest.mark.parametrize("opset", [1, 6, 7, 9, 14, 15])
def test_batch_normalization(opset: int) -> None:
    x, vectors = floats(2, 3, 4, 5), [floats(3), floats(3), floats(3), np.abs(floats(3))]
    attributes: dict[str, Any] = {"epsilon": 1e-3}
    if opset < 7:
        attributes["is_test"] = 1
    if opset == 1:
        attributes["consumed_inputs"] = [0, 0, 0, 1, 1]
    (found,) = lifted("BatchNormalization", opset, [x, *vectors], **attributes)
    np.testing.assert_allclose(found, normalized(x, *vectors), rtol=1e-4, atol=1e-5)


def test_batch_normalization_of_single_elements_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="spatial"):
        lifted("BatchNormalization", 7, [floats(2, 3, 4), *(floats(3) for _ in range(4))], spatial=0)


@pytest.mark.parametrize("opset", [1, 6, 7, 9, 11, 13])
def test_gemm(opset: int) -> None:
    a, b, c = floats(4, 3), floats(5, 4), floats(5)
    attributes: dict[str, Any] = {"alpha": 0.5, "beta": 2.0, "transA": 1, "transB": 1}
    if opset < 7:
        attributes["broadcast"] = 1
    (found,) = lifted("Gemm", opset, [a, b, c], **attributes)
    np.testing.assert_allclose(found, 0.5 * (a.T @ b.T) + 2 * c, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("opset", "p"), [(1, 3.0), (2, 3), (22, 1)])
def test_global_lp_pool(opset: int, p: float) -> None:
    x = floats(2, 3, 4, 5)
    (found,) = lifted("GlobalLpPool", opset, [x], p=p)
    np.testing.assert_allclose(found, (np.abs(x) ** p).sum(axis=(2, 3), keepdims=True) ** (1 / p), rtol=1e-4)


@pytest.mark.parametrize(("opset", "p"), [(1, 2.0), (2, 2), (11, 3), (18, 1), (22, 2)])
@pytest.mark.parametrize("auto_pad", ["NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"])
def test_lp_pool(opset: int, p: float, auto_pad: str) -> None:
    x = floats(1, 1, 5)
    (found,) = lifted("LpPool", opset, [x], p=p, kernel_shape=[2], strides=[2], auto_pad=auto_pad)
    padding = {"SAME_UPPER": (0, 1), "SAME_LOWER": (1, 0)}.get(auto_pad, (0, 0))
    terms = np.pad(np.abs(x[0, 0]), padding) ** p
    wanted = [(terms[i] + terms[i + 1]) ** (1 / p) for i in range(0, len(terms) - 1, 2)]
    np.testing.assert_allclose(found[0, 0], wanted, rtol=1e-5)


@pytest.mark.parametrize("opset", [1, 6, 22])
def test_instance_normalization(opset: int) -> None:
    x, scale, bias = floats(2, 3, 4, 5), floats(3), floats(3)
    mean, variance = x.mean(axis=(2, 3), keepdims=True), x.var(axis=(2, 3), keepdims=True)
    attributes: dict[str, Any] = {"consumed_inputs": [0, 0, 0]} if opset == 1 else {}
    (found,) = lifted("InstanceNormalization", opset, [x, scale, bias], epsilon=1e-3, **attributes)
    wanted = (x - mean) / np.sqrt(variance + 1e-3) * scale.reshape(-1, 1, 1) + bias.reshape(-1, 1, 1)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("p", [1, 2])
def test_lp_normalization_keeps_zeros(p: int) -> None:
    x = floats(3, 4)
    x[1] = 0
    (found,) = lifted("LpNormalization", 1, [x], p=p, axis=1)
    norm = np.linalg.norm(x, p, axis=1, keepdims=True)
    np.testing.assert_allclose(found, np.where(norm == 0, 0, x / np.where(norm == 0, 1, norm)), rtol=1e-5)


@pytest.mark.parametrize("opset", [1, 8, 10, 11, 12, 22])
def test_max_pool(opset: int) -> None:
    x = floats(2, 3, 6)
    (found,) = lifted("MaxPool", opset, [x], kernel_shape=[3], strides=[3])
    np.testing.assert_array_equal(found, x.reshape(2, 3, 2, 3).max(axis=3))


@pytest.mark.parametrize("opset", [1, 22])
def test_max_roi_pool(opset: int) -> None:
    x = floats(2, 1, 4, 4)
    rois = np.asarray([[1, 0, 0, 3, 3], [0, 2, 2, 2, 2]], np.float32)
    (found,) = lifted("MaxRoiPool", opset, [x, rois], pooled_shape=[2, 2])
    np.testing.assert_array_equal(found[0, 0], x[1, 0].reshape(2, 2, 2, 2).max(axis=(1, 3)))
    np.testing.assert_array_equal(found[1, 0], np.full((2, 2), x[0, 0, 2, 2]))


def test_resize_10_rounds_up_where_it_shrinks() -> None:
    x = np.arange(1, 9, dtype=np.float32).reshape(1, 1, 2, 4)
    (found,) = lifted("Resize", 10, [x, np.asarray([1, 1, 2, 0.6], np.float32)])
    np.testing.assert_array_equal(found[0, 0], [[1, 3], [1, 3], [5, 7], [5, 7]])


@pytest.mark.parametrize(("opset", "attributes"), [(7, {"scales": [1.0, 1.0, 2.0, 1.0]}), (9, {})])
def test_upsample(opset: int, attributes: dict[str, Any]) -> None:
    x = floats(1, 2, 2, 3)
    inputs = [x] if attributes else [x, np.asarray([1, 1, 2, 1], np.float32)]
    (found,) = lifted("Upsample", opset, inputs, **attributes)
    np.testing.assert_array_equal(found, x.repeat(2, axis=2))
