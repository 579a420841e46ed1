"""The activation that a TFLite op carries in its options, as a neutral op behind it."""

from __future__ import annotations

from typing import Any

from onnxtfl.errors import InvalidModelError
from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.graph import Node, Value


def activated(b: Builder, value: Value, node: Node) -> Value:
    """`value` with what the option `fused_activation_function` of `node` (a ``tfl`` op) asks for."""
    name: Any = node.attr("fused_activation_function", "NONE")
    if name in ("NONE", None):
        return value
    if name == "RELU":
        return b(ops.Relu, value)
    if name == "TANH":
        return b(ops.Tanh, value)
    bounds = {"RELU6": (0.0, 6.0), "RELU_N1_TO_1": (-1.0, 1.0)}.get(name)
    if bounds is None:
        raise InvalidModelError(f"no such fused activation: {name}")
    return b(ops.Clamp, value, b.scalar(bounds[0], value), b.scalar(bounds[1], value))
