"""Reshapes of unit axes sink until they meet."""

import numpy as np
import pytest

from onnxtfl.ir.interpret import run
from onnxtfl.ir.text import parse_graph
from onnxtfl.passes.canonical.dead_code import remove_dead
from onnxtfl.passes.canonical.unit_axes import sink_reshapes
from tests.passes.helpers import op_counts, transformed

HEAD = """graph main(%x: tensor<2x8x1x9xfloat32>) -> (%y) {
  %s = constant tensor<3xint64> [2, 8, 9]
  %t = constant tensor<4xint64> [2, 8, 1, 9]
  %one = constant tensor<1xfloat32> [2.0]
  %row = constant tensor<9xfloat32> [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0]
  %column = constant tensor<8x1xfloat32> [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]
  %r = Reshape(%x, %s)
"""


@pytest.mark.parametrize(
    "middle",
    [
        "%a = Relu(%r)",
        "%a = Mul(%r, %row)",
        "%a = Sub(%column, %r)",
        "%a = Add(%r, %one)",
        "%e = Tanh(%r)\n %f = Sigmoid(%r)\n %a = Mul(%e, %f)",
        "%a = Softmax(%r) {axis = 2}",
    ],
)
def test_two_that_meet_vanish(middle: str) -> None:
    graph = transformed(f"{HEAD} {middle}\n %q = Reshape(%a, %t)\n %y = Neg(%q)\n}}", sink_reshapes)
    assert "Reshape" not in op_counts(graph)


def test_dynamic_sizes_of_a_part_are_those_of_the_whole() -> None:
    graph = parse_graph("""graph main(%x: tensor<[n]x8x1x[m]xfloat32>) -> (%y) {
      %s = Shape(%x) {axes = [0, 1, 3]}
      %r = Reshape(%x, %s) : tensor<[n]x8x[m]xfloat32>
      %starts = constant tensor<3xint64> [0, 2, 0]
      %limits = constant tensor<3xint64> [4611686018427387904, 6, 4611686018427387904]
      %strides = constant tensor<3xint64> [1, 1, 1]
      %a = Slice(%r, %starts, %limits, %strides)
      %e = Exp(%a)
      %n = Shape(%x) {axes = [0]}
      %u = constant tensor<2xint64> [4, 1]
      %m = Shape(%x) {axes = [3]}
      %t = Concatenate(%n, %u, %m) {axis = 0}
      %q = Reshape(%e, %t) : tensor<[n]x4x1x[m]xfloat32>
      %y = Neg(%q)
    }""")
    sink_reshapes(graph)
    remove_dead(graph)
    assert [node.op.name for node in graph.nodes] == ["Slice", "Exp", "Neg"]
    assert run(graph, [x := np.ones((2, 8, 1, 3), np.float32)])[0].shape == x[:, 2:6].shape


def test_not_through_a_split_into_many() -> None:
    """One reshape would become nine."""
    parts = ", ".join(f"%p{i}" for i in range(9))
    negated = "\n".join(f"%n{i} = Neg(%p{i})" for i in range(9))
    joined = ", ".join(f"%n{i}" for i in range(9))
    text = f"""{HEAD}
      {parts} = Split(%r, _) {{axis = 2, count = 9}}
      {negated}
      %y = Concatenate({joined}) {{axis = 2}}
    }}"""
    assert op_counts(transformed(text, sink_reshapes))["Reshape"] == 1


def test_through_slices_pads_and_splits() -> None:
    text = f"""{HEAD}
      %starts = constant tensor<3xint64> [0, 2, 1]
      %limits = constant tensor<3xint64> [2, 8, 9]
      %strides = constant tensor<3xint64> [1, 1, 2]
      %amounts = constant tensor<3x2xint64> [0, 0, 0, 0, 2, 1]
      %sizes = constant tensor<2xint64> [3, 3]
      %u = constant tensor<4xint64> [2, 6, 1, 7]
      %a = Slice(%r, %starts, %limits, %strides)
      %b = Pad(%a, %amounts)
      %c, %d = Split(%b, %sizes) {{axis = 1}}
      %e = Concatenate(%d, %c) {{axis = 1}}
      %q = Reshape(%e, %u)
      %y = Neg(%q)
    }}"""
    assert "Reshape" not in op_counts(transformed(text, sink_reshapes))


@pytest.mark.parametrize("keep", ["true", "false"])
def test_through_reductions(keep: str) -> None:
    text = f"""{HEAD}
      %axes = constant tensor<1xint64> [2]
      %u = constant tensor<3xint64> [2, 8, 1]
      %a = Reduce(%r, %axes) {{kind = "mean", keepdims = {keep}}}
      %y = Reshape(%a, %u)
    }}"""
    assert op_counts(transformed(text, sink_reshapes)) in ({"Reduce": 1}, {"Reduce": 1, "Reshape": 1})


def test_a_reshape_that_others_need_stays() -> None:
    text = f"{HEAD} %a = Relu(%r)\n %b = CumSum(%r, %axis) {{}}\n %y = Add(%a, %b)\n}}"
    text = text.replace("%one =", "%axis = constant tensor<int64> [1]\n  %one =")
    graph = transformed(text, sink_reshapes)
    assert [n.op.name for n in graph.nodes] == ["Reshape", "Relu", "CumSum", "Add"]


def test_broadcasting_over_more_than_the_reshape_stays() -> None:
    text = """graph main(%x: tensor<3x1xfloat32>) -> (%y) {
      %s = constant tensor<1xint64> [3]
      %c = constant tensor<2x3xfloat32> [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
      %r = Reshape(%x, %s)
      %y = Add(%r, %c)
    }"""
    assert op_counts(transformed(text, sink_reshapes)) == {"Reshape": 1, "Add": 1}


def test_open_sizes_keep_their_vector() -> None:
    text = """graph main(%x: tensor<[n]x8x1x[l]xfloat32>, %v: tensor<3xint64>) -> (%y) {
      %r = Reshape(%x, %v)
      %y = Relu(%r)
    }"""
    from onnxtfl.ir.text import parse_graph

    graph = parse_graph(text)
    sink_reshapes(graph)  # the sizes of %r are not known to be those of %x
    assert [n.op.name for n in graph.nodes] == ["Reshape", "Relu"]
