"""Graphs in attributes, such as the computation of a reduction, as nodes of the graph around them."""

from __future__ import annotations

from collections.abc import Sequence

from onnxtfl.ir.builder import Builder
from onnxtfl.ir.cloning import cloned_attribute
from onnxtfl.ir.graph import Graph, Node, Value, inherit
from onnxtfl.ir.op import Elementwise
from onnxtfl.ir.ops.casts import BitcastConvert


def copy_region(b: Builder, region: Graph, operands: Sequence[Value | None]) -> list[Value]:
    """Copy the nodes of `region` through `b` with `operands` as inputs; return the outputs."""
    values: dict[Value, Value | None] = dict(zip(region.inputs, operands, strict=True))

    def seen(value: Value) -> Value | None:
        return values.get(value, value)

    for node in region.nodes:
        inner = {name: cloned_attribute(value) for name, value in node.attributes.items()} if node.regions else {}
        results = b.remade(node, *(None if v is None else seen(v) for v in node.operands), **inner)
        for old, new in zip(node.results, results, strict=True):
            if new.producer is not None and new.producer in b.created:
                new.producer.add_history(node)
            inherit(old, new)
            values[old] = new
    outputs = [seen(v) for v in region.outputs]
    return [v for v in outputs if v is not None]


def is_elementwise(body: Graph) -> bool:
    """Whether a lifted body of scalars consists of ops that are computed element by element on tensors too."""
    return all(issubclass(node.op, Elementwise) or _keeps_width(node) for node in body.nodes)


def _keeps_width(node: Node) -> bool:
    return node.op is BitcastConvert and node.operand(0).dtype.bits == node.result.dtype.bits


def applied(b: Builder, body: Graph, operands: Sequence[Value], outputs: Sequence[Value] | None = None) -> list[Value]:
    """The outputs (or `outputs`, values in it) of an elementwise body on tensors, which broadcast."""
    if outputs is not None:
        body.outputs = list(outputs)
    return copy_region(b, body, operands)


def shown_ops(body: Graph) -> str:
    """The ops of a body, for messages."""
    return ", ".join(dict.fromkeys(node.op.name for node in body.nodes)) or "no op"
