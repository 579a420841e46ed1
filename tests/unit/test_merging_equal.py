"""Equal nodes become one, which remembers where all of them came from."""

from __future__ import annotations

import pytest

from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.graph import Graph
from onnxtfl.ir.text import parse_graph
from onnxtfl.ir.types import tensor
from onnxtfl.ir.verify import verify
from onnxtfl.passes.canonical.merge_equal import merge_equal


def test_the_node_that_is_left_has_the_sources_of_all() -> None:
    graph = Graph()
    x = graph.add_input(tensor("float32", 2), "x")
    for i in range(100):
        node = Builder(graph)(ops.Neg, x).producer
        assert node is not None
        node.sources = (f"node_{i}",)
    merge_equal(graph)
    (kept,) = graph.nodes
    assert kept.sources == tuple(f"node_{i}" for i in range(100))


LAST = " %s = Add(%a, %b)\n %y = Add(%s, %c)"


@pytest.mark.parametrize("order", ["efgabc", "efgcba", "eafbgc", "eagfcb", "egcafb", "fegbac"])
def test_readers_of_merged_nodes_are_equal_wherever_they_are(order: str) -> None:
    made = {"e": "Exp(%x)", "f": "Exp(%x)", "g": "Exp(%x)", "a": "Neg(%e)", "b": "Neg(%f)", "c": "Neg(%g)"}
    nodes = "\n".join(f" %{name} = {made[name]}" for name in order)
    graph = parse_graph(f"graph main(%x: tensor<2xfloat32>) -> (%y) {{\n{nodes}\n{LAST}\n}}")
    merge_equal(graph)
    verify(graph)
    assert [node.op.name for node in graph.nodes] == ["Exp", "Neg", "Add", "Add"]
