"""Lowering: replaces each legal neutral node by its target op. It renames only; it never decomposes."""

from __future__ import annotations

from collections.abc import Sequence

from onnxtfl.errors import UnsupportedError
from onnxtfl.ir.builder import Builder, Operand
from onnxtfl.ir.graph import Graph, Node, Value
from onnxtfl.ir.source_names import source_name
from onnxtfl.ir.types import Type
from onnxtfl.rewriting.registry import Computed, Form
from onnxtfl.rewriting.target import Target


def lower(graph: Graph, target: Target) -> None:
    """Replace every neutral node by its target op. Raises UnsupportedError for one that is still not legal (a bug).

    Users come before producers: when the target is asked about a node, its operands are results of neutral ops.
    """
    for node in reversed(list(graph.nodes)):
        if node.op.dialect == "neutral":
            form = target.accepted(node)
            if form is None or not form.renames:
                raise UnsupportedError(
                    "has no form in the target after layout", node=source_name(node), op=node.op.name, code="E-OP-004"
                )
            emit(graph, node, form, target)


def emit(graph: Graph, node: Node, form: Form, target: Target) -> list[Node]:
    """Replace `node` by the target op that `form` describes; return the nodes made."""
    builder = Builder(graph, node)
    order = form.results if form.results is not None else tuple(range(len(node.results)))
    types: Sequence[Type | None] = form.types or [node.results[i].type for i in order]
    operands = [_computed(builder, operand) for operand in form.operands]
    version = target.version(node, form)
    made = builder.foreign(target.name, form.op, operands, types, version, form.domain, **form.attributes)
    if made and made[0].producer is not None:
        made[0].producer.name, made[0].producer.lowered_from = node.name, node.op
    if form.finish is not None:
        graph.replace(node, form.finish(builder, made))
        return builder.created
    found = dict(zip(order, made, strict=True))
    for index, value in found.items():
        value.known = node.results[index].known
    graph.replace(node, [found[i] if i in found else _unused(node, i) for i in range(len(node.results))])
    return builder.created


def _computed(builder: Builder, operand: Operand | Computed) -> Operand:
    return operand.compute(builder) if isinstance(operand, Computed) else operand


def _unused(node: Node, index: int) -> Value:
    if node.results[index].uses:
        raise UnsupportedError(
            f"result {index} is used, but the target's op does not have it",
            node=node.name,
            op=node.op.name,
            code="E-OP-004",
        )
    return Value(node.results[index].type)
