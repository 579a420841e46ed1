"""The ops of the family detection: what they mean, how they are lifted, and what is written for them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import onnxtfl
from tests.harness.litert import run_onnx, run_tflite
from tests.unit.tiny_models import onnx_model

OPTIONS = {
    "limit": np.array([3], np.int64),
    "overlap": np.array([0.4], np.float32),
    "least": np.array([0.2], np.float32),
}


@pytest.mark.parametrize("given", [False, True], ids=["constants", "inputs"])
@pytest.mark.parametrize("centered", [0, 1])
@pytest.mark.parametrize("shape", [("b", 3, 7), (2, "c", 7), ("b", "c", "n")])
@pytest.mark.parametrize("sizes", [(2, 3, 7), (0, 3, 7)], ids=str)
def test_boxes_of_an_open_number_of_lists(
    sizes: tuple[int, int, int], shape: tuple[Any, ...], centered: int, given: bool
) -> None:
    """One list in each round of a loop; its batch and class follow from its number."""
    random = np.random.default_rng(0)
    if 0 in sizes and shape[0] != "b":
        return
    x = {
        "boxes": random.random((sizes[0], sizes[2], 4), np.float32) + np.float32([0, 0, 0.5, 0.5]),
        "scores": random.random(sizes, np.float32),
    }
    node = helper.make_node("NonMaxSuppression", [*x, *OPTIONS], ["y"], center_point_box=centered)
    boxes = ("boxes", TensorProto.FLOAT, [shape[0], shape[2], 4])
    inputs = [boxes, ("scores", TensorProto.FLOAT, shape)]
    if given:
        kinds = (TensorProto.INT64, TensorProto.FLOAT, TensorProto.FLOAT)
        inputs += [(name, kind, [1]) for name, kind in zip(OPTIONS, kinds, strict=True)]
    constants = {} if given else OPTIONS
    model = onnx_model([node], inputs, [("y", TensorProto.INT64, None)], constants).SerializeToString()
    feed = {**x, **(OPTIONS if given else {})}
    found = run_tflite(onnxtfl.onnx_to_tflite(model, check=False).data or b"", feed)[0][1]
    np.testing.assert_array_equal(found, run_onnx(model, feed)["y"])


@pytest.mark.parametrize("lists", [[1, 2], ["n", "k"]], ids=["known", "open"])
@pytest.mark.parametrize("least", [0.3, -1.0, 2.0])
def test_the_first_of_boxes_with_equal_scores_is_chosen_first(lists: list[int | str], least: float) -> None:
    """LiteRT takes them from a heap that compares scores only; ONNX Runtime takes the first one first."""
    node = helper.make_node("NonMaxSuppression", ["boxes", "scores", *OPTIONS], ["y"])
    inputs = [("boxes", TensorProto.FLOAT, [lists[0], 90, 4]), ("scores", TensorProto.FLOAT, [*lists, 90])]
    names = list(OPTIONS)
    arrays = dict(zip(names, (np.array([30]), np.float32([0.4]), np.float32([least])), strict=True))
    model = onnx_model([node], inputs, [("y", TensorProto.INT64, None)], arrays).SerializeToString()
    random = np.random.default_rng(0)
    boxes = random.random((1, 90, 4), np.float32) * 20 + np.float32([0, 0, 20, 20])
    feed = {"boxes": boxes, "scores": random.integers(0, 5, (1, 2, 90)).astype(np.float32) / 4}
    made = onnxtfl.onnx_to_tflite(model, check=False)
    assert not made.report.assumptions
    for kernels in ("default", "builtin"):
        found = run_tflite(made.data or b"", feed, kernels=kernels)[0][1]
        np.testing.assert_array_equal(found, run_onnx(model, feed)["y"])


@pytest.mark.parametrize("form", ["dequantized", "sigmoid", "moved"])
def test_the_first_of_boxes_with_equal_quantized_scores_is_chosen_first(form: str) -> None:
    random = np.random.default_rng(0)
    boxes = random.random((1, 300, 4), np.float32) * 20 + np.float32([0, 0, 20, 20])
    scores = random.integers(0, 9, (1, 2, 300)).astype(np.uint8)
    constants = {**OPTIONS, "limit": np.array([40], np.int64), "s": np.float32(0.1), "z": np.uint8(0)}
    after = {"dequantized": "Identity", "sigmoid": "Sigmoid", "moved": "Neg"}[form]
    nodes = [
        helper.make_node("DequantizeLinear", ["scores", "s", "z"], ["f"]),
        helper.make_node(after, ["f"], ["g"]),
        helper.make_node("Abs" if form == "moved" else "Identity", ["g"], ["h"]),
        helper.make_node("NonMaxSuppression", ["boxes", "h", *OPTIONS], ["y"]),
    ]
    inputs = [("boxes", TensorProto.FLOAT, boxes.shape), ("scores", TensorProto.UINT8, scores.shape)]
    arrays = {name: np.asarray(array) for name, array in constants.items()}
    model = onnx_model(nodes, inputs, [("y", TensorProto.INT64, None)], arrays).SerializeToString()
    feed = {"boxes": boxes, "scores": scores}
    found = run_tflite(onnxtfl.onnx_to_tflite(model, check=False).data or b"", feed)[0][1]
    np.testing.assert_array_equal(found, run_onnx(model, feed)["y"])
