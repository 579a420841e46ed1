"""Axis orders for inputs and outputs that the user wants channels-last or channels-first.

Ops with dimension numbers (convolutions, pools, resizes) determine the channel axis, also through ops that only
renumber their axes::

    %x: 1x32x32x3                                      %x: 1x3x32x32
    %t = Transpose(%x) [0,3,1,2]   -> %x stays         %c = Conv(%x) NCHW   -> %x becomes 1x32x32x3
    %c = Conv(%t) NCHW

For channels-first, the right %x stays, and the left one becomes 1x3x32x32.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from typing import Literal

from onnxtfl.errors import UsageError, suggestion
from onnxtfl.ir.graph import Graph, Node, Value
from onnxtfl.ir.op import Elementwise
from onnxtfl.ir.quantized import may_match
from onnxtfl.ir.types import TensorType
from onnxtfl.passes.layout.orders import Configuration, Order, can_be_permuted, expand_constants, natural
from onnxtfl.targets import Target
from onnxtfl.targets.layouts import preferred

IoLayout = Literal["source", "channels-first", "channels-last"]
ALL = "*"
"""The name for all inputs and outputs that are not named."""
IoLayouts = IoLayout | Mapping[str, IoLayout]
"""One layout, or layouts by name; inputs and outputs without a name in it have that of `ALL`, else the source's."""


def boundary_orders(graph: Graph, target: Target, io_layout: IoLayouts) -> dict[Value, tuple[Order, ...]]:
    """Return the candidate orders of inputs and outputs of rank over 2.

    A tensor that has the other layout, judged by ops, is permuted; one that has the wanted layout, or its channels
    elsewhere, stays. If no op determines the layout, ONNX images are assumed to be channels-first, TFLite's
    channels-last (rank 3: permuted only if this saves a transpose). A named tensor is permuted unless an op shows the
    wanted layout. UsageError for a name that is not an input or output, or has no image axes.
    """
    layouts = _layouts(graph, io_layout)
    said = {kind: _said_by_ops(graph, kind) for kind in {layout for layout, _ in layouts.values()}}
    found = {v: _orders(v, said[layout].get(v), target, layout, named) for v, (layout, named) in layouts.items()}
    return {value: orders for value, orders in found.items() if orders != (natural(value),)}


def is_moving(io_layout: IoLayouts) -> bool:
    """Whether the option asks for a layout other than the source's."""
    return any(layout != "source" for layout in _by_name(io_layout).values())


def moved_order(rank: int, layout: IoLayout) -> Order:
    """Return the order with axis 1 moved last, or the last axis moved to axis 1."""
    return (0, *range(2, rank), 1) if layout == "channels-last" else (0, rank - 1, *range(1, rank - 1))


def _by_name(io_layout: IoLayouts) -> Mapping[str, IoLayout]:
    return {ALL: io_layout} if isinstance(io_layout, str) else io_layout


def _layouts(graph: Graph, io_layout: IoLayouts) -> dict[Value, tuple[IoLayout, bool]]:
    """Return the wanted layout of each input and output that may move, and whether it was named."""
    by_name = _by_name(io_layout)
    names = list(zip(graph.inputs, [v.name or "" for v in graph.inputs], strict=True))
    names += zip(graph.outputs, graph.names_of_outputs, strict=False)
    for name in by_name.keys() - {ALL, *(name for _, name in names)}:
        hint = suggestion(name, [known for _, known in names], "its inputs and outputs")
        raise UsageError(f"the model has no input or output {name!r}", hint=hint, code="E-USE-003")
    found: dict[Value, tuple[IoLayout, bool]] = {}
    for value, name in names:
        layout = by_name.get(name, by_name.get(ALL, "source"))
        is_image = _is_image(value)
        if layout != "source" and name in by_name and not is_image:
            hint = "leave it out, or use `source`"
            raise UsageError(f"{name!r} has no axis order to move: {value.type}", hint=hint, code="E-USE-004")
        if layout != "source" and is_image:
            found[value] = (layout, name in by_name)
    return found


def _is_image(value: Value) -> bool:
    is_pair = value.origin is not None and value.origin.pairs  # along the last axis
    return (
        isinstance(value.type, TensorType) and len(natural(value)) > 2 and can_be_permuted(value.type) and not is_pair
    )


def _orders(value: Value, said: Order | None, target: Target, layout: IoLayout, named: bool) -> tuple[Order, ...]:
    """Return the candidate orders of `value`; `said`: the order in which it has `layout`, according to ops."""
    same = natural(value)
    moved = moved_order(len(same), layout)
    if said == same:
        return (same,)
    if said == moved or named:
        return (moved,)
    if said is not None or target.channels_last != (layout == "channels-last"):
        return (same,)
    return (moved, same) if len(same) > 3 else (same, moved)


def _said_by_ops(graph: Graph, layout: IoLayout) -> dict[Value, Order]:
    """Return the order in which each value has `layout`, for values connected to ops with dimension numbers."""
    search = _Search()
    for node in graph.nodes:
        change = preferred(node, channels_last=layout == "channels-last")
        if change is not None:
            search.fixed.add(node)
            search.note(Configuration.of(node, change), node)
    search.spread()
    return search.found


class _Search:
    """The propagation of orders. `found`: the first order found for each value; `fixed`: ops with dimension numbers."""

    def __init__(self) -> None:
        self.found: dict[Value, Order] = {}
        self.fixed: set[Node] = set()
        self.work: deque[Value] = deque()

    def note(self, configuration: Configuration, node: Node) -> None:
        """Record the orders of the values of `node`."""
        for value, order in configuration.pairs(node):
            if value not in self.found and not value.is_constant and len(order) == len(natural(value)):
                self.found[value] = order
                self.work.append(value)

    def spread(self) -> None:
        """Propagate through nodes that only renumber the axes of their operands."""
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
    """Return the producer of `value` (index -1) and its users with operand indices."""
    if value.producer is not None and value.index == 0:
        yield value.producer, -1
    yield from list(value.uses)
