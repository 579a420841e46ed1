"""The ops of the family gathering: what they mean, how they are lifted, and what is written for them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import onnxtfl
from onnxtfl.build.indices import nonnegative
from onnxtfl.errors import InvalidModelError
from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.facts import never_negative
from onnxtfl.ir.graph import Graph, Value
from onnxtfl.ir.op import Op
from onnxtfl.ir.types import tensor
from tests.harness.litert import run_onnx, run_tflite
from tests.unit.tflite_graphs import SAMPLE, assert_same_as_litert
from tests.unit.tiny_models import onnx_model


def test_only_indices_that_may_be_negative_cost_something() -> None:
    graph = Graph()
    b = Builder(graph)
    ids = graph.add_input(tensor("int64", 3))
    assert nonnegative(b, ids, 10).producer is not None
    x = graph.add_input(tensor("float32", 2, 8))
    best = b(ops.ArgMax, x, axis=1, keepdims=False)
    for value in (best, b(ops.Add, best, b.scalar(1, best)), b.many(ops.TopK, x, [2], axis=1)[1]):
        assert nonnegative(b, value, 10) is value
    fixed = nonnegative(b, b.value([1, -1, -10]), 10)
    assert fixed.numpy().tolist() == [1, 9, 0]


def test_signs_are_not_guessed() -> None:
    graph = Graph()
    b = Builder(graph)
    ids = graph.add_input(tensor("int64", 3))
    chain: Value = ids
    for _ in range(200):
        chain = b(ops.Add, chain, chain)
    assert not never_negative(chain)
    assert not never_negative(b(ops.Sub, b(ops.FloorMod, ids, b.scalar(4, ids)), b.scalar(1, ids)))


@pytest.mark.parametrize(
    ("op", "shapes", "attributes"),
    [
        (ops.Gather, [(2, 3), (4,)], {"axis": 2}),
        (ops.GatherND, [(2, 3), (4, 3)], {}),
        (ops.ScatterND, [(2, 3), (4, 1), (4,)], {}),
        (ops.GatherElements, [(2, 3), (4,)], {"axis": 0}),
    ],
)
def test_misfits_are_refused(op: type[Op], shapes: list[tuple[int, ...]], attributes: dict[str, Any]) -> None:
    graph = Graph()
    types = [tensor("int64" if i == 1 else "float32", *s) for i, s in enumerate(shapes)]
    with pytest.raises(InvalidModelError):
        Builder(graph)(op, *(graph.add_input(t) for t in types), **attributes)


@pytest.mark.parametrize(("depth", "batch"), [(1, 1), (2, 1), (1, 2)])
def test_vectors_of_indices_into_open_axes_after_batch_axes(depth: int, batch: int) -> None:
    """The indexed axes are merged to one, whose strides are known at run time."""
    x = np.arange(120, dtype=np.float32).reshape(2, 3, 5, 4)
    random, shape = np.random.default_rng(0), (2, 3, 6)[: batch + 1]
    places = np.stack([random.integers(-n, n, shape) for n in x.shape[batch : batch + depth]], -1)
    node = helper.make_node("GatherND", ["x", "i"], ["y"], batch_dims=batch)
    inputs = [("x", TensorProto.FLOAT, ["a", "b", "c", "d"]), ("i", TensorProto.INT64, ["a", "b", "n"][: batch + 1])]
    inputs[1][2][batch:] = ["n", depth]
    model = onnx_model([node], inputs, [("y", TensorProto.FLOAT, None)]).SerializeToString()
    feed = {"x": x, "i": places}
    found = run_tflite(onnxtfl.onnx_to_tflite(model, check=False).data or b"", feed)[0][1]
    np.testing.assert_array_equal(found, run_onnx(model, feed)["y"])


@pytest.mark.parametrize("batch", [0, 1])
@pytest.mark.parametrize("constants", [(), ("x",), ("x", "i")])
def test_vectors_of_indices_without_elements_mean_all(batch: int, constants: tuple[str, ...]) -> None:
    arrays = {"x": np.asarray([[1.5], [2.5]], np.float32), "i": np.zeros((2, 3, 0), np.int64)}
    types = {"x": TensorProto.FLOAT, "i": TensorProto.INT64}
    inputs = [(name, types[name], array.shape) for name, array in arrays.items() if name not in constants]
    stored = {name: arrays[name] for name in constants}
    node = helper.make_node("GatherND", ["x", "i"], ["y"], batch_dims=batch)
    model = onnx_model([node], inputs, [("y", TensorProto.FLOAT, None)], stored).SerializeToString()
    feed = {name: array for name, array in arrays.items() if name not in constants}
    found = run_tflite(onnxtfl.onnx_to_tflite(model, check=False).data or b"", feed)[0][1]
    np.testing.assert_array_equal(found, run_onnx(model, feed)["y"])


@pytest.mark.parametrize(
    ("shape", "length", "axis"), [(("a", 3), "n", 0), ((2, 3), "n", 1), ((2, 3), "n", None), ((2, 3), 9, 1)]
)
def test_a_condition_longer_than_the_axis(shape: tuple[int | str, ...], length: int | str, axis: int | None) -> None:
    """What is beyond the axis counts for nothing, as in ONNX Runtime; LiteRT's GATHER ended the run."""
    node = helper.make_node("Compress", ["x", "c"], ["y"], **({} if axis is None else {"axis": axis}))
    inputs = [("x", TensorProto.FLOAT, shape), ("c", TensorProto.BOOL, [length])]
    model = onnx_model([node], inputs, [("y", TensorProto.FLOAT, None)]).SerializeToString()
    converted = onnxtfl.onnx_to_tflite(model, check=False).data or b""
    for count in (1, 2, 9) if length == "n" else (9,):
        feed = {"x": np.arange(6, dtype=np.float32).reshape(2, 3), "c": np.arange(count) % 2 == 0}
        np.testing.assert_array_equal(run_tflite(converted, feed)[0][1], run_onnx(model, feed)["y"])


FLOAT = TensorProto.FLOAT


@pytest.mark.parametrize("count", [1, 2, 4])
def test_compress_by_a_condition_of_open_size(count: int) -> None:
    """It may be shorter than the axis, or longer: entries beyond the axis count for nothing."""
    from tests.harness.litert import run_onnx, run_tflite

    nodes = [helper.make_node("Compress", ["x", "c"], ["y"], axis=1), helper.make_node("Conv", ["z", "w"], ["v"])]
    inputs = [("x", FLOAT, [3, "M"]), ("c", TensorProto.BOOL, ["N"]), ("z", FLOAT, [1, "M", 1, 1])]
    weight = {"w": np.ones((1, 2, 1, 1), np.float32)}  # M is 2
    model = onnx_model(nodes, inputs, [("y", FLOAT, None), ("v", FLOAT, None)], weight)
    feed = {"x": np.arange(6, dtype=np.float32).reshape(3, 2), "c": np.ones(count, np.bool_)}
    feed["z"] = np.ones((1, 2, 1, 1), np.float32)
    found = dict(run_tflite(onnxtfl.onnx_to_tflite(model, check=False).data, feed))["y"]
    np.testing.assert_array_equal(found, run_onnx(model.SerializeToString(), feed)["y"])


def test_an_element_of_each_row_of_a_constant() -> None:
    table, places = np.asarray([[1, 2], [3, 4]], np.uint8), [1, 0]
    assert_same_as_litert(
        lambda g: g.op("GATHER", [g.constant(table), g.constant(places, "int32")], axis=1, batch_dims=1)
    )


def test_windows_gathered_from_open_sizes() -> None:
    """Their starts are clamped so that they fit."""
    options = {"offset_dims": [1, 2, 3], "rank": 4, "start_index_map": [1], "index_vector_dim": 1}
    assert_same_as_litert(
        lambda g: g.op(
            "STABLEHLO_GATHER",
            [g.given(SAMPLE, open_axes=[0, 1, 2]), g.constant([[2], [0], [-3]], "int32")],
            **options,
            slice_sizes=[2, 2, 3],
        ),
        [(4, 2, 5)],
    )
