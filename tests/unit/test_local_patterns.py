"""Local patterns are tried once for nodes of equal structure if they do not match, or do not pay."""

from __future__ import annotations

from collections.abc import Sequence

from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.graph import Node, Value
from onnxtfl.ir.text import parse_graph
from onnxtfl.rewriting.patterns import Patterns

TEXT = """graph main(%x: tensor<2x3xfloat32>, %z: tensor<4xfloat32>) -> (%c, %w) {
  %a = Abs(%x)
  %b = Abs(%a)
  %c = Abs(%b)
  %w = Abs(%z)
}"""


def shapes_tried(pays: bool, local: bool) -> list[tuple[int, ...]]:
    """The shapes of the nodes on which a rewrite of Abs to Neg was tried."""
    patterns, tried = Patterns(), list[tuple[int, ...]]()

    @patterns.on(ops.Abs, local=local)
    def negated(b: Builder, node: Node) -> Value:
        tried.append(node.result.shape)
        return b(ops.Neg, node.operand(0))

    def decided(rule: str, before: Sequence[Node], after: Sequence[Node]) -> bool:
        return pays

    graph = parse_graph(TEXT)
    assert patterns.apply(graph, decided) is pays
    assert all(node.op is (ops.Neg if pays else ops.Abs) for node in graph.nodes)
    return tried


def test_a_local_pattern_that_does_not_pay_is_tried_once_for_equal_nodes() -> None:
    assert shapes_tried(pays=False, local=True) == [(2, 3), (4,)]
    assert shapes_tried(pays=False, local=False) == [(2, 3), (2, 3), (2, 3), (4,)]
    assert shapes_tried(pays=True, local=True) == [(2, 3), (2, 3), (2, 3), (4,)]
