"""Optionals, which lifting resolves: an optional is its value, or Absent.

ONNX: Optional 15 28, OptionalHasElement 15 18 28, OptionalGetElement 15 18 28
"""

from __future__ import annotations

import numpy as np

from onnxtfl.build.sequences import is_absent
from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.graph import Node, Value, constant
from onnxtfl.rewriting.registry import lift_onnx


@lift_onnx("Optional", since=(15, 28))
def _optional(b: Builder, node: Node) -> Value:
    value = node.optional(0)
    return b(ops.Absent, type=node.attr("type")) if value is None else value


@lift_onnx("OptionalHasElement", since=(15, 18, 28))
def _has_element(b: Builder, node: Node) -> Value:
    """Version 18 accepts tensors and sequences too, which always have a value."""
    return constant(np.asarray(bool(node.operands) and not is_absent(node.operands[0])))


@lift_onnx("OptionalGetElement", since=(15, 18, 28))
def _get_element(b: Builder, node: Node) -> Value:
    if is_absent(node.operand(0)):
        raise ValueError("the optional has no value")
    return node.operand(0)
