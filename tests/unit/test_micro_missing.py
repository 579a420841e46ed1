"""Ops that TFLite Micro has no kernel for, made of those that it has: top-k, scattering, convolutions of volumes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import onnxtfl
from onnxtfl.runtimes import MICRO
from tests.unit.tiny_models import onnx_model, saved

pytestmark = pytest.mark.skipif(not MICRO.available(), reason="needs tflite-micro (pip install 'onnxtfl[micro]')")
F, I32, I64 = TensorProto.FLOAT, TensorProto.INT32, TensorProto.INT64
Array = np.ndarray[Any, Any]


def ran(model: onnx.ModelProto) -> onnxtfl.Conversion:
    """The conversion, whose result TFLite Micro has computed as ONNX Runtime does."""
    conversion = onnxtfl.onnx_to_tflite(model, target="micro", check="require")
    assert conversion.check is not None
    assert conversion.check.ok
    assert conversion.check.runtimes[-1].startswith("micro ")
    return conversion


def top_k(shape: Sequence[int], k: int, axis: int = -1, dtype: int = F, **attributes: int) -> onnx.ModelProto:
    """TopK along an axis."""
    found = [k if i == axis % len(shape) else d for i, d in enumerate(shape)]
    node = helper.make_node("TopK", ["x", "k"], ["values", "indices"], axis=axis, **attributes)
    outputs = [("values", dtype, found), ("indices", I64, found)]
    return onnx_model([node], [("x", dtype, shape)], outputs, {"k": np.array([k])})


@pytest.mark.parametrize("shape", [(7,), (2, 3, 5)])
@pytest.mark.parametrize("largest", [0, 1])
def test_the_largest_are_found_by_comparing_all_pairs(shape: Sequence[int], largest: int) -> None:
    conversion = ran(top_k(shape, 3, largest=largest))
    assert "WHILE" not in conversion.report.ops_after


def test_the_largest_of_integers_along_another_axis() -> None:
    ran(top_k((6, 2), 4, axis=0, dtype=I32))


def test_the_largest_of_many_are_found_one_in_each_round() -> None:
    assert "ARG_MAX" in ran(top_k((2, 300), 20)).report.ops_after


def test_of_equal_elements_the_first_ones_are_found(tmp_path: Path) -> None:
    """Also where all that are left are -inf."""
    lowest = -np.inf
    for copies in (1, 30):
        x = np.tile(np.array([[1, lowest, 1, lowest, 0, lowest]], np.float32), copies)
        conversion = onnxtfl.onnx_to_tflite(top_k(x.shape, 5 * copies), target="micro", check=False)
        with MICRO.worker() as worker:
            values, indices = worker.run(saved(conversion.data, tmp_path / "m.tflite"), [x])
        wanted = np.argsort(-x, kind="stable")[:, : 5 * copies]
        np.testing.assert_array_equal(indices, wanted)
        np.testing.assert_array_equal(values, np.take_along_axis(x, wanted, 1))


def scatter(shape: Sequence[int], rows: Array, dtype: int = F, **attributes: str) -> onnx.ModelProto:
    """ScatterND into the leading axes at positions that are computed."""
    updates = (*rows.shape[:-1], *shape[rows.shape[-1] :])
    nodes = [helper.make_node("Add", ["rows", "moved"], ["places"])]
    nodes += [helper.make_node("ScatterND", ["x", "places", "updates"], ["y"], **attributes)]
    inputs = [("x", dtype, shape), ("updates", dtype, updates), ("moved", I64, (1, 1))]
    return onnx_model(nodes, inputs, [("y", dtype, shape)], {"rows": rows, "floor": np.array(0)}, opset=18)


@pytest.mark.parametrize("reduction", ["none", "add", "mul", "max", "min"])
@pytest.mark.parametrize("dtype", [F, I32])
def test_rows_are_scattered(reduction: str, dtype: int) -> None:
    rows = np.array([[3], [0], [2]] if reduction == "none" else [[3], [0], [3]])
    model = scatter((5, 2), rows, dtype, reduction=reduction)
    zero_moves(model)
    ran(model)


def test_many_elements_are_scattered_in_a_loop() -> None:
    rows = np.stack([np.arange(120) % 7, np.arange(120) % 11], -1)
    model = scatter((7, 11), rows, reduction="add")
    zero_moves(model)
    assert "DYNAMIC_UPDATE_SLICE" in ran(model).report.ops_after


def zero_moves(model: onnx.ModelProto) -> None:
    """Multiply the input that moves the places by 0, so that all inputs are valid."""
    node = helper.make_node("Mul", ["moved", "floor"], ["none"])
    model.graph.node[0].input[1] = "none"
    model.graph.node.insert(0, node)


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("dilation", [1, 2])
def test_volumes_are_convolved(stride: int, dilation: int) -> None:
    rng = np.random.default_rng(1)
    constants = {"w": rng.standard_normal((4, 3, 3, 2, 3), np.float32), "b": rng.standard_normal(4, np.float32)}
    window = {"strides": [stride] * 3, "dilations": [dilation, 1, 1], "pads": [1, 0, 1, 2, 1, 0]}
    node = helper.make_node("Conv", ["x", "w", "b"], ["y"], **window)
    model = onnx_model([node], [("x", F, (2, 3, 6, 5, 4))], [("y", F, [None] * 5)], constants)
    assert "CONV_3D" not in ran(model).report.ops_after


@pytest.mark.parametrize("pads", [[0] * 6, [1, 0, 1, 0, 1, 0]])
def test_volumes_are_convolved_transposed(pads: list[int]) -> None:
    rng = np.random.default_rng(2)
    constants = {"w": rng.standard_normal((3, 2, 2, 2, 3), np.float32), "b": rng.standard_normal(2, np.float32)}
    node = helper.make_node("ConvTranspose", ["x", "w", "b"], ["y"], strides=[2, 2, 1], pads=pads)
    ran(onnx_model([node], [("x", F, (1, 3, 3, 4, 3))], [("y", F, [None] * 5)], constants))


def lstm(steps: int, **attributes: object) -> onnx.ModelProto:
    """An LSTM layer with 6 cells on [steps, 1, 4]."""
    rng = np.random.default_rng(4)
    shapes = {"w": (1, 24, 4), "r": (1, 24, 6), "b": (1, 48), "p": (1, 18)}
    constants = {name: (rng.standard_normal(shape) / 2).astype(np.float32) for name, shape in shapes.items()}
    operands = ["x", "w", "r", "b", "", "", "", "p" if attributes.pop("peepholes", False) else ""]
    node = helper.make_node("LSTM", operands, ["y", "h"], hidden_size=6, **attributes)
    return onnx_model([node], [("x", F, (steps, 1, 4))], [("y", F, (steps, 1, 1, 6)), ("h", F, (1, 1, 6))], constants)


def test_an_lstm_is_one_kernel() -> None:
    conversion = ran(lstm(20))
    assert conversion.report.ops_after["UNIDIRECTIONAL_SEQUENCE_LSTM"] == 1
    assert conversion.report.arena is not None
    assert conversion.report.arena < 8000


@pytest.mark.parametrize(
    "other", [{"peepholes": True}, {"input_forget": 1}, {"activations": ["Sigmoid", "Relu", "Relu"]}]
)
def test_an_lstm_that_the_kernel_does_not_compute_is_a_loop(other: dict[str, Any]) -> None:
    assert ran(lstm(20, **other)).report.ops_after["WHILE"] == 1
