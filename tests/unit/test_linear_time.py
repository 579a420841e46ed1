"""Passes whose time grows with the number of nodes, not with its square."""

from __future__ import annotations

import time

from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.graph import Graph, Node, Value
from onnxtfl.ir.types import DType, TensorType
from onnxtfl.passes.cleanup import merge_equal
from onnxtfl.rewriting.patterns import Patterns

MANY = 20_000
LIMIT = 5.0
"""Seconds of processor time; quadratic work on this many nodes takes more, linear work a small part of it."""


def _graph() -> tuple[Graph, Value]:
    graph = Graph()
    return graph, graph.add_input(TensorType(DType.FLOAT32, (2,)), "x")


def test_merging_many_equal_nodes_takes_linear_time() -> None:
    graph, x = _graph()
    for i in range(MANY):
        node = Builder(graph)(ops.Neg, x).producer
        assert node is not None
        node.sources = (f"node_{i}",)
    start = time.process_time()
    merge_equal(graph)
    assert time.process_time() - start < LIMIT
    (kept,) = graph.nodes
    assert kept.sources == tuple(f"node_{i}" for i in range(MANY))


def test_rewriting_many_nodes_to_one_value_takes_linear_time() -> None:
    graph, x = _graph()
    graph.outputs = [Builder(graph)(ops.Exp, Builder(graph)(ops.Neg, x)) for _ in range(MANY)]
    patterns = Patterns()

    @patterns.on(ops.Neg)
    def operand(b: Builder, node: Node) -> Value:
        return node.operand(0)

    start = time.process_time()
    assert patterns.apply(graph)
    assert time.process_time() - start < LIMIT
    assert [node.op for node in x.users()] == [ops.Exp] * MANY
