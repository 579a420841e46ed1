"""Concatenations that begin or end with all operands of another one read its result instead, as in dense blocks.

::

    %p = Concatenate(%a, %b, %c)              %p = Concatenate(%a, %b, %c)
    %q = Concatenate(%a, %b, %c, %d)   ->     %q = Concatenate(%p, %d)

As many elements are copied, XNNPACK takes at most five operands, and %a to %c need no memory after %p. Vectors stay as
they are: most are sizes.
"""

from __future__ import annotations

from collections.abc import Iterator

from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.graph import Graph, Value
from onnxtfl.ir.shapes import normalize_axis

Operands = tuple[Value | None, ...]
_FEWEST = 2
"""The fewest operands that a concatenation has in common with another one."""


def share_operands(graph: Graph) -> bool:
    """Rewrite concatenations in the order of the graph; return whether there was one to rewrite."""
    made, changed = dict[tuple[int, Operands], Value](), False
    for node in [node for node in graph.nodes if node.op is ops.Concatenate and node.result.rank > 1]:
        axis, operands, result = normalize_axis(node.attr("axis"), node.result.rank), tuple(node.operands), node.result
        if (fewer := next(_fewer(made, axis, operands, result), None)) is not None:
            (result,) = Builder(graph, node, maker="shared operands").remade(node, *fewer)
            graph.replace(node, [result])
            changed = True
        made.setdefault((axis, operands), result)
    return changed


def _fewer(made: dict[tuple[int, Operands], Value], axis: int, operands: Operands, result: Value) -> Iterator[Operands]:
    """The operands with the longest of those at the begin or end that are joined already as their join."""
    for count in range(len(operands) - 1, _FEWEST - 1, -1):
        first, last = made.get((axis, operands[:count])), made.get((axis, operands[-count:]))
        if first is not None and _is_stored_alike(first, result):
            yield first, *operands[count:]
        if last is not None and _is_stored_alike(last, result):
            yield *operands[:-count], last


def _is_stored_alike(joined: Value, result: Value) -> bool:
    return joined.tensor_type.quantization == result.tensor_type.quantization
