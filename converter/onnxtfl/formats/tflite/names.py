"""Names for the tensors of a subgraph: those that the values have, kept unique, and readable fresh ones."""

from __future__ import annotations

from collections.abc import Iterable

from onnxtfl.ir.graph import Graph, Value


class Fresh:
    """Makes names unique."""

    def __init__(self) -> None:
        self._taken: set[str] = set()
        self._next: dict[str, int] = {}

    def fresh(self, base: str) -> str:
        """`base`, or with a number behind it where that is taken."""
        name = base
        while name in self._taken:
            self._next[base] = self._next.get(base, 0) + 1
            name = f"{base}_{self._next[base]}"
        self._taken.add(name)
        return name


class Names(Fresh):
    """Gives each value of a graph its name; inputs and outputs have the first choice."""

    def __init__(self, graph: Graph) -> None:
        super().__init__()
        self.all: dict[Value, str] = {}
        self._reserve(graph.inputs, "input")
        self._reserve(graph.outputs, "output")

    def of(self, value: Value) -> str:
        """The name of `value`, always the same."""
        if value not in self.all:
            self.all[value] = self.fresh(value.name or _hint(value))
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
