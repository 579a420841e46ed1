"""Recurrent layers, recognized in the forms that files have for them: steps written out, loops, kernels.

`polynomials` and `reading`: what a step computes, however it is written. `matching`: which layer's step that is.
`unrolled`: steps written out. `scans`: bodies of loops.
`cleanup`: what is around a layer. `bidirectional`,
`directions`: two layers as a bidirectional one. `layers`: the op for a recognized layer.
"""

from __future__ import annotations

from onnxtfl.ir.graph import Graph
from onnxtfl.passes.recognize.recurrence.bidirectional import DIRECTIONS
from onnxtfl.passes.recognize.recurrence.cleanup import AROUND_LAYERS
from onnxtfl.passes.recognize.recurrence.directions import join_directions
from onnxtfl.passes.recognize.recurrence.scans import SCANS
from onnxtfl.passes.recognize.recurrence.unrolled import recognize_unrolled
from onnxtfl.rewriting.patterns import Patterns

__all__ = ["RECURRENCE", "join_directions", "recognize_layers"]

RECURRENCE = Patterns.of(AROUND_LAYERS, DIRECTIONS)
"""Rewrites of layers that are there."""


def recognize_layers(graph: Graph) -> bool:
    """Replace the forms of recurrent layers by the layers; returns whether there were any."""
    scanned = SCANS.apply(graph)
    return recognize_unrolled(graph) or scanned
