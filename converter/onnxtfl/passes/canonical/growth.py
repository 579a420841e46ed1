"""The limit to the growth of constants for convolutions that compute faster, in all passes of a conversion."""

from __future__ import annotations

from fractions import Fraction

from onnxtfl.ir.data import TensorData
from onnxtfl.ir.graph import Graph
from onnxtfl.passes.canonical.half_kernels import is_widened

MOST_GROWTH = Fraction(1, 50)
"""The most by which the constants of a graph grow, if that is more than `SMALL_GROWTH`."""
SMALL_GROWTH = 1 << 18
"""The bytes that the constants of any graph may grow by: models of 256 KiB are a small part of what an app stores."""


class Growth:
    """The bytes that the constants of each graph may still grow by; passes of one conversion share it."""

    def __init__(self) -> None:
        self._left: dict[Graph, Fraction] = {}

    def take(self, graph: Graph, size: Fraction | int) -> bool:
        """Whether constants may grow by `size` bytes, by which later calls have less."""
        if graph not in self._left:
            self._left[graph] = _most(graph)
        if size > self._left[graph]:
            return False
        self._left[graph] -= size
        return True


def stored_size(data: TensorData) -> int:
    """The bytes of a constant in a file: widened float16 is stored as float16."""
    return data.nbytes // 2 if is_widened(data) else data.nbytes


def _most(graph: Graph) -> Fraction:
    """The bytes that all constants may grow by."""
    constants = {v for node in graph.nodes for v in node.present_operands}
    size = sum(stored_size(v.data) for v in constants if v.data is not None)
    return max(size * MOST_GROWTH, Fraction(SMALL_GROWTH))
