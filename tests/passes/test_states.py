"""States as inputs and outputs, or as their initial values."""

import pytest

from onnxtfl.errors import UnsupportedError
from onnxtfl.ir.graph import Graph
from onnxtfl.ir.text import parse_graph, print_graph
from onnxtfl.passes.states.exposed import ExposedState, StateMode, expose_states

COUNTER = """graph main(%x: tensor<2xint32>) -> (%y) {
  state %h: tensor<2xint32> -> %n = tensor<int32> [5]
  %n = Add(%h, %x) : tensor<2xint32>
  %y = Neg(%n) : tensor<2xint32>
}
"""


def exposed(text: str, mode: StateMode) -> tuple[Graph, list[ExposedState]]:
    graph = parse_graph(text)
    graph.output_names = [v.name or "" for v in graph.outputs]
    return graph, expose_states(graph, mode)


def test_io() -> None:
    graph, (state,) = exposed(COUNTER, "io")
    assert print_graph(graph).splitlines()[0] == "graph main(%x: tensor<2xint32>, %h: tensor<2xint32>) -> (%y, %n) {"
    assert graph.output_names == ["y", "h_next"]
    assert (state.input, state.output) == (1, 1)


def test_reset() -> None:
    graph, states = exposed(COUNTER, "reset")
    assert not states and not graph.states
    assert "constant tensor<2xint32> [5, 5]" in print_graph(graph)


def test_names_are_unique() -> None:
    graph, _ = exposed(COUNTER.replace("%x", "%h_next").replace("%y", "%h_"), "io")
    assert [v.name for v in graph.inputs] == ["h_next", "h"]
    assert graph.output_names == ["h_", "h_next_1"]


def test_a_state_that_is_only_written_is_no_input() -> None:
    graph, (state,) = exposed(COUNTER.replace("Add(%h, %x)", "Add(%x, %x)"), "io")
    assert (state.input, state.output) == (None, 1)
    assert len(graph.inputs) == 1


def test_a_state_that_is_only_read_is_no_output() -> None:
    graph, (state,) = exposed(COUNTER.replace("-> %n =", "-> %h ="), "io")
    assert (state.input, state.output) == (1, None)
    assert graph.output_names == ["y"]


def test_an_initial_value_has_the_shape_that_the_state_has_in_the_first_run() -> None:
    text = COUNTER.replace("tensor<2xint32>", "tensor<[n]xint32>").replace(
        "tensor<int32> [5]", "tensor<3xint32> [5, 6, 7]"
    )
    graph, _ = exposed(text, "reset")
    assert "constant tensor<3xint32> [5, 6, 7]" in print_graph(graph)


def test_an_unknown_size_of_a_variable_tensor_is_1() -> None:
    graph, _ = exposed(COUNTER.replace("tensor<2xint32>", "tensor<[n]xint32>"), "reset")
    assert "constant tensor<1xint32> [5]" in print_graph(graph)


def test_a_constant_needs_a_known_value() -> None:
    with pytest.raises(UnsupportedError, match="state='io'"):
        exposed(COUNTER.replace(" = tensor<int32> [5]", ""), "reset")
