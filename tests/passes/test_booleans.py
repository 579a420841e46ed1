"""Canonical forms of conditions."""

import pytest

from tests.passes.helpers import op_counts, simplify, transformed

HEAD = """graph main(%x: tensor<2x3xfloat32>) -> (%y) {
  %zero = constant tensor<float32> [0.0]
  %none = constant tensor<int64> [0]
  %no = constant tensor<bool> [false]
  %yes = constant tensor<1xbool> [true]
  %axes = constant tensor<1xint64> [1]
  %c = Compare(%x, %zero) {comparison_direction = "GT"}
  %d = Compare(%x, %zero) {comparison_direction = "EQ"}
  %i = ArgMax(%x) {axis = 1, keepdims = true}
"""


@pytest.mark.parametrize(
    ("body", "left"),
    [
        ("%y = Xor(%c, %no)", ["Compare"]),
        (
            '%l = constant tensor<1xfloat32> [-inf]\n %m = Reduce(%x, %axes) {keepdims = true, kind = "max"}\n'
            ' %y = Compare(%m, %l) {comparison_direction = "EQ"}',
            ["Compare", "Reduce"],
        ),
        ("%y = Xor(%yes, %c)", ["Compare", "Not"]),
        ('%y = Compare(%c, %no) {comparison_direction = "NE"}', ["Compare"]),
        ('%y = Compare(%c, %no) {comparison_direction = "EQ"}', ["Compare", "Not"]),
        ("%y = And(%c, %yes)", ["Compare"]),
        ("%y = Or(%no, %c)", ["Compare"]),
        ("%y = And(%c, %no)", []),
        ("%y = Or(%c, %yes)", []),
        ("%e = Not(%c)\n %y = Not(%e)", ["Compare"]),
        ("%y = Not(%d)", ["Compare"]),
        ('%y = Compare(%i, %none) {comparison_direction = "LT"}', []),
        ('%e = Compare(%i, %none) {comparison_direction = "GE"}\n %y = And(%c, %e)', ["Compare"]),
    ],
)
def test_conditions(body: str, left: list[str]) -> None:
    graph = transformed(f"{HEAD} {body}\n}}", simplify)
    assert [n.op.name for n in graph.nodes] == left


def test_comparisons_of_floats_stay() -> None:
    """NaN is neither less nor not less."""
    text = f'{HEAD} %e = Relu(%x)\n %y = Compare(%e, %zero) {{comparison_direction = "GE"}}\n}}'
    assert op_counts(transformed(text, simplify)) == {"Relu": 1, "Compare": 1}
