"""The fused activation of a TFLite op, as a separate op after it, which is then lifted like any other op."""

from __future__ import annotations

from onnxtfl.ir.builder import Builder
from onnxtfl.ir.graph import Node, Value


def activated(b: Builder, value: Value, node: Node) -> Value:
    """Apply to `value` the activation in the option `fused_activation_function` of `node`."""
    name = node.attr("fused_activation_function", "NONE")
    return value if name in ("NONE", None) else b.foreign("tfl", name, [value], [value.type])[0]
