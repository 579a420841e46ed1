"""A plugin: rules for ops of one's own, which are then converted like any other op.

    onnx2tfl model.onnx --plugin examples/plugin/my_ops.py

A package declares such a module as an entry point, and needs no option:

    [project.entry-points."onnxtfl.mappings"]
    my_ops = "my_package.my_ops"
"""

from __future__ import annotations

from onnxtfl.rules import Builder, Node, Term, Value, lift_onnx


@lift_onnx("SoftClip", since=(1,), domain="my.domain")
def soft_clip(b: Builder, node: Node) -> Value:
    """limit * tanh(x / limit), by ops that exist in both formats."""
    x, limit = Term(b, node.operand(0)), float(node.attr("limit", 1.0))
    return ((x / limit).tanh() * limit).value
