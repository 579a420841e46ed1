"""Composite ops (STABLEHLO_COMPOSITE), whose decomposition is a subgraph of the file."""

from __future__ import annotations

from onnxtfl.ir.graph import Graph, Node

_FIELD = "decomposition_subgraph_index"


def body(node: Node) -> Graph | None:
    """The decomposition of a composite, a graph of ``tfl`` ops; None for other ops."""
    found = node.attributes.get(_FIELD)
    return found if isinstance(found, Graph) else None
