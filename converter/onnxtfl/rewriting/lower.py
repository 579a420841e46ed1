"""Lower: each legal neutral node becomes its op of the target. Only renames; it never decomposes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from onnxtfl.errors import UnsupportedError
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.graph import Graph, Node, Value
from onnxtfl.rewriting.legalize import Target, label
from onnxtfl.rewriting.registry import Form


class LoweringTarget(Target, Protocol):
    """What lowering asks of a target beside what legalization does."""

    def version(self, node: Node, form: Form) -> int:
        """The lowest version of the target's op that means `form`."""
        ...


def lower(graph: Graph, target: LoweringTarget) -> None:
    """Rename every neutral node; UnsupportedError where legalization left one that has no name there (a bug)."""
    for node in graph.nodes:
        if node.op.dialect == "neutral":
            form = target.accepted(node)
            if form is None:
                raise UnsupportedError("has no form in the target after layout", node=label(node), op=node.op.name)
            graph.replace(node, _emit(graph, node, form, target))


def _emit(graph: Graph, node: Node, form: Form, target: LoweringTarget) -> Sequence[Value]:
    builder = Builder(graph, node)
    order = form.results if form.results is not None else tuple(range(len(node.results)))
    types = [node.results[i].type for i in order]
    made = builder.foreign(
        target.name, form.op, form.operands, types, target.version(node, form), form.domain, **form.attributes
    )
    for position, index in enumerate(order):
        made[position].known = node.results[index].known
    if made and made[0].producer is not None:
        made[0].producer.name = node.name
    return [made[order.index(i)] if i in order else _unused(node, i) for i in range(len(node.results))]


def _unused(node: Node, index: int) -> Value:
    if node.results[index].uses:
        raise UnsupportedError(f"result {index} has no place in the target's op", node=label(node), op=node.op.name)
    return Value(node.results[index].type)
