"""Replaces a neutral node by the target op that a form describes."""

from __future__ import annotations

from collections.abc import Sequence

from onnxtfl.errors import UnsupportedError
from onnxtfl.ir.builder import Builder, Operand
from onnxtfl.ir.graph import Node, Value
from onnxtfl.ir.types import Type
from onnxtfl.rewriting.registry import Computed, Form


def emit(builder: Builder, node: Node, form: Form, dialect: str, version: int) -> Sequence[Value]:
    """Make the target op that `form` describes; return the values that replace the results of `node`."""
    order = form.results if form.results is not None else tuple(range(len(node.results)))
    types: Sequence[Type | None] = form.types or [node.results[i].type for i in order]
    operands = [_computed(builder, operand) for operand in form.operands]
    made = builder.foreign(dialect, form.op, operands, types, version, form.domain, **form.attributes)
    if made and made[0].producer is not None:
        made[0].producer.name = node.name
    if form.finish is not None:
        return form.finish(builder, made)
    for position, index in enumerate(order):
        made[position].known = node.results[index].known
    return [made[order.index(i)] if i in order else _unused(node, i) for i in range(len(node.results))]


def _computed(builder: Builder, operand: Operand | Computed) -> Operand:
    return operand.compute(builder) if isinstance(operand, Computed) else operand


def _unused(node: Node, index: int) -> Value:
    if node.results[index].uses:
        raise UnsupportedError(
            f"result {index} is used, but the target's op does not have it", node=node.name, op=node.op.name
        )
    return Value(node.results[index].type)
