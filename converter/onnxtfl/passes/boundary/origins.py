"""Values that are only moved get the origins of their moved elements, so that the check compares each op by itself.

::

    %c = Conv(%x) : tensor<1x1x8x4>                        the tensor "a" of the source is %a, and %c in another shape
    %a = Reshape(%c) : tensor<1x8x4>                ->
    %d = Conv(%c)
"""

from __future__ import annotations

from onnxtfl.ir.graph import Graph


def note_origins_of_moved(graph: Graph) -> None:
    """Add the origins of the results of nodes that only move elements to operands without any."""
    for node in reversed(list(graph.nodes)):
        operand = node.operands[0] if node.operands else None
        if operand is not None and operand.producer is not None and not operand.origins:
            operand.add_origins(node.op.origin_before(node, o) for result in node.results for o in result.origins)
