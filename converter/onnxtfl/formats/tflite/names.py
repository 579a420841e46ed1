"""Names of the tensors of a subgraph: those of the values, made unique."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from onnxtfl.formats.unique import UniqueNames
from onnxtfl.ir.graph import Graph, Value


class TensorNames(UniqueNames):
    """The unique name of each value of a graph; constants are named last, so that the others keep theirs.

    `constants`: names for constants without one.
    """

    def __init__(self, graph: Graph, constants: Mapping[Value, str] | None = None) -> None:
        super().__init__()
        self._constants = constants or {}
        self.all: dict[Value, str] = {}
        self._reserve(graph.inputs, "input")
        self._reserve(graph.outputs, "output")
        self._reserve((r for node in graph.nodes for r in node.results if r.name), "")

    def of(self, value: Value) -> str:
        """The name of `value`, the same on each call."""
        if value not in self.all:
            self.all[value] = self.fresh(value.name or self._constants.get(value) or _hint(value))
        return self.all[value]

    def _reserve(self, values: Iterable[Value], base: str) -> None:
        for value in values:
            if value not in self.all:
                self.all[value] = self.fresh(value.name or base)


def _hint(value: Value) -> str:
    if value.data is not None:
        return "constant"
    if value.producer is None:
        return "value"
    return value.producer.op.name.removeprefix("tfl.").lower()
