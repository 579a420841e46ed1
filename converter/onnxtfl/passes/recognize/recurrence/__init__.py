"""Recognition of recurrent layers in unrolled steps, loops and kernels.

Unrolled and single steps are rolled up to a Scan (`chains` finds their nodes, `reroll` the Scan, `unrolled_steps`
writes the layer), and so are blocks of steps in a loop (`blocks`). One matcher recognizes the body of a Scan as the
step of a layer: `iterations`, with `polynomials` and `reading` (a normal form of what the body computes) and `matching`
(unification with the steps of layers). `scans` applies it to Scans, `layers` writes the op, `cleanup` merges ops around
a layer, `bidirectional` joins two layers to a bidirectional one.
"""

from __future__ import annotations

from onnxtfl.ir.graph import Graph
from onnxtfl.passes.recognize.recurrence.bidirectional import join_directions
from onnxtfl.passes.recognize.recurrence.blocks import BLOCKS, join_parts
from onnxtfl.passes.recognize.recurrence.cleanup import AROUND_LAYERS, LAST_OUTPUTS
from onnxtfl.passes.recognize.recurrence.scans import LAYERS_IN_SCANS
from onnxtfl.passes.recognize.recurrence.unrolled_steps import recognize_steps
from onnxtfl.rewriting.patterns import Patterns

__all__ = ["LAST_OUTPUTS", "LAYERS_IN_SCANS", "RECURRENCE", "join_directions", "join_parts", "recognize_layers"]

RECURRENCE = Patterns.of(LAST_OUTPUTS, AROUND_LAYERS)
"""Rewrites of recognized layers."""


def recognize_layers(graph: Graph) -> bool:
    """Replace Scans and steps by recurrent layers; return whether there were any."""
    changed = LAYERS_IN_SCANS.apply(graph)
    changed |= BLOCKS.apply(graph)
    return recognize_steps(graph) or changed
