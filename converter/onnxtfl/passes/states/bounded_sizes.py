"""Comparisons of token counts, which are decided by how many tokens fit into the caches.

::

    %m = Max(0, 128 - P - N)                   %m = 128 - P - N      for P + N <= 128
    %b = Compare(P + N, 4096) {GT}      ->     %b = false            for P + N <= 4096
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from onnxtfl.ir import ops
from onnxtfl.ir.dims import Dim, Symbol, evaluate, symbols
from onnxtfl.ir.graph import Graph, Node, Value, constant
from onnxtfl.ir.shapes import known_dims

_HOLDS: dict[str, Callable[[Any, Any], Any]] = {
    "EQ": operator.eq, "NE": operator.ne, "LT": operator.lt, "LE": operator.le, "GT": operator.gt, "GE": operator.ge,
}  # fmt: skip


def decide_comparisons(graph: Graph, filled: Symbol, most: int) -> bool:
    """Replace Max, Min and Compare with the same outcome for each `filled` from 0 to `most`; return whether any was."""
    found = [(node, value) for node in graph.nodes if (value := _decided(node, filled, most)) is not None]
    for node, value in found:
        graph.replace(node, [value])
    return bool(found)


def _decided(node: Node, filled: Symbol, most: int) -> Value | None:
    if node.op not in (ops.Max, ops.Min, ops.Compare) or len(node.operands) != 2:
        return None
    differences = _differences(node, filled)
    if differences is None or not any(filled in symbols(dim) for dim in differences):
        return None
    ends = [[evaluate(dim, {filled: n}) for dim in differences] for n in (0, most)]
    if node.op is ops.Compare:
        holds = _HOLDS[node.attr("comparison_direction")]
        first, last = (np.asarray([holds(n, 0) for n in end]) for end in ends)
        ordered = node.attr("comparison_direction") not in ("EQ", "NE") or (np.prod(ends, axis=0) > 0).all()
        is_static = all(isinstance(size, int) for size in node.result.shape)
        return constant(first.reshape(node.result.shape)) if ordered and is_static and (first == last).all() else None
    signs = {n > 0 for end in ends for n in end if n}
    if len(signs) != 1 or any(v.type != node.result.type for v in map(node.operand, (0, 1))):
        return None
    return node.operand(0 if signs.pop() == (node.op is ops.Max) else 1)


def _differences(node: Node, filled: Symbol) -> list[Dim] | None:
    """The first operand minus the second one, element by element; None if one depends on more than `filled`, or not as
    a sum of it.
    """
    a, b = (known_dims(v) for v in map(node.operand, (0, 1)))
    if a is None or b is None or len(a) != len(b):
        return None
    found = [m - n for m, n in zip(a, b, strict=True)]
    linear = all(set(symbols(dim)) <= {filled} and _is_linear(dim, filled) for dim in found)
    return found if linear else None


def _is_linear(dim: Dim, filled: Symbol) -> bool:
    first, second, third = (evaluate(dim, {filled: n}) for n in (0, 1, 1 << 20))
    return third - first == (second - first) << 20
