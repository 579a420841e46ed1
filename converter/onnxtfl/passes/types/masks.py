"""Masks of softmax in the range of float16, for targets that compute in it.

::

    %y = Softmax(Add(%x, Mul(%m, -3.4e38)))    ->    %y = Softmax(Max(Add(%x, Mul(%m, -62000)), -60000))

In float16, -3.4e38 is -inf, and 0 * -inf NaN. The bound makes all elements of a row equal where all are masked, as
-3.4e38 does in float32.
"""

from __future__ import annotations

import numpy as np

from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.facts import facts_of
from onnxtfl.ir.formula import Term
from onnxtfl.ir.graph import Graph, Node, Value, constant
from onnxtfl.ir.half import LARGEST

MASK, LOWEST = 62_000.0, -60_000.0
"""The largest absolute value of a mask, and the lowest operand of a softmax. Scores are smaller than the differences
between these and the largest float16.
"""
_DEPTH = 12
"""The most producers in a chain that are visited."""
_READ = 1 << 24
"""The largest number of elements of a constant that is read."""


def saturate_masks(graph: Graph) -> None:
    """Replace the constants below float16 that reach operands of Softmax by sums, products and moves."""
    known: dict[tuple[Value, int], Value] = {}
    for node in graph.nodes:
        if node.op is ops.Softmax and not node.operand(0).is_quantized:
            found = _saturated(graph, node.operand(0), -1, known)
            if found is not node.operand(0):
                node.set_operand(0, Term(Builder(graph, node, maker="masks"), found).max(LOWEST).value)


def _saturated(graph: Graph, value: Value, sign: int, known: dict[tuple[Value, int], Value], depth: int = 0) -> Value:
    """`value` with constants in the range of float16, those of a large absolute value and this sign; itself if it has
    none.
    """
    key = value, sign
    if key not in known:
        known[key] = value
        node = value.producer
        if value.data is not None:
            known[key] = _in_range(value, sign)
        elif node is not None and depth < _DEPTH and not value.is_quantized:
            made = {i: _saturated(graph, node.operand(i), s, known, depth + 1) for i, s in _masks(node, sign).items()}
            if any(new is not node.operands[i] for i, new in made.items()):
                operands = [made.get(i, v) for i, v in enumerate(node.operands)]
                known[key] = Builder(graph, node, maker="masks").remade(node, *operands)[value.index]
    return known[key]


def _masks(node: Node, sign: int) -> dict[int, int]:
    """The operands whose large elements of a sign are those of the result, and the sign."""
    places = range(len(node.operands))
    if node.op is ops.Add or node.op is ops.Max:
        return dict.fromkeys(places, sign)
    if node.op is ops.Sub:
        return {0: sign, 1: -sign}
    if node.op is ops.Neg:
        return {0: -sign}
    if node.op is ops.Select:
        return {1: sign, 2: sign}
    if node.op is ops.Mul:
        return {i: sign for i in places if facts_of(node.operand(1 - i)).integral}
    return {i: sign for i in places[node.op.moves] if node.operands[i] is not None} if node.op.moves is not None else {}


def _in_range(value: Value, sign: int) -> Value:
    if not value.dtype.is_float or value.is_quantized or value.data is None or value.data.size > _READ:
        return value
    array = value.numpy()
    if not np.any(array * sign > LARGEST):
        return value
    return constant((np.minimum(array * sign, MASK) * sign).astype(array.dtype), value.dtype)
