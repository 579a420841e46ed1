"""The op that runs first is one that the delegate does not compute, if there is one that reads inputs only; tfl to tfl.

::

    %a = tfl.CONV_2D(%x, %w, %b)               %e = tfl.GATHER(%table, %ids)
    %e = tfl.GATHER(%table, %ids)       ->     %a = tfl.CONV_2D(%x, %w, %b)
    %y = tfl.ADD(%a, %e)                       %y = tfl.ADD(%a, %e)

TFLite runs all ops of one kind, delegated or not, that have their operands, then all of the other; the first op decides
which kind begins. If all ops that read inputs only, like the GATHER of an embedding, run before the delegate does, none
of them ends a group of delegated ops: here there is one, else CONV_2D and ADD are one each.
Source: tensorflow/lite/graph_info.cc (PartitionGraphIntoIndependentNodeSubsets).
"""

from __future__ import annotations

from onnxtfl.ir.graph import Graph, Node
from onnxtfl.ir.op import Effect
from onnxtfl.targets.target import as_form
from onnxtfl.targets.tflite import TfliteTarget


def begin_with_builtin_op(graph: Graph, target: TfliteTarget) -> None:
    """Move the first op of a builtin kernel that reads inputs only to the front."""
    first, given = next(graph.nodes, None), set(graph.inputs)
    found = (node for node in graph.nodes if _may_be_first(node) and not given.isdisjoint(node.operands))
    chosen = next((node for node in found if not target.delegates(node, as_form(node))), None)
    if first is not None and chosen is not None and chosen is not first:
        graph.unlink(chosen)
        graph.insert(chosen, first)


def _may_be_first(node: Node) -> bool:
    """Whether an op computes nothing but results, from inputs and constants."""
    is_pure = node.lowered_from is not None and node.lowered_from.effect is Effect.PURE and not node.regions
    return is_pure and all(v is None or v.producer is None for v in node.operands)
