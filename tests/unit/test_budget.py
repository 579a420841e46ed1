"""The budget of a conversion: small files that describe huge computations end early, and say why."""

from __future__ import annotations

import copy
import itertools
import sys
from collections.abc import Sequence
from types import FrameType

import numpy as np
import pytest
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

import onnxtfl
from onnxtfl.ir import budget, ops
from onnxtfl.ir.budget import LARGEST_EXPRESSION, MOST_NODES_OF_RULE, Budget, Loops, budget_scope
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.dims import Dim, SymDim, symbol
from onnxtfl.ir.graph import Graph
from onnxtfl.ir.origin import Origin
from onnxtfl.ir.outputs import Outputs
from onnxtfl.ir.types import tensor
from onnxtfl.passes.boundary.parts import separate_outputs

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

        def __init__(self, *arguments: float, loops: Loops) -> None:
            super().__init__(*arguments, loops=loops)
            made.append(self)

    monkeypatch.setattr("onnxtfl.pipeline_run.Budget", Noted)
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
        assert inner.may_hold(100) and budget.current_budget() is inner
    assert budget.current_budget() is not inner
    assert budget.current_budget().may_hold(1 << 50)
    budget.current_budget().release(1 << 50)


def gathered(nodes: list[NodeProto], last: str) -> list[NodeProto]:
    """The nodes, then one that reads an element of `last` at run time."""
    return [*nodes, helper.make_node("Gather", [last, "i"], ["y"])]


def doubled(first: str, times: int) -> list[NodeProto]:
    """Concatenations of a tensor with itself, `times` in a chain; the last is called f"{first}{times}"."""
    names = [first, *(f"{first}{i + 1}" for i in range(times))]
    return [helper.make_node("Concat", [a, a], [b], axis=0) for a, b in itertools.pairwise(names)]


def test_doubling_is_not_folded(used: list[Budget]) -> None:
    nodes = [*doubled("c", 16), helper.make_node("Mul", ["c16", "x"], ["y"])]
    onnxtfl.onnx_to_tflite(model(nodes, {"x": [1]}, {"c": np.ones(1024, np.float32)}), check=False)
    assert used[0].held <= 1 << 16


def test_the_limit_of_memory_is_that_of_all_nodes(used: list[Budget]) -> None:
    nodes = []
    for i in range(40):
        nodes.append(helper.make_node("Sin", ["c"], [f"a{i}"]))
        nodes.append(helper.make_node("Mul", [f"a{i}", f"x{i}"], [f"b{i}"]))
    nodes.append(helper.make_node("Concat", [f"b{i}" for i in range(40)], ["y"], axis=0))
    source = model(nodes, {f"x{i}": [1] for i in range(40)}, {"c": np.arange(100_000, dtype=np.float32)})
    whole = onnxtfl.onnx_to_tflite(source, check=False)
    part = onnxtfl.onnx_to_tflite(source, check=False, max_memory=1)
    assert "SIN" not in whole.report.ops_after and part.report.ops_after["SIN"]
    assert used[1].held <= 1 << 20 < used[0].held


def test_a_chain_of_folded_nodes_holds_one_result(used: list[Budget]) -> None:
    nodes = [helper.make_node("Sin" if i % 2 else "Exp", [f"c{i}"], [f"c{i + 1}"]) for i in range(20)]
    nodes.append(helper.make_node("Mul", ["c20", "x"], ["y"]))
    made = onnxtfl.onnx_to_tflite(model(nodes, {"x": [1]}, {"c0": np.ones(1000, np.float32)}), check=False)
    assert made.report.ops_after == {"MUL": 1} and used[0].held <= 8000


def test_products_of_constant_integers_are_bounded(used: list[Budget]) -> None:
    nodes = [helper.make_node("MatMul", [f"c{i}", "c0"], [f"c{i + 1}"]) for i in range(100)]
    source = model(gathered(nodes, "c100"), {}, {"c0": np.ones((600, 600), np.int64), "i": np.asarray([0])})
    with budget_scope(Budget()):
        onnxtfl.onnx_to_tflite(source, check=False)
    assert used[0].elements <= budget.MOST_ELEMENTS


@pytest.mark.parametrize("op", ["LRN", "AveragePool", "MaxPool"])
def test_huge_windows_are_refused_at_their_node(op: str) -> None:
    attributes = {
        "LRN": {"size": 2**31 - 1},
        "AveragePool": {"kernel_shape": [2**20, 2**20], "pads": [2**19] * 4},
        "MaxPool": {"kernel_shape": [600, 600], "dilations": [2, 2]},
    }
    outputs = ["y", "indices"] if op == "MaxPool" else ["y"]
    node = helper.make_node(op, ["x"], outputs, name="pool", **attributes[op])
    sizes: list[int | str] = [1, 1, 1300, 1300] if op == "MaxPool" else [1, 3, 4, 4]
    with pytest.raises(onnxtfl.UnsupportedError) as error:
        onnxtfl.onnx_to_tflite(model([node], {"x": sizes}, {}), check=False)
    assert error.value.code == "E-OP-008" and error.value.node in ("pool", "y")


def test_a_huge_signal_window_is_refused() -> None:
    node = helper.make_node("HannWindow", ["n"], ["y"], name="hann")
    with pytest.raises(onnxtfl.UnsupportedError) as error:
        onnxtfl.onnx_to_tflite(model([node], {}, {"n": np.int64(2**31)}), check=False)
    assert (error.value.code, error.value.node) == ("E-OP-008", "hann")


@pytest.mark.parametrize("op", ["EyeLike", "OneHot"])
def test_large_results_are_computed_at_run_time(op: str) -> None:
    nodes = [helper.make_node("EyeLike", ["x"], ["y"])]
    if op == "OneHot":
        nodes = [helper.make_node("ArgMax", ["x"], ["i"]), helper.make_node("OneHot", ["i", "depth", "values"], ["y"])]
    constants = {"depth": np.int64(2**31 - 1), "values": np.asarray([0, 1], np.float32)}
    made = onnxtfl.onnx_to_tflite(model(nodes, {"x": [40_000, 40_000]}, constants), check=False)
    assert made.data is not None and len(made.data) < 1 << 20


def test_a_sparse_constant_of_one_value_is_not_made_dense_to_a_gigabyte() -> None:
    proto = helper.make_model(
        helper.make_graph(
            [helper.make_node("Gather", ["w", "i"], ["y"])],
            "g",
            [helper.make_tensor_value_info("i", TensorProto.INT64, [1])],
            [helper.make_empty_tensor_value_info("y")],
        )
    )
    values, places = (
        numpy_helper.from_array(np.ones(1, np.float32), "w"),
        numpy_helper.from_array(np.zeros(1, np.int64)),
    )
    proto.graph.sparse_initializer.append(helper.make_sparse_tensor(values, places, [1 << 28]))
    with pytest.raises(onnxtfl.UnsupportedError, match="too large to convert to a dense tensor"):
        onnxtfl.onnx_to_tflite(proto.SerializeToString(), check=False)


def test_outputs_are_found_after_every_change() -> None:
    values = Outputs("abca")
    values.replace("a", "c")
    assert values == ["c", "b", "c", "c"] and "a" not in values
    values.replace("c", "d")
    assert values == ["d", "b", "d", "d"]
    values[1] = "e"
    values.append("f")
    values += ["g"]
    assert "b" not in values and {"e", "f", "g"} <= set(values)
    values.replace("g", "h")
    assert values == ["d", "e", "d", "d", "f", "h"] and copy.copy(values) == values


def test_a_node_of_many_outputs_takes_linear_time(used: list[Budget]) -> None:
    seen = []
    for count in (500, 1000):
        names = [f"y{i}" for i in range(count)]
        split = helper.make_node("Split", ["x"], names, axis=0, num_outputs=count)
        x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [count])
        results = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in names]
        source = helper.make_model(helper.make_graph([split], "g", [x], results), ir_version=8)
        calls = 0

        def count_call(frame: FrameType, event: str, argument: object) -> None:
            nonlocal calls
            calls += event == "call"

        sys.setprofile(count_call)
        try:
            onnxtfl.onnx_to_tflite(source.SerializeToString(), check=False)
        finally:
            sys.setprofile(None)
        seen.append(calls)
    assert seen[1] < 2.2 * seen[0]


@pytest.mark.parametrize("nested", [False, True])
def test_a_loop_without_ops_is_not_written_round_by_round(nested: bool) -> None:
    rounds, stays = helper.make_tensor_value_info("i", TensorProto.INT64, []), "keep"
    keep = helper.make_tensor_value_info(stays, TensorProto.BOOL, [])
    sequence = helper.make_tensor_sequence_value_info("s", TensorProto.FLOAT, None)
    kept = helper.make_tensor_value_info("kept", TensorProto.BOOL, [])
    longer = helper.make_tensor_sequence_value_info("longer", TensorProto.FLOAT, None)
    body = [helper.make_node("Identity", [stays], ["kept"]), helper.make_node("SequenceInsert", ["s", "x"], ["longer"])]
    inner = helper.make_graph(body, "body", [rounds, keep, sequence], [kept, longer])
    nodes = [
        helper.make_node("SequenceEmpty", [], ["e"]),
        helper.make_node("Loop", ["count", "", "e"], ["all"], body=inner),
        helper.make_node("ConcatFromSequence", ["all"], ["y"], axis=0),
    ]
    constants: dict[str, object] = {"count": np.int64(10**9)}
    if nested:
        once = helper.make_graph(nodes, "once", [], [helper.make_empty_tensor_value_info("y")])
        nodes = [helper.make_node("If", ["c"], ["z"], then_branch=once, else_branch=once)]
        constants["c"] = np.asarray(True)
    given = model(nodes, {"x": [2]}, constants)
    onnxtfl.onnx_to_tflite(given, check=False, load=False)


def test_many_outputs_of_one_value_have_one_origin_each() -> None:
    graph = Graph()
    names = tuple(f"y{i}" for i in range(MOST_NODES_OF_RULE + 1))
    value = Builder(graph)(ops.Relu, graph.add_input(tensor("float32", 1), "x"))
    value.add_origins(Origin(name) for name in names)
    graph.outputs, graph.output_names = [value] * len(names), names
    separate_outputs(graph)
    assert len(set(graph.outputs)) == len(names) == len(value.origins)
    assert [v.origins for v in graph.outputs[1:]] == [(Origin(name),) for name in names[1:]]


def test_a_constant_may_be_as_large_as_the_memory_allows() -> None:
    """The matrix of a transform of 4096 elements has 8,396,800."""
    assert budget.Budget(1024 * 2**20).largest_constant > 8_396_800
    assert budget.Budget(64 * 2**20).largest_constant == budget.Budget(limited=False).largest_constant == 2**23
