"""Clamp, whose operands are in another order in the document: by name."""

from __future__ import annotations

from onnxtfl.ir.builder import Builder
from onnxtfl.ir.document.forms import Statement, document_form
from onnxtfl.ir.graph import Node, Value
from onnxtfl.ir.op import Operand
from onnxtfl.ir.ops.clamping import Clamp


def _printed(node: Node) -> Statement:
    return Statement([node.optional(1), node.operand(0), node.optional(2)], node.attributes, ("min", "input", "max"))


@document_form(Clamp, Operand("min", optional=True), Operand("input"), Operand("max", optional=True), printed=_printed)
def _clamp(b: Builder, low: Value | None, x: Value, high: Value | None) -> Value:
    """Operands without names are in the order input, min, max."""
    return b(Clamp, x, low, high)
