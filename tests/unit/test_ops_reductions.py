"""Reductions, softmax, quantization by operands and random numbers: meaning, lifting, and what stands for them."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

from onnxtfl.errors import UnsupportedError
from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.graph import Graph, constant
from onnxtfl.ir.interpret import run
from onnxtfl.ir.op import Effect, Op
from onnxtfl.ir.types import DType, tensor
from onnxtfl.pipeline import Options, inspect
from tests.conformance.cases import Case
from tests.unit.lifting import cases_of, check_legalized, check_lifted, onnx_target
from tests.unit.relabeling import check_relabel
from tests.unit.tiny_models import onnx_model

_FAMILY = """
ArgMax ArgMin CumProd CumSum Hardmax LogSoftmax ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean
ReduceMin ReduceProd ReduceSum ReduceSumSquare Softmax
"""
X = np.random.default_rng(0).standard_normal((2, 3, 4)).astype(np.float32)


@pytest.mark.parametrize("case", cases_of(_FAMILY), ids=lambda c: c.name)
def test_lifted_cases_mean_what_onnx_says(case: Case) -> None:
    check_lifted(case)


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
    check_legalized(ops.CumSum, [X, axes], 1e-6, attributes={"exclusive": True})


@pytest.mark.parametrize("kind", ["sum", "prod", "max", "min"])
def test_nothing_reduces_to_the_neutral_element(kind: str) -> None:
    empty = np.zeros((2, 0, 4), np.float32)
    for axes in (constant(np.asarray([1])), np.asarray([1])):
        check_legalized(ops.Reduce, [empty, axes], attributes={"kind": kind})


@pytest.mark.parametrize("op", [ops.ArgMax, ops.ArgMin], ids=lambda op: op.name)
@pytest.mark.parametrize("last", [True, False])
@pytest.mark.parametrize("dtype", ["float32", "int8", "int16", "uint32", "int64", "uint64"])
def test_places_of_extremes(op: type[Op], last: bool, dtype: str) -> None:
    x = np.random.default_rng(1).integers(0, 3, (3, 5, 4)).astype(dtype)
    for keepdims in (True, False):
        attributes = {"axis": 1, "keepdims": keepdims, "select_last_index": last, "dtype": DType.INT32}
        check_legalized(op, [x], attributes=attributes)
        if dtype == "float32":
            check_legalized(op, [x], target=onnx_target(13), attributes=attributes)


@pytest.mark.parametrize("op", [ops.Softmax, ops.LogSoftmax], ids=lambda op: op.name)
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_softmax_along_every_axis(op: type[Op], axis: int) -> None:
    check_legalized(op, [X * 30], 1e-5, attributes={"axis": axis})


def test_types() -> None:
    b = Builder(Graph())
    x = b.graph.add_input(tensor("float32", "n", 3, "2*w"))
    axes = b.graph.add_input(tensor("int64", 1))
    assert str(b(ops.Reduce, x, [2], kind="sum").type) == "tensor<[n]x3xfloat32>"
    assert str(b(ops.Reduce, x, [0], kind="sum", keepdims=True).type) == "tensor<1x3x[2*w]xfloat32>"
    assert str(b(ops.Reduce, x, None, kind="sum").type) == "tensor<float32>"
    assert b(ops.Reduce, x, axes, kind="sum").rank == 2
    assert str(b(ops.ArgMax, x, axis=1, dtype=DType.INT32).type) == "tensor<[n]x[2*w]xint32>"
    product = b(ops.Reduce, b(ops.Shape, x), None, kind="prod")
    assert product.known is not None and str(product.known.item()) == "6*n*w"


@pytest.mark.parametrize("permutation", [(0, 2, 1), (2, 0, 1)])
def test_relabeling(permutation: tuple[int, int, int]) -> None:
    for keepdims in (True, False):
        assert check_relabel(ops.Reduce, [X, [-1, 0]], {"kind": "max", "keepdims": keepdims}, 0, permutation)
        assert check_relabel(ops.ArgMax, [X], {"axis": 1, "keepdims": keepdims}, 0, permutation)
    assert check_relabel(ops.Reduce, [X, [1]], {"kind": "sum", "keepdims": True}, -1, permutation)
    assert check_relabel(ops.Softmax, [X], {"axis": -2}, 0, permutation)
    assert check_relabel(ops.CumSum, [X, 1], {}, 0, permutation)


def _lifted(op: str, opset: int, *arrays: np.ndarray, **attributes: object) -> np.ndarray:
    names = [f"x{i}" for i in range(len(arrays))]
    types = [helper.np_dtype_to_tensor_dtype(a.dtype) for a in arrays]
    inputs = [(n, t, a.shape) for n, t, a in zip(names, types, arrays, strict=True)]
    model = onnx_model(
        [helper.make_node(op, names, ["y"], **attributes)], inputs, [("y", TensorProto.FLOAT, None)], opset=opset
    )
    model.graph.output[0].ClearField("type")
    (result,) = run(inspect(model.SerializeToString(), "lifted", Options()), arrays)
    return result


@pytest.mark.parametrize("opset", [1, 11])
@pytest.mark.parametrize("axis", [0, 1, 2, -1, 3])
def test_old_softmax_reads_a_matrix(opset: int, axis: int) -> None:
    if axis < 0 and opset == 1:
        return
    flat = X.reshape(int(np.prod(X.shape[: axis % 3 if axis < 0 else axis])), -1)
    for name, op in (("Softmax", ops.Softmax), ("LogSoftmax", ops.LogSoftmax)):
        wanted = op.evaluate({"axis": 1}, flat).reshape(X.shape)
        np.testing.assert_allclose(_lifted(name, opset, X, axis=axis), wanted, rtol=1e-6)
    found = _lifted("Hardmax", opset, X, axis=axis)
    np.testing.assert_array_equal(found.reshape(flat.shape).argmax(1), flat.argmax(1))
    assert found.sum() == len(flat)


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
        np.testing.assert_allclose(_lifted(name, opset, *given, **attributes), result, rtol=1e-5)
    stable = _lifted("ReduceLogSumExp", opset, big, *given[1:], **attributes)
    np.testing.assert_allclose(stable, np.logaddexp.reduce(big.astype(np.float64), 1), rtol=1e-5)


def test_no_axes_are_all_or_none() -> None:
    none = np.zeros(0, np.int64)
    np.testing.assert_allclose(_lifted("ReduceSum", 13, X, none, keepdims=0), X.sum(), rtol=1e-5)
    np.testing.assert_array_equal(_lifted("ReduceSum", 13, X, none, noop_with_empty_axes=1), X)
    np.testing.assert_allclose(_lifted("ReduceSumSquare", 18, X, none, noop_with_empty_axes=1), X * X, rtol=1e-6)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16"])
@pytest.mark.parametrize("axis", [None, 1])
def test_quantizing_and_back(dtype: str, axis: int | None) -> None:
    scale = np.asarray([0.1, 0.5, 2.0], np.float32) if axis else np.asarray(0.25, np.float32)
    zero = (np.arange(3) if axis else np.asarray(3)).astype(dtype)
    attributes = {"axis": 1 if axis else 0}
    operands = [X * 100, constant(scale), constant(zero)]
    check_legalized(ops.QuantizeLinear, operands, attributes={**attributes, "dtype": DType(dtype)})
    stored = (X * 50).astype(dtype)
    check_legalized(ops.DequantizeLinear, [stored, *operands[1:]], attributes=attributes)


def test_blocks_of_scales() -> None:
    x, scale = X.reshape(2, 12) * 100, np.arange(1, 7, dtype=np.float32).reshape(2, 3)
    attributes = {"axis": 1, "block_size": 4}
    check_legalized(ops.QuantizeLinear, [x, constant(scale), None], attributes={**attributes, "dtype": DType.INT8})
    check_legalized(ops.DequantizeLinear, [x.astype(np.int8), constant(scale), None], attributes=attributes)


def test_dropout_of_old_models_has_to_be_in_test_mode() -> None:
    with pytest.raises(UnsupportedError, match="test mode"):
        _lifted("Dropout", 6, X)


@pytest.mark.parametrize("opset", [1, 22])
def test_random_numbers_are_not_folded(opset: int) -> None:
    node = helper.make_node("RandomUniform", [], ["y"], shape=[2, 3], low=1.0, high=2.0, seed=4.0)
    model = onnx_model([node], [], [("y", TensorProto.FLOAT, (2, 3))], opset=opset)
    graph = inspect(model.SerializeToString(), "cleanup", Options())
    effects = [node.op.effect for node in graph.nodes]
    assert effects.count(Effect.RANDOM) == 1
    assert str(graph.outputs[0].type) == "tensor<2x3xfloat32>"
