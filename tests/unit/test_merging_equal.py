"""Equal nodes become one, which remembers where all of them came from."""

from __future__ import annotations

from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.graph import Graph
from onnxtfl.ir.types import tensor
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
