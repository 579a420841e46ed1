"""Scatters over sizes that only a run knows: updates in a type without kernels of segments, and of one place twice."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx.parser
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


@pytest.mark.parametrize("sizes", [("n", "m", "k"), (7, 3, 5), (40, 30, 2)])
@pytest.mark.parametrize(("op", "depth"), [("ScatterElements", None), ("ScatterND", 1), ("ScatterND", 2)])
@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.uint8, np.bool_])
def test_the_last_update_of_a_place_counts(op: str, depth: int | None, sizes: tuple[Any, ...], dtype: Any) -> None:
    """ONNX leaves open what a place has that is written twice; ONNX Runtime keeps the last, SCATTER_ND would add."""
    n, m, k = (9, 4, 6) if isinstance(sizes[0], str) else sizes
    parsed = onnx.ModelProto.FromString(model(op, "none", depth, helper.np_dtype_to_tensor_dtype(np.dtype(dtype))))
    for value in parsed.graph.input:
        for dim in value.type.tensor_type.shape.dim:
            if not isinstance(sizes[0], str) and dim.dim_param:
                dim.dim_value = {"n": n, "m": m, "k": k}[dim.dim_param]
    data = parsed.SerializeToString()
    conversion = onnxtfl.onnx_to_tflite(data, check=False)
    assert conversion.report.assumptions == ()
    rng, x = np.random.default_rng(0), np.arange(n * m).reshape(n, m).astype(dtype)
    for count in (k, 0) if isinstance(sizes[0], str) else (k,):
        indices = rng.integers(-2, 2, (count, m if depth is None else depth))
        updates: Array = rng.integers(0, 99, (count,) if depth == 2 else (count, m)).astype(dtype)
        given = {"x": x, "i": indices, "u": updates}
        np.testing.assert_array_equal(run_tflite(conversion.data or b"", given)[0][1], run_onnx(data, given)["y"])


def test_places_known_to_differ_are_added_onto_zeros() -> None:
    """Positions of TopK along the axis, and of NonZero, which masks are exported as: no cost for what cannot be."""
    head = '<ir_version: 8, opset_import: ["" : 18]> g (float[8, 9] x, float[8, 3] u, float[n] v) => (float[8, 9] y)'
    top = "{ k = Constant <value_ints = [3]> ()  t, i = TopK <axis = 1> (x, k) "
    top += " y = ScatterElements <axis = 1> (x, i, u) }"
    mask = "{ p = NonZero (x)  i = Transpose <perm = [1, 0]> (p)  y = ScatterND (x, i, v) }"
    for body in (top, mask):
        made = onnxtfl.onnx_to_tflite(onnx.parser.parse_model(head + body), check=False)
        assert made.report.ops_after["SCATTER_ND"] == 2
        assert "UNSORTED_SEGMENT_MAX" not in made.report.ops_after and "EQUAL" not in made.report.ops_after


def test_windows_that_overlap_are_unpooled_once() -> None:
    """An element that is the largest of two windows is there twice; MaxUnpool writes it twice."""
    places = np.asarray([[[[5, 5], [5, 10]]]])
    node = helper.make_node("MaxUnpool", ["x", "i"], ["y"], kernel_shape=[3, 3], strides=[1, 1])
    inputs = [("x", TensorProto.FLOAT, [1, 1, 2, 2]), ("i", TensorProto.INT64, [1, 1, 2, 2])]
    data = onnx_model([node], inputs, [("y", TensorProto.FLOAT, [1, 1, 4, 4])], {}, 18).SerializeToString()
    given = {"x": np.full((1, 1, 2, 2), 3, np.float32), "i": places}
    converted = onnxtfl.onnx_to_tflite(data, check=False).data or b""
    np.testing.assert_array_equal(run_tflite(converted, given)[0][1], run_onnx(data, given)["y"])


def test_places_whose_number_is_a_product_of_multiples_of_open_sizes() -> None:
    """[4 n, 2 m] places of a [n, 4, m, 2]: neither n nor m is a size of what is written into (Longformer's masks)."""
    head = '<ir_version: 8, opset_import: ["" : 18]> g (float[n,4,m,2] x, int64[k,2] i, float[k] u) => (float[a,b] y)'
    body = """{
        n = Shape <start = 0, end = 1> (x)  m = Shape <start = 2, end = 3> (x)
        four = Constant <value_ints = [4]> ()  two = Constant <value_ints = [2]> ()
        rows = Mul (n, four)  columns = Mul (m, two)  shape = Concat <axis = 0> (rows, columns)
        flat = Reshape (x, shape)  y = ScatterND (flat, i, u)
    }"""
    data = onnx.parser.parse_model(head + body).SerializeToString()
    converted = onnxtfl.onnx_to_tflite(data, check=False).data or b""
    rng = np.random.default_rng(0)
    for n, m in ((2, 3), (1, 1)):
        given = {
            "x": rng.standard_normal((n, 4, m, 2)).astype(np.float32),
            "i": rng.integers(0, 2, (5, 2)), "u": np.arange(5, dtype=np.float32),
        }  # fmt: skip
        np.testing.assert_array_equal(run_tflite(converted, given)[0][1], run_onnx(data, given)["y"])


@pytest.mark.parametrize("shape", [["n", 3, 4, 6], ["n", 3, "h", "w"]])
def test_unpooling_with_dynamic_sizes(shape: list[int | str]) -> None:
    """After a MaxPool that returns the indices."""
    window = {"kernel_shape": [2, 2], "strides": [2, 2]}
    nodes = [
        helper.make_node("MaxPool", ["x"], ["p", "i"], **window),
        helper.make_node("MaxUnpool", ["p", "i"], ["y"], **window),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    made = onnxtfl.onnx_to_tflite(model, check=False).data
    for batch in (1, 3):
        x = np.random.default_rng(batch).permutation(batch * 72).reshape(batch, 3, 4, 6).astype(np.float32)
        (wanted,) = run_onnx(model.SerializeToString(), {"x": x}).values()
        np.testing.assert_array_equal(run_tflite(made, {"x": x})[0][1], wanted)
