"""The metadata of the source that its conversion has too."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from onnxtfl.formats.onnx import state_metadata
from onnxtfl.ir.graph import Graph
from onnxtfl.ir.metadata import RECORD, Metadata, Property
from onnxtfl.ir.model import Model

_OF_THE_FILE = {RECORD}
"""Properties that describe the file of the source, not the model in it."""


def carried(source: Model, graph: Graph, added: Mapping[str, Property] | None = None) -> Metadata:
    """The metadata of `source` for `graph`, which it was converted to; `added`: properties in addition."""
    metadata = source.metadata
    properties = {key: value for key, value in metadata.properties.items() if key not in _OF_THE_FILE}
    if not _has_states(source, graph):
        properties.pop(state_metadata.KEY, None)
    return replace(metadata, properties=properties | dict(added or {}))


def _has_states(source: Model, graph: Graph) -> bool:
    """Whether all states that the metadata name are still inputs and outputs."""
    names = {v.name for v in graph.inputs} | set(graph.output_names)
    states = state_metadata.decode(source.metadata.properties, None)
    return bool(states) and all(name is None or name in names for s in states for name in (s.input, s.output))
