"""Common subexpression elimination.

::

    %a = Exp(%x)                    %a = Exp(%x)
    %b = Exp(%x)             ->     %c = Add(%a, %a)
    %c = Add(%a, %b)
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from onnxtfl.ir.data import TensorData
from onnxtfl.ir.graph import Graph, Node, Value
from onnxtfl.ir.quantized import quantization_of


def merge_equal(graph: Graph) -> None:
    """Merge pure nodes with equal ops, attributes, operands and result quantization.

    A node that is the only reader of an operand has no equal, unless later another node is merged with the operand's
    producer.
    """
    seen = _Seen()
    alone: set[Node] = set()
    merged: dict[Node, list[Node]] = {}
    outputs = graph.output_set()
    for node in graph.nodes:
        if node.regions or not node.is_pure:
            continue
        if _reads_alone(node):
            alone.add(node)
            continue
        first = seen.first(node)
        if first is not node and not any(r in outputs for r in node.results):
            merged.setdefault(first, []).append(node)
            readers = [reader for result in first.results if len(result.uses) == 1 for reader in result.users()]
            for reader in alone.intersection(readers):
                seen.first(reader)
            graph.replace(node, first.results)
    for first, others in merged.items():
        first.add_history(*others)


def _reads_alone(node: Node) -> bool:
    """Whether no other node reads one of the operands."""
    return 1 in [len(v.uses) for v in node.present_operands if v.data is None]


class _Seen:
    """The first of equal nodes. Attributes are compared only if op and operands are equal, which few nodes are."""

    def __init__(self) -> None:
        self._by_operands: dict[Hashable, Node | dict[Hashable, Node]] = {}

    def first(self, node: Node) -> Node:
        """The first node that is equal to `node`, which may be `node` itself."""
        key = _operands_key(node)
        known = self._by_operands.setdefault(key, node)
        if known is node:
            return node
        if isinstance(known, Node):
            known = self._by_operands[key] = {_attributes_key(known): known}
        return known.setdefault(_attributes_key(node), node)


def _operands_key(node: Node) -> Hashable:
    operands = tuple([None if v is None else _value_key(v) for v in node.operands])
    return node.op, operands, tuple(map(quantization_of, node.results))


def _attributes_key(node: Node) -> Hashable:
    return tuple(sorted((k, _attribute_key(v)) for k, v in node.attributes.items()))


def _value_key(value: Value) -> Hashable:
    return (value.data.key, value.type) if value.data is not None else value


def _attribute_key(value: Any) -> str:
    return f"{value.key}{value.shape}" if isinstance(value, TensorData) else repr(value)
