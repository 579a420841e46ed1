"""Tensor names: those of the values, unique over all subgraphs of a model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from onnxtfl.formats.unique import UniqueNames
from onnxtfl.ir.graph import Graph, Value


class TensorNames:
    """The unique name of each value of a graph; constants are named last, so that other values keep their names.

    `constants`: names for constants without one. `unique`: the names in all subgraphs, since quantizers and profilers
    keep what they measure by the name of a tensor.
    """

    def __init__(
        self, graph: Graph, constants: Mapping[Value, str] | None = None, unique: UniqueNames | None = None
    ) -> None:
        self._constants = constants or {}
        self._unique = unique or UniqueNames()
        self.all: dict[Value, str] = {}
        self._reserve(graph.inputs, "input")
        self._reserve(graph.outputs, "output")
        self._reserve((r for node in graph.nodes for r in node.results if r.name), "")

    def of(self, value: Value) -> str:
        """The name of `value`, the same on each call."""
        if value not in self.all:
            self.all[value] = self.fresh(value.name or self._constants.get(value) or _hint(value))
        return self.all[value]

    def fresh(self, base: str) -> str:
        """A name that no tensor has, `base` if possible."""
        return self._unique.fresh(base)

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
