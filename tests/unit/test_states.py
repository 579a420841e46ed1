"""Variables and variable tensors of TFLite graphs become values."""

from __future__ import annotations

import re

import pytest

from onnxtfl.errors import UnsupportedError
from onnxtfl.ir.graph import Graph
from onnxtfl.ir.model import Model
from onnxtfl.ir.text import parse_graph, print_graph
from onnxtfl.pipeline_run import explicit_states
from tests.unit import tfl_states as texts

DRAWN_INITIAL = texts.COUNTER.replace(
    "tfl.ASSIGN_VARIABLE@1(%v, %i)",
    """%n = constant tensor<1xint32> [2]
  %k = tfl.RANDOM_UNIFORM@1(%n) {seed = 1, seed2 = 2} : tensor<2xfloat32>
  tfl.ASSIGN_VARIABLE@1(%v, %k)""",
)


def explicit(text: str) -> Graph:
    model = Model(parse_graph(text), "tflite")
    explicit_states(model)
    return model.main


def line(graph: Graph, op: str) -> str:
    """The line of the text form that has `op`, without attributes and types."""
    found = next(part.strip() for part in print_graph(graph).splitlines() if op in part)
    return re.sub(r"( \{|(?<=\)) :).*", "", found)


def test_a_variable_that_is_read_first_is_a_state() -> None:
    graph = explicit(texts.COUNTER)
    assert line(graph, "state") == "state %n: tensor<2xfloat32> -> %y = tensor<2xfloat32> [3.0, 4.0]"
    assert [node.op.name for node in graph.nodes] == ["tfl.ADD"]
    assert line(graph, "ADD") == "%y = tfl.ADD@1(%n, %x)"


def test_a_variable_that_is_assigned_first_is_none() -> None:
    graph = explicit(texts.ASSIGNED_FIRST)
    assert not graph.states
    assert line(graph, "ADD") == "%y = tfl.ADD@1(%x, %x)"


def test_a_computed_initial_value_is_evaluated() -> None:
    (state,) = explicit(texts.COMPUTED_INITIAL).states
    assert state.initial is not None
    assert state.initial.numpy().tolist() == [6.0, 8.0]


def test_a_random_initial_value_is_not_drawn_once() -> None:
    with pytest.raises(UnsupportedError, match="before run time"):
        explicit(DRAWN_INITIAL)


def test_a_branch_returns_the_variables_that_it_assigns() -> None:
    graph = explicit(texts.IN_A_BRANCH)
    (branch,) = [node for node in graph.nodes if node.regions]
    assert branch.operands == [*graph.inputs, graph.states[0].input]
    assert graph.states[0].output is branch.results[1]
    then_branch, else_branch = branch.regions
    assert then_branch.outputs == [then_branch.inputs[0]] * 2
    assert else_branch.outputs[1] is else_branch.inputs[1]


def test_a_loop_carries_the_variables_that_it_uses() -> None:
    graph = explicit(texts.IN_A_LOOP)
    (loop,) = [node for node in graph.nodes if node.regions]
    assert len(loop.operands) == len(loop.results) == 2
    assert graph.outputs == loop.results
    assert graph.states[0].output is loop.results[1]


def test_an_op_that_updates_its_operand_returns_the_new_state() -> None:
    graph = explicit(texts.RNN)
    (node,) = graph.nodes
    assert len(node.results) == 2
    assert graph.states[0].output is node.results[1]
    assert graph.states[0].initial is not None and graph.states[0].initial.shape == ()


def test_a_variable_tensor_that_no_op_updates_is_zero() -> None:
    graph = explicit(
        f"graph main(%x: tensor<2xfloat32>) -> (%y) {{\n state %h: tensor<2xfloat32> -> %h\n"
        f" %y = {texts.ADD.format('%x', '%h')}\n}}"
    )
    assert not graph.states
    assert line(graph, "constant") == "%1 = constant tensor<2xfloat32> [0.0, 0.0]"


def test_the_contents_of_a_table_become_operands() -> None:
    graph = explicit(texts.TABLE)
    assert line(graph, "FIND") == "%y = tfl.HASHTABLE_FIND@1(%k, %s, %x, %d)"


def test_an_entry_point_keeps_the_variables_that_others_share() -> None:
    reads = parse_graph(texts.COUNTER)
    model = Model(parse_graph(texts.ASSIGNED_FIRST), "tflite", subgraphs=[reads])
    explicit_states(model)
    assert [state.input.name for state in model.main.states] == ["n"]
    assert not model.main.states[0].input.uses


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (texts.TABLE.replace(" tfl.HASHTABLE_IMPORT@1(%t, %k, %s)\n", ""), "the table has no contents here"),
        (
            texts.COUNTER.replace("READ_VARIABLE@1(%v) : tensor<2xfloat32>", "READ_VARIABLE@1(%v) : tensor<2xint32>"),
            "n",
        ),
        (texts.COUNTER.replace("tfl.ASSIGN_VARIABLE@1(%v, %y)", "tfl.FOO@1(%v, %y)"), "used as a value"),
    ],
)
def test_what_cannot_be_threaded_is_named(text: str, message: str) -> None:
    with pytest.raises(UnsupportedError, match=message):
        explicit(text)


def test_a_constant_that_is_dequantized_into_a_variable_is_its_initial_value() -> None:
    """The kernel of DEQUANTIZE computes a constant once, so that later runs do not reset the state."""
    text = texts.RNN.replace(
        "state %h: tensor<2x4xfloat32> -> %h",
        f"%half = constant tensor<2x4xfloat16> [{', '.join(['0.5'] * 8)}]\n"
        " %h = tfl.DEQUANTIZE@3(%half) : tensor<2x4xfloat32>",
    )
    graph = explicit(text)
    (state,) = graph.states
    assert state.initial is not None and state.initial.numpy() == 0.5
    assert state.output is graph.last.results[1]
