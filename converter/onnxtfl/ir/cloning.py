"""Copies of graphs, of any dialect."""

from __future__ import annotations

from typing import Any

from onnxtfl.ir.graph import Graph, Node, Value


def clone(region: Graph) -> Graph:
    """A copy of `region`, of any dialect, that shares no node, value or inner region with it, except for constants."""
    result = Graph(region.name, output_names=list(region.output_names))
    values: dict[Value, Value] = {}
    for value in region.inputs:
        values[value] = _like(value, result.add_input(value.type))
    for node in region.nodes:
        attributes = {name: cloned_attribute(value) for name, value in node.attributes.items()}
        copy = Node(node.op, [None if v is None else values.get(v, v) for v in node.operands], attributes)
        copy.name, copy.sources, copy.made_by, copy.remarks = node.name, node.sources, node.made_by, node.remarks
        for value in node.results:
            values[value] = _like(value, copy.add_result(value.type))
        result.insert(copy)
    result.outputs = [values.get(v, v) for v in region.outputs]
    return result


def _like(value: Value, copy: Value) -> Value:
    copy.name, copy.known, copy.origins = value.name, value.known, value.origins
    return copy


def cloned_attribute(attribute: Any) -> Any:
    """An attribute; graphs are copied."""
    if isinstance(attribute, Graph):
        return clone(attribute)
    return tuple(map(cloned_attribute, attribute)) if isinstance(attribute, tuple) else attribute
