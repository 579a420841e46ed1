"""Updates that are multiplied or compared in a type without kernels of segments, over sizes that only a run knows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import onnxtfl
from tests.harness.litert import Array, run_onnx, run_tflite
from tests.unit.tiny_models import onnx_model


def model(op: str, reduction: str, depth: int | None, element: int) -> bytes:
    """One op; `depth`: the last size of the indices of ScatterND."""
    node = helper.make_node(op, ["x", "i", "u"], ["y"], reduction=reduction)
    indices = ["k", "m"] if depth is None else ["k", depth]
    updates = indices if depth is None else ["k"] if depth == 2 else ["k", "m"]
    inputs = [("x", element, ["n", "m"]), ("i", TensorProto.INT64, indices), ("u", element, updates)]
    return onnx_model([node], inputs, [("y", element, None)], {}, 18).SerializeToString()


@pytest.mark.parametrize("reduction", ["mul", "max", "min"])
@pytest.mark.parametrize(("op", "depth"), [("ScatterElements", None), ("ScatterND", 1), ("ScatterND", 2)])
@pytest.mark.parametrize("dtype", [np.int64, np.uint8])
def test_updates_of_any_number(op: str, depth: int | None, reduction: str, dtype: Any) -> None:
    data = model(op, reduction, depth, helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))
    converted = onnxtfl.onnx_to_tflite(data, check=False).data or b""
    rng, x = np.random.default_rng(0), np.arange(12).reshape(4, 3).astype(dtype)
    for count in (5, 1, 0):
        indices = rng.integers(0, 3, (count, 3 if depth is None else depth))
        updates: Array = rng.integers(0, 9, (count,) if depth == 2 else (count, 3)).astype(dtype)
        given = {"x": x, "i": indices, "u": updates}
        np.testing.assert_array_equal(run_tflite(converted, given)[0][1], run_onnx(data, given)["y"])


def test_that_places_differ_is_assumed() -> None:
    """ONNX leaves open what a place has that is written twice; with a reduction, or constant indices, nothing is."""
    line = "nothing is scattered to one place twice without a reduction: ONNX leaves open what it has, LiteRT adds"
    for op, depth in (("ScatterElements", None), ("ScatterND", 1)):
        for reduction, wanted in (("none", (line,)), ("add", ())):
            data = model(op, reduction, depth, TensorProto.FLOAT)
            assert onnxtfl.onnx_to_tflite(data, check=False).report.assumptions == wanted
    node = helper.make_node("ScatterElements", ["x", "i", "u"], ["y"])
    inputs = [("x", TensorProto.FLOAT, [4]), ("u", TensorProto.FLOAT, [2])]
    known = onnx_model([node], inputs, [("y", TensorProto.FLOAT, [4])], {"i": np.asarray([2, 0])}, 18)
    assert onnxtfl.onnx_to_tflite(known, check=False).report.assumptions == ()
