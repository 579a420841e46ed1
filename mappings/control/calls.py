"""CALL: the subgraph becomes a part of the graph that calls it."""

from __future__ import annotations

from collections.abc import Sequence

from onnxtfl.ir.builder import Builder
from onnxtfl.ir.graph import Node, Value
from onnxtfl.ir.inlining import copy_region
from onnxtfl.rewriting.regions import bind_captures, graph_in, refuse_states
from onnxtfl.rewriting.registry import lift_tfl, regions_of


@regions_of("tfl.CALL")
def call_regions(node: Node) -> None:
    """The subgraph has all operands as inputs."""
    refuse_states(graph_in(node, "subgraph"))
    bind_captures(graph_in(node, "subgraph"), node.operands)


@lift_tfl("CALL")
def call(b: Builder, node: Node) -> Sequence[Value]:
    """Inline the subgraph."""
    return copy_region(b, graph_in(node, "subgraph"), node.operands)
