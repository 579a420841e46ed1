"""Recurrent layers, recognized in the forms that files have for them: steps written out, loops, kernels.

`polynomials` and `reading`: what a step computes, however it is written. `matching`: which layer's step that is.
`unrolled`: steps written out. `single`: one step, whose states are outside.
`scans`: bodies of loops. `blocks`: several steps in each round.
`cleanup`: what is around a layer. `bidirectional`,
`directions`: two layers as a bidirectional one. `layers`: the op for a recognized layer.
"""

from __future__ import annotations

from onnxtfl.ir.graph import Graph
from onnxtfl.passes.recognize.recurrence.bidirectional import DIRECTIONS
from onnxtfl.passes.recognize.recurrence.blocks import BLOCKS, join_parts
from onnxtfl.passes.recognize.recurrence.cleanup import AROUND_LAYERS, LAST_OUTPUTS
from onnxtfl.passes.recognize.recurrence.directions import join_directions
from onnxtfl.passes.recognize.recurrence.scans import LAYERS_IN_SCANS
from onnxtfl.passes.recognize.recurrence.single import recognize_single_steps
from onnxtfl.passes.recognize.recurrence.unrolled import recognize_unrolled
from onnxtfl.rewriting.patterns import Patterns

__all__ = ["LAST_OUTPUTS", "LAYERS_IN_SCANS", "RECURRENCE", "join_directions", "join_parts", "recognize_layers"]

RECURRENCE = Patterns.of(LAST_OUTPUTS, AROUND_LAYERS, DIRECTIONS)
"""Rewrites of layers that are there."""


def recognize_layers(graph: Graph) -> bool:
    """Replace the forms of recurrent layers by the layers; returns whether there were any."""
    changed = LAYERS_IN_SCANS.apply(graph)
    changed |= BLOCKS.apply(graph)
    changed |= recognize_unrolled(graph)
    return recognize_single_steps(graph) or changed
