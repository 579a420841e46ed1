"""Ops of float activations and quantized weights whose activations the kernels leave as they are."""

from __future__ import annotations

from onnxtfl.ir import ops
from onnxtfl.ir.graph import Node
from onnxtfl.ir.whole_rows import are_whole_rows

_MEANINGS = {
    "tfl.CAST": ops.Convert,
    "tfl.MAXIMUM": ops.Max,
    "tfl.MINIMUM": ops.Min,
    "tfl.ROUND": ops.RoundNearestEven,
    "tfl.SUB": ops.Sub,
}


def keeps_activations(node: Node) -> bool:
    """Whether the kernel of a TFLite op rounds each row to 255 steps that its values are multiples of."""
    rounds = bool(node.attributes.get("asymmetric_quantize_inputs"))
    return rounds and are_whole_rows(node.operand(0), lambda made: _MEANINGS.get(made.op.name))
