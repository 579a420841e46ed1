"""Moves of dequantized elements between quantized types, and products with a summand as matrices."""

from __future__ import annotations

from onnxtfl.passes.quantize import surround_moves
from tests.passes.helpers import op_counts, transformed

ROWS = """graph main(%q: tensor<2x3x4xfloat32, quant<int8 0.1:3>>) -> (%y) {
 %x = Convert(%q) {dtype = !float32} : tensor<2x3x4xfloat32>
 %w = constant tensor<4x2xfloat32> [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]
 %m = DotGeneral(%x, %w) {lhs_contracting_dimensions = [2], rhs_contracting_dimensions = [0]}
 %b = constant tensor<2xfloat32> [1.0, 2.0]
 %y = Add(%m, %b)
}"""


def test_a_moved_value_is_quantized_again() -> None:
    text = """graph main(%q: tensor<2x3xfloat32, quant<int8 0.1:3>>) -> (%y) {
 %x = Convert(%q) {dtype = !float32} : tensor<2x3xfloat32>
 %t = Transpose(%x) {permutation = [1, 0]}
 %y = Exp(%t)
}"""
    assert op_counts(transformed(text, surround_moves)) == {"Convert": 3, "Transpose": 1, "Exp": 1}


def test_a_product_of_rows_with_a_summand_is_one_of_matrices() -> None:
    graph = transformed(ROWS, surround_moves)
    assert op_counts(graph) == {"Convert": 3, "Reshape": 2, "DotGeneral": 1, "Add": 1}
    assert [node.result.rank for node in graph.nodes if node.op.name in ("DotGeneral", "Add")] == [2, 2]


def test_a_row_that_only_a_run_knows_is_added_to_matrices_too() -> None:
    text = ROWS.replace("quant<int8 0.1:3>>)", "quant<int8 0.1:3>>, %b: tensor<2xfloat32>)", 1)
    text = text.replace(" %b = constant tensor<2xfloat32> [1.0, 2.0]\n", "")
    assert op_counts(transformed(text, surround_moves)) == {"Convert": 3, "Reshape": 2, "DotGeneral": 1, "Add": 1}


def test_other_products_stay() -> None:
    for text in (
        ROWS.replace("%y = Add(%m, %b)", "%y = Relu(%m)"),
        ROWS.replace("%b = constant tensor<2xfloat32> [1.0, 2.0]", "%b = Relu(%m)"),
        ROWS.replace("%x = Convert(%q) {dtype = !float32} : tensor<2x3x4xfloat32>", "%x = Relu(%q)").replace(
            ", quant<int8 0.1:3>", ""
        ),
    ):
        assert "Reshape" not in op_counts(transformed(text, surround_moves))
