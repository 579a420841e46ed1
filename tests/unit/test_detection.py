"""The ops of the family detection: what they mean, how they are lifted, and what is written for them."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import onnxtfl
from onnxtfl.evaluation import Evaluator
from onnxtfl.formats.tflite import writer
from onnxtfl.ir.model import Model
from onnxtfl.ir.text import parse_graph
from onnxtfl.ir.types import tensor
from tests.harness.litert import run_onnx, run_tflite
from tests.unit.tflite_files import assert_converts_alike, tflite_file
from tests.unit.tflite_graphs import TfliteGraph, assert_same_as_litert
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


def test_boxes_of_negative_width_and_height_drop_no_others() -> None:
    """Of boxes by their centers; two negative sizes have a positive product. Selected: boxes far apart, and those."""
    node = helper.make_node("NonMaxSuppression", ["boxes", "scores", "limit", "overlap"], ["y"], center_point_box=1)
    inputs = [("boxes", TensorProto.FLOAT, [1, "n", 4]), ("scores", TensorProto.FLOAT, [1, 1, "n"])]
    limits = {"limit": np.array([20]), "overlap": np.zeros(1, np.float32)}
    model = onnx_model([node], inputs, [("y", TensorProto.INT64, None)], limits).SerializeToString()
    random = np.random.default_rng(0)
    signs = np.array([[1, 1, 1, 1], [1, 1, -1, 1], [1, 1, 1, -1], [1, 1, -1, -1]], np.float32)
    boxes = (random.random((1, 20, 4), np.float32) + 0.5) * np.tile(signs, (5, 1))
    feed = {"boxes": boxes, "scores": random.random((1, 1, 20), np.float32)}
    expected = run_onnx(model, feed)["y"]
    assert 15 <= len(expected) < 20
    found = run_tflite(onnxtfl.onnx_to_tflite(model, check=False).data or b"", feed)[0][1]
    np.testing.assert_array_equal(found, expected)


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


def selection(threshold: float) -> bytes:
    """A NON_MAX_SUPPRESSION_V5 with sigma 0 of three boxes, of which the last is far from the others."""
    text = f"""
    graph main(%s: tensor<3xfloat32>, %b: tensor<3x4xfloat32>) -> (%i, %t, %n) {{
      %m = constant tensor<int32> [3]
      %o = constant tensor<float32> [{threshold}]
      %l = constant tensor<float32> [0.0]
      %z = constant tensor<float32> [0.0]
      %i, %t, %n = tfl.NON_MAX_SUPPRESSION_V5@1(%b, %s, %m, %o, %l, %z)
        : tensor<3xint32>, tensor<3xfloat32>, tensor<int32>
    }}"""
    file = io.BytesIO()
    writer.write(Model(parse_graph(text)), file)
    return file.getvalue()


@pytest.mark.parametrize("threshold", [-1.0, 0.0])
def test_a_threshold_of_0_lets_no_second_box_pass(threshold: float) -> None:
    given = {
        "s": np.asarray([0.5, 0.9, 0.7], np.float32),
        "b": np.asarray([[0, 0, 1, 1], [0, 0, 1, 2], [5, 5, 6, 6]], np.float32),
    }
    data = selection(threshold)
    found = run_onnx(onnxtfl.tflite_to_onnx(data, check=False).data, given)
    for (name, wanted), other in zip(run_tflite(data, given), found.values(), strict=True):
        np.testing.assert_array_equal(other, wanted, err_msg=name)


def test_the_report_says_that_boxes_have_an_area() -> None:
    (assumed,) = onnxtfl.tflite_to_onnx(selection(0.5), check=False).report.assumptions
    assert "has a positive area" in assumed


@pytest.mark.parametrize("least", [0.0, 0.3])
def test_soft_suppression_of_boxes(least: float) -> None:
    """Overlaps lower scores; a box without an area, which does not overlap itself, is chosen again and again."""
    corners = [[0, 0, 4, 4], [0, 1, 4, 5], [3, 3, 1, 1], [0, 0, 4, 4], [9, 9, 9, 9], [8, 0, 9, 4]]
    scores = [0.9, 0.8, 0.7, 0.6, 0.05 + least, 0.5]

    def build(g: TfliteGraph) -> Any:
        numbers = [g.given(v) for v in (0.9, least, 0.4)]
        return g.op(
            "NON_MAX_SUPPRESSION_V5",
            [g.given(corners, open_axes=[0]), g.given(scores, open_axes=[0]), g.given(8, "int32"), *numbers],
            *("int32", "float32", "int32"),
        )

    assert_same_as_litert(build)


@pytest.mark.parametrize("sigma", [0.0, 0.4])
@pytest.mark.parametrize("overlap", [0.3, 0.9, 1.5])
def test_boxes_are_selected_as_litert_does(overlap: float, sigma: float) -> None:
    """Two boxes have no area, and scores that others do not have."""
    random = np.random.default_rng(0)
    boxes, scores = random.random((20, 4)).astype(np.float32), random.permutation(20).astype(np.float32) / 20
    boxes[3:5, :2] = boxes[3:5, 2:]
    numbers = [np.asarray(12, np.int32), *(np.float32(v) for v in (overlap, 0.2, sigma))]
    given = [tensor("float32", 20, 4), tensor("float32", 20), *map(np.asarray, numbers)]
    results = tensor("int32", 12), tensor("float32", 12), tensor("int32")
    data = tflite_file("NON_MAX_SUPPRESSION_V5", given, *results)
    for found, (name, wanted) in zip(
        Evaluator(data).run([boxes, scores]), run_tflite(data, [boxes, scores]), strict=True
    ):
        np.testing.assert_allclose(found, wanted, rtol=1e-5, err_msg=name)


def test_numbers_of_one_element_and_several_axes() -> None:
    data = tflite_file(
        "NON_MAX_SUPPRESSION_V5",
        [tensor("float32", 3, 4), tensor("float32", 3), *(np.full((1, 1), v, np.float32) for v in (2, 0.5, 0.0, 0.0))],
        *(tensor("int32", 2), tensor("float32", 2), tensor("int32")),
    )
    with pytest.raises(onnxtfl.InvalidModelError, match="operand limit cannot be float32"):
        onnxtfl.tflite_to_onnx(data, check=False)
    limit, *thresholds = [np.full((1, 1), 2, np.int32), *(np.full((1, 1), v, np.float32) for v in (0.5, 0.0, 0.5))]
    boxes = [tensor("float32", 3, 4), tensor("float32", 3)]
    for op, count, types in (
        ("NON_MAX_SUPPRESSION_V4", 2, [tensor("int32", 2), tensor("int32")]),
        ("NON_MAX_SUPPRESSION_V5", 3, [tensor("int32", 2), tensor("float32", 2), tensor("int32")]),
    ):
        data = tflite_file(op, [*boxes, limit, *thresholds[:count]], *types)
        assert onnxtfl.tflite_to_onnx(data, check=False).data
    on, off = (np.full((1, 1, 1), v, np.float32) for v in (2, -1))
    data = tflite_file(
        "ONE_HOT", [tensor("int32", 3), np.asarray(4, np.int32), on, off], tensor("float32", 3, 4), axis=-1
    )
    assert_converts_alike(data, np.asarray([0, 3, 1], np.int32))
