"""The ops of the family normalization: what they mean, how they are lifted, and what is written for them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import onnxtfl
from onnxtfl.errors import InvalidModelError, UnsupportedError
from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.data import Array
from onnxtfl.ir.graph import Graph, constant
from onnxtfl.ir.types import tensor
from tests.unit.lifting import TFLITE, check_legalized, floats, lifted_onnx, onnx_target
from tests.unit.onnx_nodes import agrees_on
from tests.unit.permuting import check_permuted
from tests.unit.tiny_models import onnx_model


@pytest.mark.parametrize("target", [TFLITE, onnx_target(13), onnx_target(21)], ids=["tfl", "onnx 13", "onnx 21"])
def test_normalizations_in_every_form(target: object) -> None:
    vectors = [constant(floats(5, seed=i)) for i in range(1, 4)] + [constant(np.abs(floats(5, seed=4)))]
    for axis, shape in ((1, (2, 5, 3, 4)), (3, (2, 3, 4, 5)), (1, (2, 5))):
        batch_norm = {"feature_index": axis, "epsilon": 1e-3}
        operands = [floats(*shape), *vectors]
        check_legalized(ops.BatchNormInference, operands, target=target, attributes=batch_norm, rtol=1e-4, atol=1e-5)
    lrn = {"axis": 1, "size": 4, "alpha": 0.3, "beta": 0.6, "bias": 2.0}
    for axis in (1, 3):
        check_legalized(ops.LRN, [floats(2, 7, 3, 8)], target=target, attributes={**lrn, "axis": axis}, rtol=1e-5)
    layer = [floats(2, 3, 5), vectors[0], vectors[1]]
    check_legalized(ops.LayerNorm, layer, target=target, attributes={"axis": -1}, rtol=1e-5, atol=1e-6)


def test_normalizations_permuted() -> None:
    vectors = [floats(3, seed=i) for i in range(3)] + [np.abs(floats(3, seed=3))]
    x = floats(2, 3, 4, 5)
    for permutation in ((0, 2, 3, 1), (3, 2, 1, 0)):
        assert check_permuted(ops.BatchNormInference, [x, *vectors], {"feature_index": 1}, 0, permutation)
        assert check_permuted(ops.LRN, [x], {"axis": 1, "size": 3}, -1, permutation)


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
    found = lifted_onnx("BatchNormalization", opset, [x, *vectors], **attributes)
    np.testing.assert_allclose(found, normalized(x, *vectors), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("training", [0, 1])
def test_batch_normalization_of_one_axis(training: int) -> None:
    """It is the batch, of one feature (the definition of the op)."""
    x, vectors = floats(7), [floats(1, seed=1), floats(1, seed=2), floats(1, seed=3), np.abs(floats(1, seed=4))]
    found = lifted_onnx("BatchNormalization", 15, [x, *vectors], epsilon=1e-3, training_mode=training)
    own = [x.mean(keepdims=True), x.var(keepdims=True)] if training else vectors[2:]
    wanted = normalized(x[:, None], *vectors[:2], *own)[:, 0]
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


def test_mean_variance_normalization_of_three_axes() -> None:
    """Of the axes 0, 2 and 3 there are two, as in ONNX Runtime."""
    x = floats(2, 3, 4)
    found = lifted_onnx("MeanVarianceNormalization", 13, [x])
    mean, deviation = x.mean(axis=(0, 2), keepdims=True), x.std(axis=(0, 2), keepdims=True)
    np.testing.assert_allclose(found, (x - mean) / deviation, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("opset", [1, 8])
@pytest.mark.parametrize(("across", "axes"), [(0, (0, 2, 3)), (1, (0, 1, 2, 3))])
@pytest.mark.parametrize("divided", [0, 1])
def test_mean_variance_normalization_before_opset_9(
    opset: int, across: int, axes: tuple[int, ...], divided: int
) -> None:
    """ONNX Runtime takes its attributes; ONNX has the op since 9, with other attributes."""
    x = floats(2, 3, 4, 5)
    found = lifted_onnx("MeanVarianceNormalization", opset, [x], across_channels=across, normalize_variance=divided)
    mean, deviation = x.mean(axis=axes, keepdims=True), x.std(axis=axes, keepdims=True)
    np.testing.assert_allclose(found, (x - mean) / (deviation if divided else 1), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("opset", [1, 6, 22])
def test_instance_normalization(opset: int) -> None:
    x, scale, bias = floats(2, 3, 4, 5), floats(3), floats(3)
    mean, variance = x.mean(axis=(2, 3), keepdims=True), x.var(axis=(2, 3), keepdims=True)
    attributes: dict[str, Any] = {"consumed_inputs": [0, 0, 0]} if opset == 1 else {}
    found = lifted_onnx("InstanceNormalization", opset, [x, scale, bias], epsilon=1e-3, **attributes)
    wanted = (x - mean) / np.sqrt(variance + 1e-3) * scale.reshape(-1, 1, 1) + bias.reshape(-1, 1, 1)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("p", [1, 2])
def test_lp_normalization_keeps_zeros(p: int) -> None:
    x = floats(3, 4)
    x[1] = 0
    found = lifted_onnx("LpNormalization", 1, [x], p=p, axis=1)
    norm = np.linalg.norm(x, p, axis=1, keepdims=True)
    np.testing.assert_allclose(found, np.where(norm == 0, 0, x / np.where(norm == 0, 1, norm)), rtol=1e-5)


def test_batch_normalization_of_single_elements_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="spatial"):
        lifted_onnx("BatchNormalization", 7, [floats(2, 3, 4), *(floats(3) for _ in range(4))], spatial=0)


def test_sizes_stay_symbolic() -> None:
    graph = Graph()
    x, c = graph.add_input(tensor("float32", "n", 6, "w")), graph.add_input(tensor("float32", 6))
    b = Builder(graph)
    assert str(b(ops.GroupNorm, x, c, c, num_groups=2).type) == "tensor<[n]x6x[w]xfloat32>"
    with pytest.raises(InvalidModelError):
        b(ops.GroupNorm, x, c, c, num_groups=4)


FLOAT = TensorProto.FLOAT


def test_group_normalization_of_open_channels() -> None:
    constants = {name: np.arange(1, 5, dtype=np.float32) for name in ("scale", "bias")}
    node = helper.make_node("GroupNormalization", ["x", *constants], ["y"], num_groups=2)
    model = onnx_model([node], [("x", FLOAT, ["N", "C", 3])], [("y", FLOAT, None)], constants)
    model.opset_import[0].version = 21
    assert "RESHAPE" in onnxtfl.onnx_to_tflite(model, check=False).report.ops_after


def test_a_scale_of_one_element_does_not_say_how_many_features_there_are() -> None:
    constants = {"scale": np.asarray([2], np.float32), "bias": np.asarray([1], np.float32)}
    node = helper.make_node("GroupNormalization", ["x", *constants], ["y"], num_groups=1)
    model = onnx_model([node], [("x", FLOAT, ["N", "C", 3])], [("y", FLOAT, None)], constants)
    model.opset_import[0].version = 21
    x = np.random.default_rng(0).standard_normal((2, 4, 3)).astype(np.float32)
    assert agrees_on(onnxtfl.onnx_to_tflite(model, check=False).data, model, x)
