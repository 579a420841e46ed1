"""Steps of recurrent layers, written in whichever way, become the layer."""

import numpy as np
import pytest

from onnxtfl.ir.graph import Graph
from onnxtfl.ir.interpret import run
from onnxtfl.ir.text import parse_graph, print_graph
from onnxtfl.ir.verify import verify
from onnxtfl.passes.recognize.recurrence.chains import chains_of
from onnxtfl.passes.recognize.recurrence.reroll import rerolled
from tests.passes.helpers import only_node, op_counts, recognize_layers, transformed

DOT = "{lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [1]}"
PARTS = """graph main(%x: tensor<6x4xfloat32>) -> (%y) {
  %w = constant tensor<4x4xfloat32> [
    0.5, -0.25, 0.75, 1.0, -0.5, 0.25, 0.125, 0.5, 1.0, 0.5, -0.75, 0.25, 0.375, -0.625, 0.875, -0.125]
  %r = constant tensor<4x4xfloat32> [
    0.25, 0.5, -0.25, 0.75, 0.5, -1.0, 0.25, 0.125, -0.375, 0.25, 0.5, 0.625, 0.125, -0.25, 0.75, 0.5]
  %p = DotGeneral(%x, %w) {lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [1]}
  %p0, %p1, %p2 = Split(%p) {axis = 0, count = 3}
"""
RNN = f"""{PARTS}
  %h0 = Tanh(%p0)
  %d1 = DotGeneral(%h0, %r) {DOT}
  %a1 = Add(%p1, %d1)
  %h1 = Tanh(%a1)
  %d2 = DotGeneral(%h1, %r) {DOT}
  %a2 = Add(%d2, %p2)
  %h2 = Tanh(%a2)
"""


def test_unrolled_steps() -> None:
    graph = transformed(f"{RNN}  %y = Concatenate(%h0, %h1, %h2) {{axis = 0}}\n}}", recognize_layers)
    assert op_counts(graph)["Rnn"] == 1
    assert op_counts(graph)["DotGeneral"] == 0


def test_steps_are_rolled_up_without_a_change_of_the_graph() -> None:
    graph = parse_graph(f"{RNN}  %y = Concatenate(%h0, %h1, %h2) {{axis = 0}}\n}}")
    before = print_graph(graph)
    rolled = [r for node in graph.nodes for chain in chains_of(node) for r in rerolled(graph, chain)]
    assert [(r.layer.pattern.kind.name, r.steps.count, r.steps.reverse, r.initial) for r in rolled] == [
        ("Rnn", 3, False, [None])
    ]
    assert [node.op.name for node in rolled[0].collecting] == ["Concatenate"]
    assert print_graph(graph) == before


def test_only_the_last_state_is_used() -> None:
    assert op_counts(transformed(f"{RNN}  %y = Neg(%h2)\n}}", recognize_layers))["Rnn"] == 1


def test_backwards() -> None:
    text = RNN.replace("%p0, %p1, %p2", "%p2, %p1, %p0")
    graph = transformed(f"{text}  %y = Concatenate(%h2, %h1, %h0) {{axis = 0}}\n}}", recognize_layers)
    assert [node.attr("reverse") for node in graph.nodes if node.op.name == "Rnn"] == [True]


def test_product_of_joined_input_and_state() -> None:
    """One matrix for both, as TensorFlow's cells have it; the first state is an input of the graph."""
    text = f"""graph main(%x: tensor<6x2xfloat32>, %h: tensor<2x2xfloat32>) -> (%y, %n) {{
      %w = constant tensor<2x4xfloat32> [0.5, -0.25, 0.75, 1.0, -0.5, 0.25, 0.125, 0.5]
      %x0, %x1, %x2 = Split(%x) {{axis = 0, count = 3}}
      %c0 = Concatenate(%x0, %h) {{axis = 1}}
      %d0 = DotGeneral(%c0, %w) {DOT}
      %h0 = Relu(%d0)
      %c1 = Concatenate(%x1, %h0) {{axis = 1}}
      %d1 = DotGeneral(%c1, %w) {DOT}
      %h1 = Relu(%d1)
      %c2 = Concatenate(%x2, %h1) {{axis = 1}}
      %d2 = DotGeneral(%c2, %w) {DOT}
      %n = Relu(%d2)
      %y = Concatenate(%h0, %h1, %n) {{axis = 0}}
    }}"""
    assert op_counts(transformed(text, recognize_layers))["Rnn"] == 1


def test_gates_in_one_function_and_another_order() -> None:
    """A GRU whose gates reset and update have one Sigmoid, and that is written (1 - z) n + z h."""
    step = f"""
      %d%i = DotGeneral(%h%j, %r) {DOT}
      %s%i = Slice(%p%i, %from, %to, %one)
      %c%i = Slice(%p%i, %to, %end, %one)
      %a%i = Add(%s%i, %d%i)
      %g%i = Sigmoid(%a%i)
      %q%i, %z%i = Split(%g%i) {{axis = 1, count = 2}}
      %k%i = Mul(%q%i, %h%j)
      %e%i = DotGeneral(%k%i, %v) {DOT}
      %m%i = Add(%c%i, %e%i)
      %n%i = Tanh(%m%i)
      %o%i = Sub(%unit, %z%i)
      %l%i = Mul(%o%i, %n%i)
      %t%i = Mul(%z%i, %h%j)
      %h%i = Add(%l%i, %t%i)
"""
    steps = "".join(step.replace("%i", str(i)).replace("%j", str(i - 1) if i else "") for i in range(3))
    text = f"""graph main(%x: tensor<6x1xfloat32>, %h: tensor<2x2xfloat32>) -> (%y) {{
      %w = constant tensor<6x1xfloat32> [0.5, -0.25, 0.75, 1.0, -0.5, 0.25]
      %r = constant tensor<4x2xfloat32> [0.25, 0.5, -0.25, 0.75, 0.5, -1.0, 0.25, 0.125]
      %v = constant tensor<2x2xfloat32> [0.5, 0.25, -0.75, 0.5]
      %unit = constant tensor<float32> [1.0]
      %from = constant tensor<2xint64> [0, 0]
      %to = constant tensor<2xint64> [2, 4]
      %to0 = constant tensor<2xint64> [0, 4]
      %end = constant tensor<2xint64> [2, 6]
      %one = constant tensor<2xint64> [1, 1]
      %p = DotGeneral(%x, %w) {DOT}
      %p0, %p1, %p2 = Split(%p) {{axis = 0, count = 3}}
      {steps.replace("%to, %end", "%to0, %end")}
      %y = Concatenate(%h0, %h1, %h2) {{axis = 0}}
    }}"""
    counts = op_counts(transformed(text, recognize_layers))
    assert counts["Gru"] == 1
    assert counts["Sigmoid"] == 0


@pytest.mark.parametrize(
    "changed",
    [
        {"%h2 = Tanh(%a2)": "%h2 = Relu(%a2)"},  # a step with another function
        {"%a2 = Add(%d2, %p2)": "%a2 = Add(%d2, %p1)"},  # a part that two steps take
        {"%h0 = Tanh(%p0)": "%h0 = Sigmoid(%p0)"},  # a first step that no initial state explains
        {"%d2 = DotGeneral(%h1, %r)": "%d2 = DotGeneral(%h1, %w)"},  # other weights
        {"%h1 = Tanh(%a1)": "%h1 = Tanh(%a1)\n  %u1 = Exp(%a1)"},  # another use of an inner value
    ],
)
def test_what_is_no_layer_stays(changed: dict[str, str]) -> None:
    text = f"{RNN}  %c = Concatenate(%h0, %h1, %h2) {{axis = 0}}\n"
    for old, new in changed.items():
        text = text.replace(old, new)
    text += "  %y = Concatenate(%c, %u1) {axis = 0}\n}" if "%u1" in text else "  %y = Neg(%c)\n}"
    assert op_counts(transformed(text, recognize_layers))["Rnn"] == 0


def test_branches_of_a_split_are_no_steps() -> None:
    text = f"""{PARTS}
      %a0 = DotGeneral(%p0, %r) {DOT}
      %a1 = DotGeneral(%p1, %r) {DOT}
      %s = Add(%a0, %a1)
      %y = Add(%s, %p2)
    }}"""
    assert op_counts(transformed(text, recognize_layers))["Rnn"] == 0


LSTM = """graph main(%x: tensor<5x2x1xfloat32>) -> (%y, %h, %c) {
  %w = constant tensor<4x1xfloat32> [0.5, -0.25, 0.75, 1.0]
  %r = constant tensor<4x1xfloat32> [0.5, 0.25, -0.75, 0.5]
  %z = constant tensor<2x1xfloat32> [0.0, 0.0]
"""


def test_reversed_sequence_and_zero_states() -> None:
    text = f"""{LSTM}
      %v = Reverse(%x) {{dimensions = [0]}}
      %o, %h, %c = Lstm(%v, %w, %r, _, _, %z, %z)
      %y = Reverse(%o) {{dimensions = [0]}}
    }}"""
    graph = transformed(text, recognize_layers)
    assert op_counts(graph) == {"Lstm": 1}
    (node,) = graph.nodes
    assert node.attr("reverse") and len(node.operands) == 3


@pytest.mark.parametrize(("clip", "left"), [(4.0, 4.0), (10.0, 0.0)])
def test_clip_that_cells_do_not_reach(clip: float, left: float) -> None:
    """Each of five steps adds at most 1."""
    graph = transformed(f"{LSTM}  %y, %h, %c = Lstm(%x, %w, %r) {{cell_clip = {clip}}}\n}}", recognize_layers)
    assert [node.attr("cell_clip") for node in graph.nodes if node.op.name == "Lstm"] == [left]


def test_two_directions() -> None:
    text = f"""{LSTM}
      %f, %fh, %fc = Lstm(%x, %w, %r)
      %b, %bh, %bc = Lstm(%x, %r, %w) {{reverse = true}}
      %y = Concatenate(%f, %b) {{axis = 2}}
      %h = Concatenate(%fh, %bh) {{axis = 0}}
      %c = Concatenate(%fc, %bc) {{axis = 0}}
    }}"""
    counts = op_counts(transformed(text, recognize_layers))
    assert counts["Bidirectional"] == 1
    assert counts["Lstm"] == 0


BLOCKS = f"""graph main(%x: tensor<6x2x4xfloat32>) -> (%y, %h) {{
      %w = constant tensor<2x4xfloat32> [0.5, -0.25, 0.75, 1.0, -0.5, 0.25, 0.125, 0.5]
      %z = constant tensor<2x2xfloat32> [0.0, 0.0, 0.0, 0.0]
      %p = DotGeneral(%x, %w) {{lhs_contracting_dimensions = [2], rhs_contracting_dimensions = [1]}}
      %m = constant tensor<4xint64> [2, 3, 2, 2]
      %b = Reshape(%p, %m)
      %h, %y = Scan(_, %z, %b) {{axes = [0], carried = 1, result_axes = [0], reversed = [false],
        result_reversed = [false], body = graph step(%s: tensor<2x2xfloat32>, %i: tensor<3x2x2xfloat32>) -> (%h2, %o) {{
        %r = constant tensor<2x2xfloat32> [0.25, 0.5, -0.25, 0.75]
        %e = constant tensor<2xint64> [6, 2]
        %f = Reshape(%i, %e)
        %p0, %p1, %p2 = Split(%f) {{axis = 0, count = 3}}
        %d0 = DotGeneral(%s, %r) {DOT}
        %a0 = Add(%p0, %d0)
        %h0 = Tanh(%a0)
        %d1 = DotGeneral(%h0, %r) {DOT}
        %a1 = Add(%p1, %d1)
        %h1 = Tanh(%a1)
        %d2 = DotGeneral(%h1, %r) {DOT}
        %a2 = Add(%p2, %d2)
        %h2 = Tanh(%a2)
        %j = Concatenate(%h0, %h1, %h2) {{axis = 0}}
        %g = constant tensor<3xint64> [3, 2, 2]
        %o = Reshape(%j, %g)
      }} }}
    }}"""


def recognized(text: str) -> Graph:
    """The graph after recognition, which computes the same."""
    graph = parse_graph(text)
    inputs = [np.random.default_rng(0).standard_normal(v.shape).astype(np.float32) for v in graph.inputs]
    wanted = run(graph, inputs)
    recognize_layers(graph)
    verify(graph)
    for got, want in zip(run(graph, inputs), wanted, strict=True):
        np.testing.assert_allclose(got, want, rtol=0, atol=1e-6)
    return graph


def test_scan_over_blocks_of_steps() -> None:
    graph = recognized(BLOCKS)
    counts = op_counts(graph)
    assert counts["Rnn"] == 1
    assert not counts.keys() & {"Scan", "DotGeneral"}
    layer = only_node(graph, "Rnn")
    assert layer.operand(0).shape == (6, 2, 4)


@pytest.mark.parametrize(
    "changed",
    [
        {"%h2, %o)": "%h1, %o)"},  # a round that begins with another state
        {"%d0 = DotGeneral(%s, %r)": "%q = Neg(%s)\n %d0 = DotGeneral(%q, %r)"},  # a function between rounds
        {"%h0, %h1, %h2) {": "%h0, %h2, %h1) {"},  # outputs in another order
        {"reversed = [false]": "reversed = [true]"},  # forward steps in blocks from the last on
    ],
)
def test_blocks_that_are_no_layer_stay(changed: dict[str, str]) -> None:
    text = BLOCKS
    for old, new in changed.items():
        assert old in text
        text = text.replace(old, new)
    counts = op_counts(recognized(text))
    assert (counts["Scan"], counts["Rnn"]) == (1, 0)


JOINED = """graph main(%x: tensor<5x2x1xfloat32>) -> (%y, %k) {
  %w = constant tensor<1x1xfloat32> [0.5]
  %r = constant tensor<1x1xfloat32> [0.25]
  %u = constant tensor<1x1xfloat32> [0.75]
  %from = constant tensor<3xint64> [0, 0, 0]
  %middle = constant tensor<3xint64> [3, 0, 0]
  %until = constant tensor<3xint64> [3, 2, 1]
  %end = constant tensor<3xint64> [5, 2, 1]
  %one = constant tensor<3xint64> [1, 1, 1]
  %a = Slice(%x, %from, %until, %one)
  %b = Slice(%x, %middle, %end, %one)
  %v, %h = Rnn(%a, %w, %r)
  %z, %k = Rnn(%b, %w, %r, _, _, %h)
  %y = Concatenate(%v, %z) {axis = 0}
}"""


def test_layers_that_continue_each_other_are_one() -> None:
    assert op_counts(transformed(JOINED, recognize_layers)) == {"Rnn": 1}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("%b, %w, %r, _, _, %h)", "%b, %w, %u, _, _, %h)"),  # other weights
        ("%b, %w, %r, _, _, %h)", "%b, %w, %r)"),  # from zeros on
        ("(%y, %k)", "(%y, %k, %h)"),  # the state between them is used
        ("(%v, %z)", "(%z, %v)"),  # outputs in another order
    ],
)
def test_layers_that_do_not_continue_each_other_stay(old: str, new: str) -> None:
    assert old in JOINED
    assert op_counts(transformed(JOINED.replace(old, new), recognize_layers))["Rnn"] == 2


SINGLE = f"""graph main(%x: tensor<2x3xfloat32>, %h: tensor<2x1xfloat32>, %c: tensor<2x1xfloat32>) -> (%n, %k) {{
  %w = constant tensor<4x3xfloat32> [0.5, -0.25, 0.75, 1.0, -0.5, 0.25, 0.125, 0.5, 1.0, 0.5, -0.75, 0.25]
  %r = constant tensor<4x1xfloat32> [0.5, 0.25, -0.75, 0.5]
  %p = DotGeneral(%x, %w) {DOT}
  %d = DotGeneral(%h, %r) {DOT}
  %a = Add(%p, %d)
  %i, %g, %f, %o = Split(%a) {{axis = 1, count = 4}}
  %is = Sigmoid(%i)
  %fs = Sigmoid(%f)
  %os = Sigmoid(%o)
  %gt = Tanh(%g)
  %l = Mul(%fs, %c)
  %m = Mul(%is, %gt)
  %k = Add(%l, %m)
  %t = Tanh(%k)
  %n = Mul(%os, %t)
}}"""


def test_one_step_with_states_of_the_graph() -> None:
    graph = transformed(SINGLE, recognize_layers)
    assert op_counts(graph)["Lstm"] == 1
    assert op_counts(graph)["DotGeneral"] == 0


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("%n = Mul(%os, %t)", "%n = Mul(%os, %os)"),  # an output that is none of a layer
        ("-> (%n, %k)", "-> (%n, %k, %gt)"),  # another use of an inner value
        ("Mul(%fs, %c)", "Mul(%fs, %fs)"),  # no cell state
        ("%d = DotGeneral(%h, %r)", "%e = Exp(%h)\n  %d = DotGeneral(%e, %r)"),  # no state of the graph
    ],
)
def test_one_step_that_is_no_layer_stays(old: str, new: str) -> None:
    counts = op_counts(transformed(SINGLE.replace(old, new), recognize_layers))
    assert not counts.keys() & {"Lstm", "Gru", "Rnn"}


@pytest.mark.parametrize(("returned", "count"), [("%n", 1), ("%y", 0)])
def test_function_of_a_sum_of_products_is_a_step_if_it_is_the_next_state(returned: str, count: int) -> None:
    text = f"""graph main(%x: tensor<2x3xfloat32>, %h: tensor<2x2xfloat32>) -> ({returned}) {{
      %w = constant tensor<2x3xfloat32> [0.5, -0.25, 0.75, 1.0, -0.5, 0.25]
      %r = constant tensor<2x2xfloat32> [0.5, 0.25, -0.75, 0.5]
      %p = DotGeneral(%x, %w) {DOT}
      %d = DotGeneral(%h, %r) {DOT}
      %a = Add(%p, %d)
      %n = Tanh(%a)
      %y = Neg(%n)
    }}"""
    assert op_counts(transformed(text, recognize_layers))["Rnn"] == count
