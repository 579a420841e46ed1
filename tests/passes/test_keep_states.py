"""Recurrent layers begin every run from where the last one ended."""

import pytest

from onnxtfl.ir.graph import Graph
from onnxtfl.ir.text import parse_graph
from onnxtfl.ir.verify import verify
from onnxtfl.passes.states.kept import keep_states
from onnxtfl.targets.tflite import TfliteTarget

STATE, SEQUENCE = "tensor<2x3xfloat32>", "tensor<5x2x3xfloat32>"


def kept(operands: str, attributes: str = "") -> Graph:
    graph = parse_graph(f"""graph main(%x: {SEQUENCE}, %h: {STATE}) -> (%y) {{
      %w = constant tensor<3x3xfloat32> [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0]
      %b = constant tensor<3xfloat32> [1.0, 2.0, 3.0]
      %zeros = constant {STATE} [0.0, 0.0, 0.0, 0.0, 0.0, 0.0]
      %y, %n = Rnn(%x, %w, %w, {operands}) {attributes}
    }}""")
    keep_states(graph, TfliteTarget())
    verify(graph, "after")
    return graph


@pytest.mark.parametrize("operands", ["_, _, _", "%b, _, _", "%b, _, %zeros"])
def test_zeros_become_a_state(operands: str) -> None:
    graph = kept(operands)
    (state,) = graph.states
    (node,) = graph.nodes
    assert node.operands[-1] is state.input
    assert node.results[1] is state.output


@pytest.mark.parametrize(
    ("operands", "attributes"), [("%b, _, %h", ""), ("%b, _, _", "{reverse = true}"), ("%b, _, _", "{clip = 1.0}")]
)
def test_others_stay(operands: str, attributes: str) -> None:
    graph = kept(operands, attributes)
    assert graph.states == []
    (node,) = graph.nodes
    assert node.op.name == "Rnn"
