"""Lowering: replaces each legal neutral node by its target op. It renames only; it never decomposes."""

from __future__ import annotations

from onnxtfl.errors import UnsupportedError
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.graph import Graph
from onnxtfl.rewriting.emit import emit
from onnxtfl.rewriting.legalize import Target, source_name


def lower(graph: Graph, target: Target) -> None:
    """Replace every neutral node by its target op; UnsupportedError for one that is still not legal (a bug).

    Users come before producers: when the target is asked about a node, its operands are results of neutral ops.
    """
    for node in reversed(list(graph.nodes)):
        if node.op.dialect == "neutral":
            form = target.accepted(node)
            if form is None or not form.renames:
                raise UnsupportedError(
                    "has no form in the target after layout", node=source_name(node), op=node.op.name
                )
            graph.replace(node, emit(Builder(graph, node), node, form, target.name, target.version(node, form)))
