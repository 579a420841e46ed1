"""Results without elements."""

from __future__ import annotations

from onnxtfl.ir.text import parse_graph
from onnxtfl.passes.canonical.fold import empty_results
from tests.passes.helpers import op_counts


def test_an_empty_result_of_a_size_that_only_its_op_knows_leaves_nothing_behind() -> None:
    """Half of a shape would be removed and made again without end."""
    graph = parse_graph("""graph main(%x: tensor<[n]x0x[m]xfloat32>, %s: tensor<1xint64>) -> (%y) {
      %z = constant tensor<2xint64> [0, 0]
      %e = constant tensor<3xint64> [9223372036854775807, 9223372036854775807, 9223372036854775807]
      %o = constant tensor<3xint64> [1, 1, 1]
      %b = Concatenate(%z, %s) {axis = 0}
      %y = Slice(%x, %b, %e, %o)
    }""")
    empty_results(graph)
    assert op_counts(graph) == {"Concatenate": 1, "Slice": 1}
