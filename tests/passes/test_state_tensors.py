"""Kernels get state tensors of their own, which are written before each run."""

import pytest

from onnxtfl.formats.tflite.schema import state_operands
from onnxtfl.ir.graph import Graph
from onnxtfl.ir.text import parse_graph
from onnxtfl.ir.verify import verify
from onnxtfl.passes.states.state_tensors import own_state_tensors
from onnxtfl.targets.tflite import TfliteTarget
from tests.passes.helpers import op_counts

STATE, SEQUENCE = "tensor<2x3xfloat32>", "tensor<5x2x3xfloat32>"
OPTIONS = '{time_major = true, fused_activation_function = "TANH", asymmetric_quantize_inputs = false}'
HEAD = f"""graph main(%x: {SEQUENCE}, %h: {STATE}) -> (%y, %z) {{
  %w = constant tensor<3x3xfloat32> [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0]
  %b = constant tensor<3xfloat32> [1.0, 2.0, 3.0]
  %zeros = constant {STATE} [0.0, 0.0, 0.0, 0.0, 0.0, 0.0]
"""


def owned(body: str) -> Graph:
    graph = parse_graph(f"{HEAD}{body}\n}}")
    own_state_tensors(graph, TfliteTarget(), state_operands)
    verify(graph, "after")
    return graph


def layer(state: str, after: str = "%n") -> str:
    return f"%y, {after} = tfl.UNIDIRECTIONAL_SEQUENCE_RNN@1(%x, %w, %w, %b, %{state}) {OPTIONS} : {SEQUENCE}, {STATE}"


@pytest.mark.parametrize("state", ["zeros", "h", "a"])
def test_states_are_copied(state: str) -> None:
    """Constants, inputs and results of other ops."""
    graph = owned(f"%a = tfl.SIN@1(%h) : {STATE}\n {layer(state)}\n %z = tfl.SIN@1(%y) : {SEQUENCE}")
    (kept,) = graph.states
    assert kept.input.producer is not None
    assert kept.input.producer.op.name == "tfl.BROADCAST_TO"
    assert [user.op.name for user in kept.input.users()] == ["tfl.UNIDIRECTIONAL_SEQUENCE_RNN"]


def test_the_last_state_is_read_after_the_layer() -> None:
    """The read depends on the output of the layer, also where the state is an output of the graph."""
    graph = owned(layer("zeros", "%z"))
    assert op_counts(graph)["tfl.CONCATENATION"] == 1
    assert graph.outputs[1].producer is not None
    assert graph.outputs[1].producer.op.name in ("tfl.SLICE", "tfl.STRIDED_SLICE")
