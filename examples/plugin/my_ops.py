"""A plugin with conversion rules for your own ops.

    onnx2tfl model.onnx --plugin examples/plugin/my_ops.py

A package can declare such a module as an entry point, so that no option is needed:

    [project.entry-points."onnxtfl.mappings"]
    my_ops = "my_package.my_ops"
"""

from __future__ import annotations

from onnxtfl.rules import Builder, Node, Term, Value, lift_onnx


@lift_onnx("SoftClip", since=(1,), domain="my.domain")
def soft_clip(b: Builder, node: Node) -> Value:
    """limit * tanh(x / limit), as ops that both formats have."""
    x, limit = Term(b, node.operand(0)), float(node.attr("limit", 1.0))
    return ((x / limit).tanh() * limit).value
