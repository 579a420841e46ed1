"""Read-only loop-carried values are returned without a copy; tfl to tfl.

::

    While (%i, %x) body { ... %x2 = RESHAPE(%x); return %i2, %x2 }    ->    body { ... return %i2, %x }

LiteRT does not copy a tensor that is input i and output i of the body (while.cc).
"""

from __future__ import annotations

from onnxtfl.ir import ops
from onnxtfl.ir.graph import Graph


def pass_through(graph: Graph) -> None:
    """Let loop bodies of `graph` return their inputs instead of copies."""
    for node in graph.nodes:
        if node.lowered_from is ops.While:
            for region in node.regions:
                _return_inputs(region)


def _return_inputs(region: Graph) -> None:
    """Return input i as output i if that is a copy of it."""
    for i, value in enumerate(region.outputs):
        node = value.producer
        if i >= len(region.inputs) or node is None or node.lowered_from is not ops.Copy:
            continue
        if node.operand(0) is region.inputs[i] and not value.uses:
            region.outputs[i] = region.inputs[i]
            region.remove(node)
