"""Goals of coverage inside a model: branches, limits of clamps, both results of comparisons, rows of tables."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from onnxtfl.ir import ops
from onnxtfl.ir.data import Array
from onnxtfl.ir.dims import at_most
from onnxtfl.ir.facts import never_negative
from onnxtfl.ir.graph import Graph, Node, Value
from onnxtfl.ir.quantized import quantization_of
from onnxtfl.ir.source_names import shown_name
from onnxtfl.ir.types import DType

MOST = 256
"""The most tensors with goals."""
MOST_ROWS = 256
"""The most rows of a table that are goals, one by one."""
_NEVER = {"LT": (True, 0), "LE": (True, -1), "GE": (False, 0), "GT": (False, -1)}
"""By direction: the result that is impossible for values >= 0 compared with at most this integer."""


@dataclass(frozen=True)
class Goal:
    """A part of a model that inputs may reach.

    ``what``: a phrase that the ``op`` completes; ``node``: its name in quotes. It is reached if the tensor named
    ``tensor`` has an element ``above`` a value or ``below`` one, or all integers in ``rows``; if none of these is
    given, if the tensor has an element.
    """

    what: str
    op: str
    node: str
    tensor: str
    above: float | None = None
    below: float | None = None
    rows: tuple[int, ...] = ()

    def after(self, array: Array) -> Goal | None:
        """The remaining goal after these values of the tensor; None if they reach it."""
        if self.rows:
            rows = tuple(sorted({*self.rows} - {*np.unique(array).tolist()}))
            return replace(self, rows=rows) if rows else None
        return None if self._is_reached(array) else self

    def _is_reached(self, array: Array) -> bool:
        if self.above is not None:
            return bool((array > self.above).any())
        if self.below is not None:
            return bool((array < self.below).any())
        return array.size > 0


def of_second_only(first: Sequence[Goal], second: Sequence[Goal]) -> tuple[Goal, ...]:
    """Limits of which the second model has more than the first: a Relu6 instead of a Relu."""

    def kind(goal: Goal) -> tuple[str, float | None]:
        limits = [limit for limit in (goal.above, goal.below) if limit is not None]
        return goal.what, round(limits[0], 4) if limits else None

    counts = Counter(map(kind, first)), Counter(map(kind, second))
    return tuple(g for g in second if g.what.endswith("limit of") and counts[1][kind(g)] > counts[0][kind(g)])


def goals_of(graph: Graph) -> tuple[Goal, ...]:
    """Return the goals that inputs may reach in a lifted graph, without those known to be unreachable."""
    return tuple(goal for node in graph.nodes for goal in _goals(node))[:MOST]


def _goals(node: Node) -> Iterator[Goal]:
    first = node.optional(0)
    if node.op is ops.Gather:
        yield from _rows(node)
    if first is None or first.is_constant:
        return
    if node.op is ops.If and (name := _tensor(first)):
        yield Goal("the then branch of", "If", shown_name(node), name, above=0.5)
        yield Goal("the else branch of", "If", shown_name(node), name, below=0.5)
    elif node.op.clamps is not None:
        yield from _limits(node, first, *node.op.clamps)
    elif node.op is ops.Compare and (name := _tensor(node.result)):
        yield from _results(node, name)
    elif node.op in (ops.NonMaxSuppression, ops.NonZero) and (name := _tensor(node.results[0])):
        yield Goal("a selected element of", node.op.name, shown_name(node), name)


def _limits(node: Node, first: Value, low: float | None, high: float | None) -> Iterator[Goal]:
    """The limits of a clamp, reached by its operand, or by its result if the operand is not in the file."""
    if node.op is ops.Clamp:
        low, high = (_number(node.optional(k)) for k in (1, 2))
    name, reads = _tensor(first) or _tensor(node.result), bool(_tensor(first))
    if not name or _is_saturating(node):
        return
    if node.op is ops.Clamp and low is not None and not (low <= 0 and never_negative(first)):
        limit = low if reads else _inside(low, np.inf, node.result)
        yield Goal("the lower limit of", node.op.name, shown_name(node), name, below=limit)
    if high is not None and np.isfinite(high):
        limit = high if reads else _inside(high, -np.inf, node.result)
        yield Goal("the upper limit of", node.op.name, shown_name(node), name, above=limit)


def _inside(limit: float, towards: float, result: Value) -> float:
    """A number inside of a limit, nearer to it than any other value of the result."""
    grid = quantization_of(result)
    if grid is not None:
        return limit + math.copysign(min(grid.scales) / 2, towards)
    return float(np.nextafter(np.float32(limit), np.float32(towards)))


def _is_saturating(node: Node) -> bool:
    """Whether a clamp only saturates values to the integer type of their conversion."""
    uses = [user for user, _ in node.result.uses]
    return bool(uses) and all(user.op is ops.Convert and user.attr("dtype").is_integer for user in uses)


def _results(node: Node, name: str) -> Iterator[Goal]:
    """Both results of a comparison, without one that is known to be impossible."""
    first, second = node.operand(0), node.operand(1)
    if second.is_constant and first.known is None and (number := _number(second)) is not None:
        result, limit = _NEVER.get(node.attr("comparison_direction"), (None, 0))
        never = result if number <= limit and never_negative(first) else None
    elif first.known is not None:
        return
    else:
        never = None
    if never is not True:
        yield Goal("a true result of", "Compare", shown_name(node), name, above=0.5)
    if never is not False:
        yield Goal("a false result of", "Compare", shown_name(node), name, below=0.5)


def _rows(node: Node) -> Iterator[Goal]:
    """The rows of a small constant table from which an input selects; rows selected by shapes (positions) are no
    goals.
    """
    table, name = node.operand(0), _input_of(node.operand(1))
    if not table.is_constant or not name:
        return
    rows = table.shape[node.attr("axis")]
    if at_most(rows, MOST_ROWS) and rows > 1:
        yield Goal("rows of", "Gather", shown_name(node), name, rows=tuple(range(rows)))


def _input_of(value: Value) -> str:
    """The name of the input whose elements a value has, possibly in another type or order, and with negative ones
    counted from the end; "" for other values.
    """
    while (node := value.producer) is not None:
        if node.op not in (ops.Convert, ops.FloorMod) and node.op.moves != slice(0, 1):
            return ""
        value = node.operand(0)
    return "" if value.is_constant else value.name or ""


def _tensor(value: Value) -> str:
    """The name of the tensor in the file with the elements of a value, in any order; "" if there is none."""
    return value.name or next((origin.tensor for origin in value.origins), "")


def _number(value: Value | None) -> float | None:
    if value is None or value.data is None or value.data.size != 1 or value.dtype is DType.STRING:
        return None
    found = float(value.numpy().reshape(-1)[0])
    return found if abs(found) < float(np.finfo(np.float32).max) else None
