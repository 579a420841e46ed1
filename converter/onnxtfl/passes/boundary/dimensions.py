"""Sizes of named dimensions, for all inputs that have the dimension.

::

    batch=1, past=3:   (%x: batch x 8, %mask: batch x past + 1)   ->   (%x: 1 x 8, %mask: 1 x 4)
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from onnxtfl.errors import UsageError, suggestion
from onnxtfl.ir.dims import Dim, evaluate, parse_dim, substitute, symbols
from onnxtfl.ir.graph import Graph, Value
from onnxtfl.ir.types import TensorType


class Dimensions:
    """Sizes of dimensions by name in the file; ``names``: the names by symbol."""

    def __init__(self, sizes: Mapping[str, int], names: Mapping[str, str]) -> None:
        self._sizes, self._names = sizes, names
        self._known = dict[str, str]()  # the names of symbols in the shapes of inputs

    def set(self, graph: Graph, elements: Collection[str] = ()) -> dict[str, tuple[int | str, ...]]:
        """Set the sizes of the inputs; return their shapes as in the options (nothing without sizes).

        `elements`: the inputs that are elements of sequences, for which the options have no shapes.

        A dimension whose name in the file is a formula ("past + 1") follows from the others.
        """
        found = {s: size for s in _symbols(graph) if (size := self._size(s)) is not None}
        shapes: dict[str, tuple[int | str, ...]] = {}
        for value, type_ in _tensors(graph):
            shape = tuple(substitute(dim, found) for dim in type_.shape or ())
            if shape != (type_.shape or ()):
                value.type = type_.with_shape(shape)
            if self._sizes and value.name and value.name not in elements and type_.shape is not None:
                shapes[value.name] = tuple(map(_asked, shape))
        return shapes

    def refuse_unknown(self) -> None:
        """Raise UsageError for a name that no input has."""
        shown = dict.fromkeys(self._known.values())
        known = {*self._known, *shown, *(name for formula in shown for name in _names_in(formula))}
        unknown = next((name for name in self._sizes if name not in known), None)
        if unknown is not None:
            hint = suggestion(unknown, shown, "the dimensions") if shown else "leave it out: all sizes are known"
            raise UsageError(f"no input has a dimension called {unknown!r}", hint=hint, code="E-USE-003")

    def _size(self, symbol: str) -> int | None:
        """Return the size of a symbol of the graph, None if it stays dynamic."""
        shown = self._names.get(symbol, symbol)
        self._known[symbol] = shown
        for name in (shown, symbol):
            if name in self._sizes:
                return self._sizes[name]
        inside = _names_in(shown)
        size = evaluate(parse_dim(shown), self._sizes) if inside and inside <= self._sizes.keys() else -1
        return None if size < 0 else size


def _asked(dim: Dim) -> int | str:
    """Return a size as in the options: the name of a dimension that stays dynamic, -1 for a formula."""
    return dim if isinstance(dim, int) else str(dim) if str(dim).isidentifier() else -1


def _tensors(graph: Graph) -> Iterator[tuple[Value, TensorType]]:
    """Return the tensor inputs with their types."""
    for value in graph.inputs:
        if isinstance(value.type, TensorType):
            yield value, value.type


def _symbols(graph: Graph) -> list[str]:
    """Return the distinct symbols in the shapes of inputs."""
    found = (name for _, type_ in _tensors(graph) for dim in type_.shape or () for name in symbols(dim))
    return list(dict.fromkeys(name for name in found if isinstance(name, str)))


def _names_in(formula: str) -> set[str]:
    """Return the names in a dimension's name if that is a formula, else none."""
    try:
        return {name for name in symbols(parse_dim(formula)) if isinstance(name, str)}
    except ValueError:
        return set()
