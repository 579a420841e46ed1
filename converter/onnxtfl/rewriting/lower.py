"""Lower: each legal neutral node becomes its op of the target. Only renames; it never decomposes."""

from __future__ import annotations

from onnxtfl.errors import UnsupportedError
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.graph import Graph
from onnxtfl.rewriting.emit import emit
from onnxtfl.rewriting.legalize import Target, label


def lower(graph: Graph, target: Target) -> None:
    """Rename every neutral node; UnsupportedError where legalization left one that has no name there (a bug)."""
    for node in graph.nodes:
        if node.op.dialect == "neutral":
            form = target.accepted(node)
            if form is None or not form.renames:
                raise UnsupportedError("has no form in the target after layout", node=label(node), op=node.op.name)
            graph.replace(node, emit(Builder(graph, node), node, form, target.name, target.version(node, form)))
