"""The ops of the family reductions: what they mean, how they are lifted, and what is written for them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import onnxtfl
from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.data import Array
from onnxtfl.ir.graph import Graph, constant
from onnxtfl.ir.op import Op
from onnxtfl.ir.text import print_graph
from onnxtfl.ir.types import DType, tensor
from tests.harness.litert import run_onnx, run_tflite
from tests.unit.lifting import check_legalized, floats, lifted_onnx, lifted_tfl, onnx_target
from tests.unit.onnx_nodes import agrees_on
from tests.unit.permuting import check_permuted
from tests.unit.tflite_graphs import SAMPLE, TfliteGraph, assert_same_as_litert
from tests.unit.tiny_models import onnx_model

X = np.random.default_rng(0).standard_normal((2, 3, 4)).astype(np.float32)


@pytest.mark.parametrize("kind", ["sum", "prod", "max", "min", "mean"])
@pytest.mark.parametrize("keepdims", [True, False])
@pytest.mark.parametrize("axes", [None, [1], [-1, 0]])
def test_reductions(kind: str, keepdims: bool, axes: list[int] | None) -> None:
    attributes = {"kind": kind, "keepdims": keepdims}
    operand = None if axes is None else constant(np.asarray(axes, np.int64))
    for x in (X, (X * 10).astype(np.int32), (X * 10).astype(np.int64)):
        for target in ((), (onnx_target(13),), (onnx_target(18),)):
            check_legalized(ops.Reduce, [x, operand], 1e-6, *target, attributes=attributes)


@pytest.mark.parametrize("kind", ["any", "all"])
def test_reductions_of_bools(kind: str) -> None:
    for target in ((), (onnx_target(13),)):
        check_legalized(ops.Reduce, [X > 0, constant(np.asarray([1]))], 0, *target, attributes={"kind": kind})


@pytest.mark.parametrize("dtype", [np.int64, np.int32])
def test_axes_known_at_run_time(dtype: type) -> None:
    axes = np.asarray([1], dtype)
    check_legalized(ops.Reduce, [X, axes], 1e-6, attributes={"kind": "sum", "keepdims": True})
    check_legalized(ops.Reduce, [X, axes], 1e-6, onnx_target(18), attributes={"kind": "max", "keepdims": True})


@pytest.mark.parametrize("kind", ["sum", "prod", "max", "min"])
def test_nothing_reduces_to_the_neutral_element(kind: str) -> None:
    empty = np.zeros((2, 0, 4), np.float32)
    for axes in (constant(np.asarray([1])), np.asarray([1])):
        check_legalized(ops.Reduce, [empty, axes], attributes={"kind": kind})


@pytest.mark.parametrize("dtype", [np.float32, np.int32])
def test_the_mean_of_nothing(dtype: type) -> None:
    empty, along = np.zeros((2, 4, 0), dtype), constant(np.asarray([2]))
    for keepdims in (True, False):
        attributes = {"kind": "mean", "keepdims": keepdims}
        for target in ((), (onnx_target(13),), (onnx_target(18),)):
            check_legalized(ops.Reduce, [empty, along], 0, *target, attributes=attributes)


@pytest.mark.parametrize("op", [ops.ArgMax, ops.ArgMin], ids=lambda op: op.name)
@pytest.mark.parametrize("last", [True, False])
@pytest.mark.parametrize("dtype", ["float32", "int8", "int16", "uint32", "int64", "uint64"])
def test_places_of_extremes(op: type[Op], last: bool, dtype: str) -> None:
    x = np.random.default_rng(1).integers(0, 3, (3, 5, 4)).astype(dtype)
    for keepdims in (True, False):
        attributes = {"axis": 1, "keepdims": keepdims, "select_last_index": last, "dtype": DType.INT32}
        check_legalized(op, [x], attributes=attributes)
        if dtype in ("float32", "uint64"):
            check_legalized(op, [x], target=onnx_target(13), attributes=attributes)


def test_types() -> None:
    b = Builder(Graph())
    x = b.graph.add_input(tensor("float32", "n", 3, "2*w"))
    axes = b.graph.add_input(tensor("int64", 1))
    assert str(b(ops.Reduce, x, [2], kind="sum").type) == "tensor<[n]x3xfloat32>"
    assert str(b(ops.Reduce, x, [0], kind="sum", keepdims=True).type) == "tensor<1x3x[2*w]xfloat32>"
    assert str(b(ops.Reduce, x, None, kind="sum").type) == "tensor<float32>"
    assert b(ops.Reduce, x, axes, kind="sum").rank == 2
    assert str(b(ops.ArgMax, x, axis=1, dtype=DType.INT32).type) == "tensor<[n]x1x[2*w]xint32>"
    product = b(ops.Reduce, b(ops.Shape, x), None, kind="prod")
    assert product.known is not None and str(product.known.item()) == "6*n*w"


@pytest.mark.parametrize("permutation", [(0, 2, 1), (2, 0, 1)])
def test_permuted_axes(permutation: tuple[int, int, int]) -> None:
    for keepdims in (True, False):
        assert check_permuted(ops.Reduce, [X, [-1, 0]], {"kind": "max", "keepdims": keepdims}, 0, permutation)
        assert check_permuted(ops.ArgMax, [X], {"axis": 1, "keepdims": keepdims}, 0, permutation)
    assert check_permuted(ops.Reduce, [X, [1]], {"kind": "sum", "keepdims": True}, -1, permutation)


@pytest.mark.parametrize("opset", [1, 11, 13, 18])
def test_composite_reductions_of_every_version(opset: int) -> None:
    axes = () if opset == 18 else {"axes": [1]}
    given = (X, np.asarray([1])) if opset == 18 else (X,)
    attributes = dict(axes, keepdims=0)
    big = X * 100
    wanted = {
        "ReduceL1": np.abs(X).sum(1),
        "ReduceL2": np.sqrt((X * X).sum(1)),
        "ReduceSumSquare": (X * X).sum(1),
        "ReduceLogSumExp": np.logaddexp.reduce(X, 1),
    }
    for name, result in wanted.items():
        np.testing.assert_allclose(lifted_onnx(name, opset, given, **attributes), result, rtol=1e-5)
    stable = lifted_onnx("ReduceLogSumExp", opset, [big, *given[1:]], **attributes)
    np.testing.assert_allclose(stable, np.logaddexp.reduce(big.astype(np.float64), 1), rtol=1e-5)


def test_no_axes_are_all_or_none() -> None:
    none = np.zeros(0, np.int64)
    np.testing.assert_allclose(lifted_onnx("ReduceSum", 13, [X, none], keepdims=0), X.sum(), rtol=1e-5)
    np.testing.assert_array_equal(lifted_onnx("ReduceSum", 13, [X, none], noop_with_empty_axes=1), X)
    np.testing.assert_allclose(lifted_onnx("ReduceSumSquare", 18, [X, none], noop_with_empty_axes=1), X * X, rtol=1e-6)


@pytest.mark.parametrize("axis", [np.asarray([1, 2], np.int32), np.asarray(1, np.int32), np.zeros(0, np.int32)])
@pytest.mark.parametrize("keep", [True, False])
def test_axes_of_reductions(axis: Array, keep: bool) -> None:
    wanted = X.mean(tuple(axis.reshape(-1).tolist()), keepdims=keep) if axis.size else X
    np.testing.assert_allclose(lifted_tfl("MEAN", X, axis, constants=1, keep_dims=keep), wanted, rtol=1e-5, atol=1e-6)


def test_places_have_the_type_of_the_result() -> None:
    for dtype in (DType.INT32, DType.INT64):
        options = {"output_type": dtype.value.upper()}
        found = lifted_tfl("ARG_MAX", X, np.asarray(-1, np.int32), constants=1, result=dtype, **options)
        assert found.dtype == dtype.numpy
        np.testing.assert_array_equal(found, X.argmax(-1))


@pytest.mark.parametrize(("op", "keep"), [("ReduceMean", 1), ("ReduceSum", 0)])
@pytest.mark.parametrize("shape", [(1, 512, 512, 4), (1, 1, 512, 512, 4)])
def test_sums_of_many_floats(op: str, keep: int, shape: tuple[int, ...]) -> None:
    """A kernel adds them one after the other, with an error of 10^-4 for 500,000; sums of sums have 10^-6."""
    x = (floats(*shape) ** 2).astype(np.float32)
    axes = [len(shape) - 3, len(shape) - 2]
    node = helper.make_node(op, ["x"], ["y"], axes=axes, keepdims=keep)
    model = onnx_model([node], [("x", TensorProto.FLOAT, shape)], [("y", TensorProto.FLOAT, None)], opset=11)
    found = run_tflite(onnxtfl.onnx_to_tflite(model, check=False).data or b"", {"x": x})[0][1]
    exact = x.astype(np.float64)
    wanted = exact.mean(tuple(axes), keepdims=bool(keep)) if keep else exact.sum(tuple(axes))
    np.testing.assert_allclose(found, wanted, rtol=2e-6)


FLOAT = TensorProto.FLOAT


def test_a_sum_of_everything_after_a_reshape_that_another_reshape_follows() -> None:
    nodes = [
        helper.make_node("Reshape", ["x", "s"], ["flat"]),
        helper.make_node("Unsqueeze", ["flat", "a"], ["more"]),
        helper.make_node("ReduceSum", ["flat"], ["y"]),
    ]
    constants = {"s": np.asarray([2, 64], np.int64), "a": np.asarray([-3], np.int64)}
    outputs = [("more", FLOAT, None), ("y", FLOAT, None)]
    model = onnx_model(nodes, [("x", FLOAT, [4, 2, 1, 2, 8])], outputs, constants)
    x = np.random.default_rng(0).standard_normal((4, 2, 1, 2, 8)).astype(np.float32)
    assert agrees_on(onnxtfl.onnx_to_tflite(model, check=False).data, model, x)


@pytest.mark.parametrize("axes", [[1, 1], [2, -1, 0]])
def test_an_axis_named_twice_counts_once(axes: list[int]) -> None:
    assert_same_as_litert(lambda g: g.op("SUM", [g.given(SAMPLE), g.constant(axes, "int32")]))
    assert_same_as_litert(lambda g: g.op("SQUEEZE", [g.given(SAMPLE[:1, :1])], squeeze_dims=[0, 1, -3]))


def test_axes_of_a_scalar_are_not_read() -> None:
    assert_same_as_litert(lambda g: g.op("REDUCE_MAX", [g.given(2.0), g.constant([0], "int32")]))


def test_negative_axes_of_an_empty_operand_known_at_run_time() -> None:
    """ONNX Runtime reduces those of an empty operand only where they are counted from the first."""

    def build(g: TfliteGraph) -> Any:
        x, axes = g.given(np.zeros([0, 2]), open_axes=[0, 1]), g.given([-2, -1], "int32")
        return g.op("SUM", [x, axes], keep_dims=True, rank=2)

    assert_same_as_litert(build)


def test_reductions_of_no_elements() -> None:
    nothing = np.zeros((2, 0), np.float32)
    for op in ("MEAN", "REDUCE_MAX", "REDUCE_MIN"):
        assert_same_as_litert(lambda g, op=op: g.op(op, [g.constant(nothing, "int32"), g.constant([1], "int32")]))  # type: ignore[misc]


@pytest.mark.parametrize("keep", [True, False])
def test_the_mean_over_a_height_of_0_is_not_a_number_in_onnx_either(keep: bool) -> None:
    graph = Graph()
    x = graph.add_input(tensor("float32", 2, 3, 0, 4), "x")
    graph.outputs = [Builder(graph)(ops.Reduce, x, [2, 3], kind="mean", keepdims=keep)]
    made = onnxtfl.build_model(print_graph(graph).encode(), to="onnx", check=False)
    (found,) = run_onnx(made.data, {"x": np.zeros((2, 3, 0, 4), np.float32)}).values()
    assert np.isnan(found).all() and found.shape == ((2, 3, 1, 1) if keep else (2, 3))


def in_onnx(dtype: type, axes: list[int], keep: bool, *, of_bools: bool = False) -> onnxtfl.Conversion:
    """The sum along `axes` of x [3, 4, 5] of integers, or of bools as such."""
    graph = Graph()
    x = graph.add_input(tensor("bool" if of_bools else dtype.__name__, 3, 4, 5), "x")
    b = Builder(graph)
    x = b(ops.Convert, x, dtype=DType(dtype.__name__)) if of_bools else x
    graph.outputs = [b(ops.Reduce, x, axes, kind="sum", keepdims=keep)]
    return onnxtfl.build_model(print_graph(graph).encode(), to="onnx", check=False)


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize(
    ("axes", "keep"), [([2], False), ([0], True), ([1], True), ([0, 2], False), ([0, 1, 2], False)]
)
def test_sums_of_integers_wrap_around_in_both_formats(dtype: type, axes: list[int], keep: bool) -> None:
    """ONNX Runtime's ReduceSum saturates, and rounds int64 to 53 bits."""
    limits = np.iinfo(dtype)
    x = np.random.default_rng(0).integers(limits.min, limits.max, (3, 4, 5), dtype)
    made, expected = in_onnx(dtype, axes, keep), x.sum(tuple(axes), dtype=dtype, keepdims=keep)
    assert made.data is not None
    np.testing.assert_array_equal(*run_onnx(made.data, {"x": x}).values(), expected)
    back = onnxtfl.onnx_to_tflite(made.data, check=False)
    assert back.data is not None
    np.testing.assert_array_equal(dict(run_tflite(back.data, {"x": x})).popitem()[1], expected)
    assert set(back.report.ops_after) <= ({"SUM"} if axes in ([2], [1]) else {"SUM", "RESHAPE"})


def test_small_sums_of_integers_are_plain_sums() -> None:
    assert "ReduceSum" in in_onnx(np.int64, [1], keep=True, of_bools=True).report.ops_after
