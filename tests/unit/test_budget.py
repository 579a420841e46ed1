"""The budget of a conversion: small files that describe huge computations end early, and say why."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

import onnxtfl
from onnxtfl.ir import budget
from onnxtfl.ir.budget import LARGEST_EXPRESSION, Budget, budget_scope
from onnxtfl.ir.dims import Dim, SymDim, symbol

SYMBOLS = ["a", "b", "c", "d", "e"]


def model(nodes: Sequence[NodeProto], inputs: dict[str, list[str | int]], constants: dict[str, object]) -> bytes:
    """A model whose output is the last node's, of float inputs."""
    given = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in inputs.items()]
    stored = [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()]
    result = helper.make_empty_tensor_value_info(nodes[-1].output[0])
    graph = helper.make_graph(nodes, "g", given, [result], stored)
    made: ModelProto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    return made.SerializeToString()


@pytest.fixture
def used(monkeypatch: pytest.MonkeyPatch) -> list[Budget]:
    """The budgets of the conversions of a test."""
    made: list[Budget] = []

    class Noted(Budget):
        __slots__ = ()

        def __init__(self, *arguments: float) -> None:
            super().__init__(*arguments)
            made.append(self)

    monkeypatch.setattr("onnxtfl.pipeline.Budget", Noted)
    return made


def size_sum() -> list[NodeProto]:
    """The sum "t" of the five open sizes of x."""
    return [helper.make_node("Shape", ["x"], ["s"]), helper.make_node("ReduceSum", ["s"], ["t"], keepdims=0)]


def test_a_huge_power_wraps_around() -> None:
    nodes = [helper.make_node("Pow", ["a", "b"], ["y"])]
    onnxtfl.onnx_to_tflite(model(nodes, {}, {"a": np.int64(7), "b": np.int64(2**40)}), check=False)


def test_a_power_of_a_sum_of_sizes_stays_unknown(used: list[Budget]) -> None:
    nodes = [*size_sum(), helper.make_node("Pow", ["t", "p"], ["y"])]
    onnxtfl.onnx_to_tflite(model(nodes, {"x": [*SYMBOLS]}, {"p": np.int64(60)}), check=False)
    assert used[0].terms < 100_000


@pytest.mark.parametrize("other", ["t", "m"])
def test_repeated_products_of_sizes_stay_unknown(used: list[Budget], other: str) -> None:
    nodes, last = size_sum(), "t"
    for i in range(40):
        nodes.append(helper.make_node("Mul", [last, last if other == "m" else other], [f"m{i}"]))
        last = f"m{i}"
    onnxtfl.onnx_to_tflite(model(nodes, {"x": [*SYMBOLS]}, {}), check=False)
    assert used[0].terms < 200_000 and used[0].steps < 5_000


def test_nested_quotients_of_a_size_stay_unknown(used: list[Budget]) -> None:
    nodes = [helper.make_node("Shape", ["x"], ["s0"])]
    for i in range(40):
        nodes.append(helper.make_node("Div", [f"s{i}", "two"], [f"a{i}"]))
        nodes.append(helper.make_node("Div", [f"s{i}", "three"], [f"b{i}"]))
        nodes.append(helper.make_node("Add", [f"a{i}", f"b{i}"], [f"s{i + 1}"]))
    constants = {"two": np.asarray([2]), "three": np.asarray([3])}
    onnxtfl.onnx_to_tflite(model(nodes, {"x": ["n"]}, constants), check=False)
    assert used[0].unknown and used[0].terms < 200_000


def test_expressions_have_a_largest_size() -> None:
    total: Dim = 0
    for i in range(2 * LARGEST_EXPRESSION):
        total = total + symbol(f"n{i}") * 3
    assert isinstance(total, SymDim) and total.weight <= LARGEST_EXPRESSION


def test_the_time_limit_names_the_node() -> None:
    with budget_scope(Budget(seconds=0)) as spent, pytest.raises(onnxtfl.UnsupportedError) as error:
        for _ in range(100):
            spent.step("conv1", "Conv")
    assert error.value.code == "E-RUN-007" and error.value.node == "conv1"


def test_a_conversion_takes_no_longer_than_the_time_limit() -> None:
    nodes = [helper.make_node("Relu", [f"v{i}"], [f"v{i + 1}"]) for i in range(300)]
    with pytest.raises(onnxtfl.UnsupportedError, match="takes more than"):
        onnxtfl.onnx_to_tflite(model(nodes, {"v0": [4]}, {}), check=False, time_limit=0.001)


def test_outside_of_conversions_nothing_adds_up() -> None:
    with budget_scope(Budget(100)) as inner:
        assert inner.may_hold(60) and not inner.may_hold(60)
        inner.release(60)
        assert inner.may_hold(100) and budget.current() is inner
    assert budget.current() is not inner
    assert budget.current().may_hold(1 << 50)
    budget.current().release(1 << 50)
