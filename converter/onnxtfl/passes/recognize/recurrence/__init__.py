"""Recurrent layers, recognized in the forms that files have for them: steps written out, loops, kernels.

Steps written out, and single ones, are Scans again (`chains`: which nodes they are; `reroll`: the Scan; `steps`: the
layer in their place), and so are several steps in each round (`blocks`). One reader knows the round of a Scan as that
of a layer: `rounds`, with `polynomials` and `reading` (what a step computes, however it is written) and `matching`
(which layer's step that is). `scans`: the Scans that files have. `layers`: the op for a recognized layer.
`cleanup`: what is around it. `directions`: two layers as a bidirectional one.
"""

from __future__ import annotations

from onnxtfl.ir.graph import Graph
from onnxtfl.passes.recognize.recurrence.blocks import BLOCKS, join_parts
from onnxtfl.passes.recognize.recurrence.cleanup import AROUND_LAYERS, LAST_OUTPUTS
from onnxtfl.passes.recognize.recurrence.directions import join_directions
from onnxtfl.passes.recognize.recurrence.scans import LAYERS_IN_SCANS
from onnxtfl.passes.recognize.recurrence.steps import recognize_steps
from onnxtfl.rewriting.patterns import Patterns

__all__ = ["LAST_OUTPUTS", "LAYERS_IN_SCANS", "RECURRENCE", "join_directions", "join_parts", "recognize_layers"]

RECURRENCE = Patterns.of(LAST_OUTPUTS, AROUND_LAYERS)
"""Rewrites of layers that are there."""


def recognize_layers(graph: Graph) -> bool:
    """Replace the forms of recurrent layers by the layers; returns whether there were any."""
    changed = LAYERS_IN_SCANS.apply(graph)
    changed |= BLOCKS.apply(graph)
    return recognize_steps(graph) or changed
