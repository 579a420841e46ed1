"""Repeats type inference for nodes whose sizes or elements became known after their creation.

::

    %s = Select(false, %a, %b)  (folded to [2, 3])        %s = constant [2, 3]
    %y = BroadcastTo(%x, %s) : tensor<?x?xfloat32>    ->  %y = BroadcastTo(%x, %s) : tensor<2x3xfloat32>
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from onnxtfl.ir.builder import Builder, infers_better_sizes, propagate
from onnxtfl.ir.data import Array
from onnxtfl.ir.dims import Symbol, symbols
from onnxtfl.ir.graph import Graph
from onnxtfl.ir.shapes import dims_of
from onnxtfl.ir.symbols import Unknown


def infer_sizes(graph: Graph) -> bool:
    """Recreate nodes whose dynamic sizes are known by now; return whether there were any."""
    changed = _repeat_numbers(graph)
    for node in list(graph.nodes):
        if infers_better_sizes(node):
            graph.replace(node, Builder(graph, node, cause=node).remade(node, *node.operands))
            changed = True
    return changed


def _repeat_numbers(graph: Graph) -> bool:
    """Recreate nodes of which an element was computed at run time when they were created, and is known by now."""
    changed = False
    for node in [node for node in graph.nodes if any(_numbers(v.known for v in node.results)) and not node.regions]:
        before, read = (set(_numbers(v.known for v in side if v is not None)) for side in (node.results, node.operands))
        if before <= read:
            continue
        known = propagate(node, [v.tensor_type for v in node.results])
        if all(one is not None for one in known) and len(set(_numbers(known))) < len(before):
            graph.replace(node, Builder(graph, node, cause=node).remade(node, *node.operands))
            changed = True
    return changed


def _numbers(known: Iterable[Array | None]) -> Iterator[Symbol]:
    """The symbols of sizes computed at run time, in known elements."""
    for elements in known:
        if elements is not None and elements.dtype == object:
            yield from (s for dim in dims_of(elements) for s in symbols(dim) if isinstance(s, Unknown))
