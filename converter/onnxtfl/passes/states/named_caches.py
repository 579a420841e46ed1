"""The names of caches in a decoder whose caches have a fixed length already: an output has the name of its input."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from onnxtfl.ir.graph import Graph


@dataclass(frozen=True)
class NamedCaches:
    """The new names of outputs, which those of a file cannot have beside inputs of the same name."""

    names: Mapping[str, str]

    def declare(self, graph: Graph) -> None:
        """Leave the inputs of a file's graph as they are."""

    def decide(self, graph: Graph) -> bool:
        """False: no size depends on how many places are filled."""
        return False

    def fix(self, graph: Graph) -> None:
        """Rename the outputs of a neutral graph."""
        graph.output_names = [self.names.get(name, name) for name in graph.output_names]
