"""Attention of ONNX's default domain, where its definition by a function differs from what runtimes compute."""

from __future__ import annotations

from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.graph import Node
from onnxtfl.rewriting.registry import upgrade


@upgrade("Attention", since=(23, 24, 25))
def _adapt_onnx_attention(b: Builder, node: Node) -> None:
    """Convert V to the dtype of Q, and drop a `softcap` <= 0, which ONNX Runtime's kernel ignores.

    The op allows V to have another dtype than Q, but the MatMul in its function body does not.
    """
    if node.attr("softcap", 0.0) <= 0:
        node.attributes.pop("softcap", None)
    query, value = node.operand(0), node.operand(2)
    present = node.results[2:3]  # has the dtype of V, so it must be unused
    if value.dtype is not query.dtype and not any(v.uses or b.graph.is_output(v) for v in present):
        node.set_operand(2, b(ops.Convert, value, dtype=query.dtype))
        if (past := node.optional(5)) is not None:
            node.set_operand(5, b(ops.Convert, past, dtype=query.dtype))
