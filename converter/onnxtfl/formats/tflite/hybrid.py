"""Ops of float activations and quantized weights whose activations the kernels leave as they are."""

from __future__ import annotations

from onnxtfl.ir import ops
from onnxtfl.ir.graph import Node
from onnxtfl.ir.whole_rows import OPTION, Meaning, are_whole_rows, rounds_to_steps

_MEANINGS = {
    "tfl.BROADCAST_TO": ops.BroadcastTo,
    "tfl.CAST": ops.Convert,
    "tfl.CONCATENATION": ops.Concatenate,
    "tfl.DEQUANTIZE": ops.Convert,
    "tfl.MAXIMUM": ops.Max,
    "tfl.MINIMUM": ops.Min,
    "tfl.PAD": ops.Pad,
    "tfl.RESHAPE": ops.Reshape,
    "tfl.ROUND": ops.RoundNearestEven,
    "tfl.SUB": ops.Sub,
    "tfl.TRANSPOSE": ops.Transpose,
}


def keeps_activations(node: Node) -> bool:
    """Whether the kernel of a TFLite op rounds each row, or sample, to 255 steps that its values are multiples of."""
    option = node.attributes.get(OPTION)
    meaning: Meaning = lambda made: _MEANINGS.get(made.op.name)  # noqa: E731
    rounds = rounds_to_steps(option, node.optional(1))
    return rounds and are_whole_rows(node.operand(0), meaning)
