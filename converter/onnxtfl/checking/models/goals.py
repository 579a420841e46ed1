"""What inputs may reach inside a model: branches, limits of clamps, selections that are not empty."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from onnxtfl.ir import ops
from onnxtfl.ir.data import Array
from onnxtfl.ir.graph import Graph, Node, Value
from onnxtfl.ir.signs import never_negative
from onnxtfl.ir.source_names import shown_name

MOST = 256
"""Tensors that are looked at."""


@dataclass(frozen=True)
class Goal:
    """Something that inputs may reach.

    ``what``: a phrase that the ``op`` completes; ``node``: its name in quotes. It is reached where the tensor named
    ``tensor`` has an element ``above`` a value or ``below`` one, or where neither is given where it has an element.
    """

    what: str
    op: str
    node: str
    tensor: str
    above: float | None = None
    below: float | None = None

    def is_reached(self, array: Array) -> bool:
        """Whether these values of the tensor reach it."""
        if self.above is not None:
            return bool((array > self.above).any())
        if self.below is not None:
            return bool((array < self.below).any())
        return array.size > 0


def goals_of(graph: Graph) -> tuple[Goal, ...]:
    """What inputs may reach in a lifted graph; what its values are known not to reach is left out."""
    return tuple(goal for node in graph.nodes for goal in _goals(node))[:MOST]


def _goals(node: Node) -> Iterator[Goal]:
    first = node.optional(0)
    if first is None:
        return
    if node.op is ops.If and (name := _tensor(first)) and not first.is_constant:
        yield Goal("the then branch of", "If", shown_name(node), name, above=0.5)
        yield Goal("the else branch of", "If", shown_name(node), name, below=0.5)
    elif node.op is ops.Clamp and (name := _tensor(first)) and not first.is_constant:
        low, high = (_number(node.optional(k)) for k in (1, 2))
        if low is not None and not (low <= 0 and never_negative(first)):
            yield Goal("the lower limit of", "Clamp", shown_name(node), name, below=low)
        if high is not None:
            yield Goal("the upper limit of", "Clamp", shown_name(node), name, above=high)
    elif node.op in (ops.NonMaxSuppression, ops.NonZero) and (name := _tensor(node.results[0])):
        yield Goal("a selected element of", node.op.name, shown_name(node), name)


def _tensor(value: Value) -> str:
    """The name of the tensor in the file that has the elements of a value, in whatever order; "" where none has."""
    return value.name or next((origin.tensor for origin in value.origins), "")


def _number(value: Value | None) -> float | None:
    array = value.numpy() if value is not None and value.data is not None and value.data.size == 1 else None
    found = None if array is None else float(array.reshape(-1)[0])
    return found if found is not None and abs(found) < float(np.finfo(np.float32).max) else None
