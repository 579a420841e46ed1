"""What rewrites that only save time are expected to gain, by the measured costs of the ops before and after them.

Such a rewrite is made if the ops after it cost less on a kind of machine, and not more on any other. Costs are those of
the target's ops that a node becomes, with operands in the axis order that its kernels prefer; nodes of constants, and
ops whose costs were not measured, are free.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from onnxtfl.errors import OnnxtflError
from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.dims import known_sizes
from onnxtfl.ir.graph import Graph, Node, Value, constant
from onnxtfl.ir.op import Permutation, Permuted
from onnxtfl.ir.reshape import transposed_constant
from onnxtfl.ir.types import TensorType
from onnxtfl.rewriting.legalize import legalize
from onnxtfl.targets import Target
from onnxtfl.targets.layouts import preferred
from onnxtfl.targets.target import added, is_gain

Times = tuple[float, ...]
"""Nanoseconds on each kind of machine."""


class Gains:
    """The rewrites of a conversion that are made if they save time on `target`; the budget keeps their gains."""

    def __init__(self, target: Target) -> None:
        self.target = target

    def pays(self, rule: str, before: Sequence[Node], after: Sequence[Node], surely: bool = False) -> bool:
        """Whether the nodes `after` are to replace those `before`; the gain is recorded if so.

        True if the cost of the first one before, the root, is not known: costs are those of the delegate's kernels,
        which may not take it with dynamic sizes. `surely`: equal costs are not enough.
        """
        is_known = not self._is_left(before[0]) and self.time(before[:1])
        had, have = self.time(before) if is_known else (), self.time(after)
        if surely and not all(a < b for a, b in zip(have, had, strict=False)):
            return False
        return is_gain(rule, had, have)

    def _is_left(self, root: Node) -> bool:
        """Whether the delegate leaves an op of `root`, which has dynamic sizes, to other kernels."""
        if all(v.is_static for v in root.results):
            return False
        graph = self._alone(root, set(), self._change(root, {}))
        nodes = [] if graph is None else [node for node in graph.nodes if node.op.multiplies is not None]
        return any(not self.target.delegates(node, form) for node in nodes if (form := self.target.accepted(node)))

    def time(self, nodes: Iterable[Node]) -> Times:
        """The run time of nodes together; () if no cost is known."""
        total: Times = ()
        constants, orders = set[Value](), dict[Value, Permutation]()
        for node in nodes:
            if all(v is None or v.is_constant or v in constants for v in node.operands):
                constants.update(node.results)
            elif found := self._time_of(node, constants, self._change(node, orders)):
                total = added(total, found)
        return total

    def _change(self, node: Node, orders: dict[Value, Permutation]) -> Permuted:
        """The axis orders that the kernels of `node` prefer, else those after the order of its operand in `orders`."""
        change = preferred(node, self.target.channels_last)
        if change is None and node.operands and (order := orders.get(node.operand(0))) is not None:
            change = node.op.permuted(node, 0, order)
        change = change or Permuted((), (), {})
        orders.update({v: order for v, order in zip(node.results, change.results, strict=False) if order is not None})
        return change

    def _time_of(self, node: Node, constants: set[Value], change: Permuted) -> Times:
        """The run time of one node after `change`, written alone in a graph; () if it is not known."""
        graph = self._alone(node, constants, change)
        return () if graph is None else self.target.time(graph.nodes)

    def _alone(self, node: Node, constants: set[Value], change: Permuted) -> Graph | None:
        """The legalized graph of one node after `change`; None if there is none."""
        if node.regions:
            return None
        graph = Graph()
        orders = (*change.operands, *(None,) * len(node.operands))
        try:
            operands = [_operand(graph, v, order, constants) for v, order in zip(node.operands, orders, strict=False)]
            builder, attributes = Builder(graph), {**node.attributes, **change.attributes}
            for i, permutation in change.vectors.items():
                if operands[i] is not None:
                    operands[i] = builder.computed(ops.Gather, operands[i], list(permutation), axis=0)
            graph.outputs = builder.many(node.op, *operands, **attributes)
            legalize(graph, self.target)
        except OnnxtflError:
            return None
        return graph


def _operand(graph: Graph, value: Value | None, order: Sequence[int] | None, constants: set[Value]) -> Value | None:
    """A value of the type of `value` in `order`: a constant for a constant (zeros for one of `constants`)."""
    if value is None:
        return None
    type_ = value.type
    if value in constants and isinstance(type_, TensorType) and type_.is_static:
        value = constant(np.broadcast_to(type_.dtype.numpy.type(0), known_sizes(type_.shape or ())), type_=type_)
    if value.data is not None:
        return constant(value.data, type_=type_) if order is None else transposed_constant(value, tuple(order))
    if order is not None and isinstance(type_, TensorType):
        type_ = type_.permuted(tuple(order))
    return graph.add_input(type_)
