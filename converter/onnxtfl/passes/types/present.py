"""Whether a graph has element types at all: most models have only those that kernels compute."""

from __future__ import annotations

from collections.abc import Container

from onnxtfl.ir.graph import Graph
from onnxtfl.ir.types import DType, TensorType


def has_element_type(graph: Graph, types: Container[DType]) -> bool:
    """Whether a value, or an attribute of a node, of `graph` (regions excluded) has one of the element `types`."""
    for node in graph.nodes:
        for value in (*node.operands, *node.results):
            if value is not None and value.type.__class__ is TensorType and value.type.dtype in types:
                return True
        for attribute in node.attributes.values():
            if attribute.__class__ is DType and attribute in types:
                return True
    return any(isinstance(v.type, TensorType) and v.type.dtype in types for v in (*graph.inputs, *graph.outputs))
