"""Loop-carried values that rounds only read are passed through without a copy; tfl to tfl.

::

    While (%i, %x) body { ... %x2 = RESHAPE(%x); return %i2, %x2 }    ->    body { ... return %i2, %x }

LiteRT does not copy a tensor that is an input and, at the same place, an output of the body (while.cc).
"""

from __future__ import annotations

from onnxtfl.ir import ops
from onnxtfl.ir.graph import Graph


def pass_through(graph: Graph) -> None:
    """Let the bodies of the loops of `graph` return their inputs instead of copies of them."""
    for node in graph.nodes:
        if node.lowered_from is ops.While:
            for region in node.regions:
                _return_inputs(region)


def _return_inputs(region: Graph) -> None:
    """Return input i as output i where that is a copy of it. The condition, whose output is no input, is unchanged."""
    for i, value in enumerate(region.outputs):
        node = value.producer
        if i >= len(region.inputs) or node is None or node.lowered_from is not ops.Copy:
            continue
        if node.operand(0) is region.inputs[i] and not value.uses:
            region.outputs[i] = region.inputs[i]
            region.remove(node)
