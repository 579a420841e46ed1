"""Shape arithmetic in its shortest form."""

import pytest

from onnxtfl.ir.graph import Graph
from onnxtfl.passes.canonical.dead_code import remove_dead
from onnxtfl.passes.canonical.merge_equal import merge_equal
from onnxtfl.passes.canonical.shape_arithmetic import CONVERSIONS, SHAPE_ARITHMETIC
from onnxtfl.rewriting.patterns import Patterns
from tests.passes.helpers import transformed

BOTH = Patterns.of(SHAPE_ARITHMETIC, CONVERSIONS)
HEAD = """graph main(%v: tensor<4xint64>, %w: tensor<2xint64>) -> (%y) {
  %one = constant tensor<1xint64> [1]
  %last = constant tensor<1xint64> [-1]
  %two = constant tensor<2xint64> [1, 3]
  %all = constant tensor<4xint32> [0, 1, 2, 3]
  %number = constant tensor<int64> [2]
  %shape = constant tensor<1xint64> [1]
  %zero = constant tensor<1xint64> [0]
"""


def shortened(graph: Graph) -> None:
    BOTH.apply(graph)
    merge_equal(graph)
    remove_dead(graph)


@pytest.mark.parametrize(
    ("body", "left"),
    [
        ("%a = Gather(%v, %two) {axis = 0}\n %y = Gather(%a, %last) {axis = 0}", ["Gather"]),
        ("%a = Gather(%v, %all) {axis = 0}\n %y = Neg(%a)", ["Neg"]),
        ("%a = Concatenate(%w, %v) {axis = 0}\n %y = Gather(%a, %last) {axis = 0}", ["Gather"]),
        (
            "%a = Gather(%v, %one) {axis = 0}\n %b = Gather(%v, %last) {axis = 0}\n"
            "%c = Concatenate(%a, %b) {axis = 0}\n %y = Concatenate(%w, %c) {axis = 0}",
            ["Gather", "Concatenate"],
        ),
        ("%a = Gather(%v, %number) {axis = 0}\n %y = Reshape(%a, %shape)", ["Gather"]),
        ("%a = Shape(%v) {axes = none}\n %y = Max(%a, %zero)", ["Shape"]),
        ("%y = Max(%v, %zero)", ["Max"]),
        (
            "%a = Convert(%v) {dtype = !int32}\n %b = Gather(%a, %one) {axis = 0}\n"
            "%c = Gather(%a, %last) {axis = 0}\n %y = Concatenate(%b, %c) {axis = 0}",
            ["Gather", "Convert"],
        ),
    ],
)
def test_shape_arithmetic(body: str, left: list[str]) -> None:
    graph = transformed(f"{HEAD} {body}\n}}", shortened)
    assert [n.op.name for n in graph.nodes] == left


def test_a_join_that_others_read_stays_whole() -> None:
    text = f"{HEAD} %a = Concatenate(%w, %v) {{axis = 0}}\n %b = Concatenate(%a, %w) {{axis = 0}}\n"
    text += " %c = Neg(%a)\n %y = Concatenate(%b, %c) {axis = 0}\n}"
    graph = transformed(text, shortened)
    assert [n.op.name for n in graph.nodes] == ["Concatenate", "Neg", "Concatenate"]


def test_rows_of_matrices_are_no_vectors() -> None:
    text = """graph main(%v: tensor<4x2xint64>) -> (%y) {
      %two = constant tensor<2xint64> [1, 3]
      %a = Gather(%v, %two) {axis = 0}
      %y = Gather(%a, %two) {axis = 1}
    }"""
    text = text.replace("[1, 3]", "[1, 0]")
    assert [n.op.name for n in transformed(text, shortened).nodes] == ["Gather", "Gather"]
