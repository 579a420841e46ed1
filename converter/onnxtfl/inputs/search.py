"""Search for inputs that reach missed goals, by evaluating the graph in NumPy.

Each goal is a limit of a tensor. Inputs are scaled, shifted and negated, all together and one at a time; those that
bring the tensor nearer to the limit are changed further::

    y = Clip(0.01 * x, 0, 6)    x = 2, 8, 64, 512, 4096    ->    6 is reached
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from onnxtfl.ir import ops
from onnxtfl.ir.data import Array
from onnxtfl.ir.graph import Graph, Node, Value
from onnxtfl.ir.interpret import evaluate_node

MOST_WORK = 1 << 24
"""The multiplications of one evaluation, about; larger graphs are not evaluated."""
STEPS = 12
"""The most further changes of the best inputs for a goal."""
MOVES = (
    (1.0, 0.0),
    (-1.0, 0.0),
    (8.0, 0.0),
    (0.125, 0.0),
    (2.0, 0.0),
    (1.0, 1.0),
    (1.0, -1.0),
    (1.0, 8.0),
    (1.0, -8.0),
)
"""Factors for an input, and offsets in units of its largest magnitude (at least 1)."""
HALVINGS = 6
"""The most halvings of the step that reached a goal, to find inputs just before a limit."""
LARGEST = 1e6
_DIRECTION = {"GT": 1, "GE": 1, "LT": -1, "LE": -1}


class Limit(Protocol):
    """A limit that a tensor with a name in the file should reach; see `Goal`."""

    @property
    def tensor(self) -> str: ...
    @property
    def above(self) -> float | None: ...
    @property
    def below(self) -> float | None: ...


def search(
    graph: Graph,
    goals: Sequence[Limit],
    starts: Sequence[Sequence[Any]],
    may: Sequence[bool],
    feed: Callable[[Sequence[Any]], Sequence[Any]],
    until: float,
) -> Iterator[list[Any]]:
    """Inputs, each of which reaches a goal that ``starts`` does not reach.

    ``graph``: neutral; ``feed``: its inputs, in order, for inputs like those in ``starts``; ``may``: which of these
    are changed. ``until``: when to stop (`time.perf_counter`). Ops that cannot be evaluated end the search.
    """
    tensors = _tensors(graph)
    found: list[list[Any]] = []
    for goal in goals:
        if goal.tensor not in tensors or (goal.above is None and goal.below is None):
            continue
        distance = _Distance(graph, tensors[goal.tensor], goal, feed, until)
        if any(distance.of(values) < 0 for values in found):
            continue
        made = _descend(distance, starts, may)
        found += made[:1]
        yield from made
        if time.perf_counter() > until:
            return


def _descend(distance: _Distance, starts: Sequence[Sequence[Any]], may: Sequence[bool]) -> list[list[Any]]:
    """Return inputs that reach the goal, some of them barely, by changing the nearest inputs; none if none are
    found.
    """
    best, values = min(((distance.of(one), list(one)) for one in starts), key=lambda pair: pair[0])
    for _ in range(STEPS):
        tries = ((distance.of(one), one) for one in _changed(values, may))
        nearer, other = min(tries, key=lambda pair: pair[0], default=(math.inf, values))
        if not nearer < best:
            return []
        if nearer < 0:
            return [other, _barely(distance, values, other, may)]
        best, values = nearer, other
    return []


def _barely(distance: _Distance, before: list[Any], after: list[Any], may: Sequence[bool]) -> list[Any]:
    """Inputs near the limit that reach the goal, between two sets of which only the second reaches it."""
    for _ in range(HALVINGS):
        triples = zip(before, after, may, strict=True)
        middle = [((x / 2 + y / 2).astype(y.dtype) if yes else y) for x, y, yes in triples]
        before, after = (before, middle) if distance.of(middle) < 0 else (middle, after)
    return after


def _changed(values: Sequence[Any], may: Sequence[bool]) -> Iterator[list[Any]]:
    """The inputs with one move of all that may change, or of one of them."""
    places = [k for k, yes in enumerate(may) if yes]
    groups = [places, *([k] for k in places if len(places) > 1)]
    for group in groups:
        for factor, shift in MOVES[1:]:
            made = list(values)
            for k in group:
                peak = max(1.0, float(np.abs(values[k]).max(initial=0)))
                made[k] = np.clip(values[k] * factor + shift * peak, -LARGEST, LARGEST).astype(values[k].dtype)
            yield made


class _Distance:
    """The distance of inputs from a goal, negative if they reach it."""

    def __init__(
        self, graph: Graph, value: Value, goal: Limit, feed: Callable[[Sequence[Any]], Sequence[Any]], until: float
    ) -> None:
        node = value.producer
        self.graph, self.goal, self.feed, self.until = graph, goal, feed, until
        self.compared = node if node is not None and node.op is ops.Compare else None
        self.wanted = self.compared.present_operands if self.compared is not None else [value]
        self.nodes = _needed(graph, self.wanted)

    def of(self, values: Sequence[Any]) -> float:
        """Infinite where the graph cannot be evaluated, or there is no time."""
        found = _evaluated(self.graph, self.nodes, self.feed(values), self.until)
        arrays = None if found is None else [v.stored() if v.is_constant else found.get(v) for v in self.wanted]
        if arrays is None or any(array is None or not array.size for array in arrays):
            return math.inf
        distance = self._measured([array.astype(np.float64) for array in arrays if array is not None])
        return distance if math.isfinite(distance) else math.inf

    def _measured(self, arrays: Sequence[Array]) -> float:
        goal = self.goal
        if self.compared is None:
            if goal.above is not None:
                return float(goal.above - arrays[0].max())
            return float(arrays[0].min() - (0.0 if goal.below is None else goal.below))
        difference = arrays[0] - arrays[1]
        sign = _DIRECTION.get(self.compared.attr("comparison_direction"), 0) * (1 if goal.above is not None else -1)
        if sign:
            return float(-(sign * difference).max())
        equal = (self.compared.attr("comparison_direction") == "EQ") == (goal.above is not None)
        return float(np.abs(difference).min() - 1e-300 if equal else -np.abs(difference).max())


def _tensors(graph: Graph) -> dict[str, Value]:
    """The values by the name of their tensor in the file."""
    values = [*graph.inputs, *(result for node in graph.nodes for result in node.results)]
    found = {origin.tensor: value for value in values for origin in value.origins}
    return found | {value.name: value for value in values if value.name}


def _needed(graph: Graph, wanted: Sequence[Value]) -> list[Node]:
    """The nodes that ``wanted`` depend on, in order."""
    needed = set(wanted)
    nodes = []
    for node in reversed(list(graph.nodes)):
        if needed.intersection(node.results):
            needed.update(node.present_operands)
            nodes.append(node)
    return nodes[::-1]


def _evaluated(graph: Graph, nodes: Sequence[Node], given: Sequence[Any], until: float) -> Mapping[Value, Array] | None:
    """The values of the inputs and of the results of ``nodes``; None if that is impossible or too slow."""
    values: dict[Value, Array] = dict(zip(graph.inputs, given, strict=True))
    work = 0
    for node in nodes:
        operands = [None if v is None else v.stored() if v.is_constant else values[v] for v in node.operands]
        work += _work([array for array in operands if array is not None])
        if work > MOST_WORK or time.perf_counter() > until or not node.is_pure:
            return None
        try:
            values.update(zip(node.results, evaluate_node(node, operands), strict=True))
        except Exception:  # values that the op does not take
            return None
    return values


def _work(operands: Sequence[Array]) -> int:
    """An upper estimate of the multiplications of an op: each element of the largest operand times a row of the
    second.
    """
    first, second = ([*sorted((array.size for array in operands), reverse=True), 1, 1])[:2]
    return int(first * math.isqrt(second))
