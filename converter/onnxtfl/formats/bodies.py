"""Ops that are defined by other ops in their format or file."""

from __future__ import annotations

from onnxtfl.formats.onnx import functions
from onnxtfl.ir.graph import Graph, Node

DEFINED_BY_FILE = frozenset({"STABLEHLO_COMPOSITE"})
"""The TFLite ops with the index of a subgraph that defines them."""


def body(node: Node) -> Graph | None:
    """The function body of an op by its format (ONNX) or file (TFLite composites); else None."""
    if node.op.dialect == "onnx":
        return functions.body(node)
    decomposition = node.attributes.get("decomposition_subgraph_index")
    return decomposition if isinstance(decomposition, Graph) else None


def is_defined(node: Node) -> bool:
    """Whether `body` returns a graph for `node`."""
    if node.op.dialect == "onnx":
        return functions.defined(node.op.name_in_file, node.op.version, node.op.domain)
    return isinstance(node.attributes.get("decomposition_subgraph_index"), Graph)
