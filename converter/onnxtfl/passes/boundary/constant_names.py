"""Names for the constants of a converted graph, from the weights of which they were computed.

::

    Conv(%x, %conv0.weight); BatchNormalization(...)  ->  CONV_2D(%x, "conv0.weight", "relu2/bias")

A fused weight differs from the source's weight: the name is only informative.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from onnxtfl.ir.graph import Graph, Node, Value
from onnxtfl.ir.types import TensorType
from onnxtfl.rewriting.target import Target

Weights = Mapping[str, Sequence[tuple[str, int]]]
"""The names and numbers of elements of the non-scalar constants of each node, by node name."""


def weights_of(graph: Graph) -> Weights:
    """Return the named constants of each source node, also in regions; a node without a name has its result's."""
    found: dict[str, list[tuple[str, int]]] = {}
    for node in graph.walk():
        named = [(v.name, v.data.size) for v in node.present_operands if v.data is not None and v.name]
        if (name := node.shown_name) and any(size > 1 for _, size in named):
            found[name] = [(weight, size) for weight, size in named if size > 1]
    return found


def constant_names(graph: Graph, weights: Weights, target: Target) -> dict[Value, str]:
    """Return a name for each unnamed constant that is neither integer nor scalar.

    It is that of the only constant of the source nodes with as many elements; else the name of the first result and of
    the operand.
    """
    found: dict[Value, str] = {}
    for node in graph.walk():
        for k, value in enumerate(node.operands):
            if value is not None and value not in found and _is_weight(value):
                name = value.origin.tensor if value.origin is not None else _source(node, value, weights)
                name = name or _described(node, target.operand_name(node, k))
                found |= {value: name} if name else {}
    return found


def _is_weight(value: Value) -> bool:
    type_ = value.type
    if value.data is None or value.name is not None or not isinstance(type_, TensorType) or value.data.size < 2:
        return False
    return value.is_quantized or type_.dtype.is_float


def _source(node: Node, value: Value, weights: Weights) -> str | None:
    """Return the constant of the first source node with exactly one constant of as many elements."""
    size = value.data.size if value.data is not None else 0
    for source in node.sources:
        names = {name for name, count in weights.get(source, ()) if count == size}
        if names:
            return names.pop() if len(names) == 1 else None
    return None


def _described(node: Node, operand: str | None) -> str | None:
    names = (r.name or (r.origin.tensor if r.origin is not None else None) for r in node.results)
    result = next(filter(None, names), None) or next(iter(node.sources), None)
    return f"{result}/{operand}" if result and operand else None
