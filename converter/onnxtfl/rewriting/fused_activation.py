"""The activation that a TFLite op carries in its options: an op of its own after it, which is lifted like any other."""

from __future__ import annotations

from onnxtfl.ir.builder import Builder
from onnxtfl.ir.graph import Node, Value


def activated(b: Builder, value: Value, node: Node) -> Value:
    """`value` with the activation that the option `fused_activation_function` of `node` names."""
    name = node.attr("fused_activation_function", "NONE")
    return value if name in ("NONE", None) else b.foreign("tfl", name, [value], [value.type])[0]
