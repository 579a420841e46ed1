"""The axis orders that inputs and outputs may have where they are asked to be channels-last.

Which axis holds the channels is what ops with dimension numbers say (convolutions, pools, resizes), through ops that
only renumber their axes::

    %x: 1x32x32x3                                      %x: 1x3x32x32
    %t = Transpose(%x) [0,3,1,2]   -> %x stays         %c = Conv(%x) NCHW   -> %x becomes 1x32x32x3
    %c = Conv(%t) NCHW
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from onnxtfl.ir.graph import Graph, Node, Value
from onnxtfl.ir.op import Elementwise
from onnxtfl.ir.quantized import may_match
from onnxtfl.passes.layout.orders import Configuration, Order, can_be_permuted, expand_constants, natural
from onnxtfl.targets import Target
from onnxtfl.targets.layouts import preferred


def boundary_orders(graph: Graph, target: Target) -> dict[Value, tuple[Order, ...]]:
    """The orders that the inputs and outputs of rank over 2 may have.

    One that is channels-first becomes channels-last; one that is channels-last already, or has its channels in neither
    place, stays. Where no op says which it is, ONNX images count as channels-first (axis 1 may become the last one,
    also of rank 3 where this saves a transpose), and a TFLite tensor stays.
    """
    values = [v for v in (*graph.inputs, *graph.outputs) if len(natural(v)) > 2 and can_be_permuted(v.tensor_type)]
    known = _said_by_ops(graph) if values else {}
    found = {value: _orders(value, known.get(value), target) for value in values}
    return {value: orders for value, orders in found.items() if orders != (natural(value),)}


def channels_last_order(rank: int) -> Order:
    """Axis 1 after all others."""
    return (0, *range(2, rank), 1)


def _orders(value: Value, said: Order | None, target: Target) -> tuple[Order, ...]:
    same = natural(value)
    last = channels_last_order(len(same))
    if said is not None:
        return (last,) if said == last else (same,)
    if not target.channels_last:
        return (same,)
    return (last, same) if len(same) > 3 else (same, last)


def _said_by_ops(graph: Graph) -> dict[Value, Order]:
    """The order in which each value is channels-last; values that depend on no op with dimension numbers have none."""
    search = _Search()
    for node in graph.nodes:
        change = preferred(node, channels_last=True)
        if change is not None:
            search.fixed.add(node)
            search.note(Configuration.of(node, change), node)
    search.spread()
    return search.found


class _Search:
    """`found`: one order for each value, the one that was found first; `fixed`: ops with dimension numbers."""

    def __init__(self) -> None:
        self.found: dict[Value, Order] = {}
        self.fixed: set[Node] = set()
        self.work: deque[Value] = deque()

    def note(self, configuration: Configuration, node: Node) -> None:
        """Note the orders of the values of `node`."""
        for value, order in configuration.pairs(node):
            if value not in self.found and not value.is_constant and len(order) == len(natural(value)):
                self.found[value] = order
                self.work.append(value)

    def spread(self) -> None:
        """Follow the nodes that only renumber the axes of their operands."""
        while self.work:
            value = self.work.popleft()
            for node, index in _neighbours(value):
                if node in self.fixed or node.regions or not may_match(node, quantized=True):
                    continue
                if issubclass(node.op, Elementwise):
                    expand_constants(node)
                change = node.op.permuted(node, index, self.found[value])
                if change is not None:
                    self.note(Configuration.of(node, change), node)


def _neighbours(value: Value) -> Iterator[tuple[Node, int]]:
    """The producer of `value` (-1: its result) and its users, with the index of their operand."""
    if value.producer is not None and value.index == 0:
        yield value.producer, -1
    yield from list(value.uses)
