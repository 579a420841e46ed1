"""Reports inputs and outputs whose element type differs from the source's."""

from __future__ import annotations

import json

from onnxtfl.ir.graph import Graph
from onnxtfl.ir.metadata import IO_TYPES

HeldType = tuple[str, str, str, bool]
"""Name of an input or output, its type in the source and in the result, whether the result's contains bits."""


def held_types(graph: Graph) -> list[HeldType]:
    """Return the inputs and outputs whose type changed, in order."""
    return [(name, source.value, dtype.value, bits) for name, (source, dtype, bits) in graph.notes.held.items()]


def as_property(graph: Graph) -> dict[str, str]:
    """Return the metadata property of the result that records this as JSON; none if nothing changed."""
    return {IO_TYPES: json.dumps({name: rest for name, *rest in held_types(graph)})} if graph.notes.held else {}
