"""ONNX forms of ops that are not nodes of a graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from onnxtfl.ir.builder import infer
from onnxtfl.ir.graph import Node, Value
from onnxtfl.ir.op import Op
from onnxtfl.rewriting.registry import Form, rules


def form_onnx(op: type[Op], operands: Sequence[Value | None], attributes: Mapping[str, Any], opset: int) -> Form | None:
    """Return the first ONNX form of `op` on `operands`, or None."""
    node = Node(op, operands, attributes)
    try:
        for type_ in infer(node):
            node.add_result(type_)
        return next(iter(rules().onnx_forms(node, opset)), None)
    finally:
        for i in range(len(operands)):
            node.set_operand(i, None)
