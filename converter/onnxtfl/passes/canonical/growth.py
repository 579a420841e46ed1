"""How much the constants of graphs may grow for convolutions that compute faster, in all passes of a conversion."""

from __future__ import annotations

from fractions import Fraction

from onnxtfl.ir.graph import Graph

MOST_GROWTH = Fraction(1, 50)
"""The most by which the constants of a graph grow, if that is more than `SMALL_GROWTH`."""
SMALL_GROWTH = 1 << 16
"""So many elements, 256 KiB, any graph may grow by: models of this size are a small part of what an app stores."""


class Growth:
    """The elements that the constants of each graph may still grow by; passes of one conversion share it."""

    def __init__(self) -> None:
        self._left: dict[Graph, Fraction] = {}

    def take(self, graph: Graph, elements: Fraction | int) -> bool:
        """Whether constants may grow by `elements`, by which later calls have less."""
        if graph not in self._left:
            self._left[graph] = _most(graph)
        if elements > self._left[graph]:
            return False
        self._left[graph] -= elements
        return True


def _most(graph: Graph) -> Fraction:
    """How many elements all constants may grow by."""
    constants = {v for node in graph.nodes for v in node.operands if v is not None}
    size = sum(v.data.size for v in constants if v.data is not None)
    return max(size * MOST_GROWTH, Fraction(SMALL_GROWTH))
