"""The candidate axis orders of each value, and the configurations of them in which each node can be computed."""

from __future__ import annotations

import functools
import itertools
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field
from typing import Any, TypeVar

from onnxtfl.dataclass import dataclass
from onnxtfl.ir import ops
from onnxtfl.ir.graph import Graph, Node, Value
from onnxtfl.ir.matching import is_weight
from onnxtfl.ir.op import Elementwise, Permutation, Permuted
from onnxtfl.ir.permutations import identity, inverse
from onnxtfl.ir.quantized import may_match
from onnxtfl.ir.reshape import reshaped_constant, transposed_constant
from onnxtfl.ir.types import TensorType, rank_of
from onnxtfl.rewriting.legalize import will_accept
from onnxtfl.rewriting.structure import structure_of
from onnxtfl.targets import Target
from onnxtfl.targets.layouts import alternatives, has_alternatives, has_preference, preferred
from onnxtfl.targets.target import is_within

MAX_ORDERS = 8
"""The most orders per value, which bounds the program; more never paid off in practice."""

MAX_STEPS = 4
"""The most elementwise ops between a transpose and a matmul that are searched."""

T = TypeVar("T")
Order = Permutation
Boundary = Mapping[Value, tuple[Order, ...]]
"""The candidate orders of inputs and outputs that may be permuted; the first is preferred."""


@dataclass(slots=True)
class Configuration:
    """One way to compute a node: the order of each operand and result (None: absent, or not a tensor).

    `cost`: microseconds of the kernel, 0 where unknown. `change` is None for the node as it is.
    """

    operands: tuple[Order | None, ...]
    results: tuple[Order | None, ...]
    change: Permuted | None = None
    cost: float = 0.0

    @classmethod
    def of(cls, node: Node, change: Permuted | None = None) -> Configuration:
        """Return the configuration of `node` after `change`."""
        given = (change.operands, change.results) if change is not None else ((), ())
        return cls(_complete(node.operands, given[0]), _complete(node.results, given[1]), change)

    def pairs(self, node: Node) -> Iterator[tuple[Value, Order]]:
        """Return the values of `node` with their orders."""
        values = (*node.operands, *node.results)
        for value, order in zip(values, (*self.operands, *self.results), strict=True):
            if value is not None and order is not None:
                yield value, order


def _complete(values: Sequence[Value | None], orders: Sequence[Order | None]) -> tuple[Order | None, ...]:
    """Return `orders` completed by natural orders."""
    if not orders:
        return tuple([None if v is None else natural(v) for v in values])
    given = itertools.zip_longest(values, orders[: len(values)])
    return tuple([None if v is None else natural(v) if order is None else order for v, order in given])


@dataclass
class Orders:
    """The candidate orders of values, and the configurations of the nodes that use them."""

    of: dict[Value, list[Order]] = field(default_factory=dict)
    configurations: dict[Node, list[Configuration]] = field(default_factory=dict)

    def known(self, value: Value) -> list[Order]:
        """Return all candidate orders of `value`, at least its current one."""
        return self.of.get(value) or [natural(value)]


def natural(value: Value) -> Order:
    """Return the identity order of a value."""
    return identity(rank_of(value.type) or 0)


def find_orders(graph: Graph, target: Target, boundary: Boundary) -> Orders:
    """Propagate orders from ops with dimension numbers and from transposes through nodes that accept any order."""
    search = _Search(target)
    for node in graph.nodes:
        search.seed(node)
    for value, orders in boundary.items():
        for order in orders:
            search.offer(value, order)
    search.spread()
    search.add_costs()
    return search.found


class _Search:
    """`fixed`: nodes that their target's kernels accept in one configuration only.

    A deep network has few different nodes: what follows from `structure_of` a node is found once.
    """

    def __init__(self, target: Target) -> None:
        self.target = target
        self.answers: dict[Hashable, Any] = {}
        self.found = Orders()
        self.fixed: set[Node] = set()
        self.work: deque[tuple[Value, Order]] = deque()

    def seed(self, node: Node) -> None:
        """Add the configurations that do not depend on those of other nodes."""
        wanted = None
        if has_preference(node.op):
            wanted = self._once("preferred", node, lambda: preferred(node, self.target.channels_last))
        if wanted is not None:
            self.fixed.add(node)
            self._add(node, Configuration.of(node, wanted))
        elif node.op is ops.Transpose and may_match(node, quantized=True):
            operand = node.operand(0)
            if isinstance(operand.type, TensorType) and operand.type.rank is not None:
                self._propagate(node, 0, natural(operand))
                self._propagate(node, -1, natural(node.result))
        elif has_alternatives(node.op):
            self._seed_alternatives(node)

    def _seed_alternatives(self, node: Node) -> None:
        """A matmul may use an operand before it is transposed, or a weight in another order."""
        movable = [i for i, v in enumerate(node.operands) if v is not None and _is_movable(v)]
        for change in self._alternatives(node) if movable else ():
            moved = [i for i, order in enumerate((*change.operands, *change.results)) if order is not None]
            if len(moved) == 1 and moved[0] in movable:
                configuration = Configuration.of(node, change)
                if not is_weight(node.operand(moved[0])) or self._is_faster(node, configuration):
                    self._add_accepted(node, configuration)

    def _is_faster(self, node: Node, configuration: Configuration) -> bool:
        """Whether a node is faster in a configuration, as far as measurements can tell; True if no cost is known."""
        before, after = (self._cost(node, one) for one in (Configuration.of(node), configuration))
        return not before or not after or not is_within((before * 1000,), (after * 1000,))

    def offer(self, value: Value, order: Order) -> None:
        """Add `order` to the candidates of `value`; a new one is propagated to its users and its producer."""
        known = self.found.of.get(value)
        if known is None:
            type_ = value.type
            if value.is_constant or not isinstance(type_, TensorType) or not order or not can_be_permuted(type_):
                return
            known = self.found.of[value] = [natural(value)]
        if order not in known and len(known) < MAX_ORDERS:
            known.append(order)
            self.work.append((value, order))

    def spread(self) -> None:
        """Propagate orders until no value has a new one."""
        while self.work:
            value, order = self.work.popleft()
            if value.producer is not None and value.index == 0:
                self._propagate(value.producer, -1, order)
            for user, index in list(value.uses):
                self._propagate(user, index, order)

    def add_costs(self) -> None:
        """Query the target for the kernel costs of nodes with several configurations."""
        for node, configurations in self.found.configurations.items():
            if len(configurations) > 1 and not issubclass(node.op, Elementwise | ops.Transpose):
                for configuration in configurations:
                    configuration.cost = self._cost(node, configuration)

    def _cost(self, node: Node, configuration: Configuration) -> float:
        if configuration.change is None:
            return self._once("cost", node, lambda: self.target.node_cost(node), configuration)

        def found() -> float:
            with _permuted(node, configuration) as probe:
                return self.target.node_cost(probe)

        return self._once("cost", node, found, configuration)

    def _once(self, what: str, node: Node, answer: Callable[[], T], asked: Configuration | None = None) -> T:
        """The answer to a question about `node`, in the configuration `asked`; the same for all nodes of one structure.

        A question to the target in a configuration may depend on small constants.
        """
        key = structure_of(node, with_elements=asked is not None)
        if key is None:
            return answer()
        place = (what, key, asked and (asked.operands, asked.results))
        if place not in self.answers:
            self.answers[place] = answer()
        found: T = self.answers[place]
        return found

    def _propagate(self, node: Node, index: int, order: Order) -> None:
        if self._has(node, index, order) or node in self.fixed or node.regions or not may_match(node, quantized=True):
            return
        if issubclass(node.op, Elementwise):
            expand_constants(node)
        for configuration in self._possible(node, index, order):
            self._add_accepted(node, configuration)

    def _has(self, node: Node, index: int, order: Order) -> bool:
        """Whether a node whose values share their axes has a configuration with this order: it is the only one."""
        known = self.found.configurations.get(node, ()) if node.op.shared_axes is not None else ()
        return order in [c.results[0] if index < 0 else c.operands[index] for c in known]

    def _possible(self, node: Node, index: int, order: Order) -> list[Configuration]:
        """Return the configurations of `node` in which operand `index` (-1: the result) has `order`.

        Of the many for a matmul: the simplest, which propagates orders, and those with only known orders.
        """
        ways = self._alternatives(node) if has_alternatives(node.op) else ()
        found = [Configuration.of(node, way) for way in ways if _order_at(node, way, index) == order]
        if found:
            return [found[0], *(c for c in found[1:] if self._all_known(node, c))]
        change = node.op.permuted(node, index, order)
        return [] if change is None else [Configuration.of(node, change)]

    def _alternatives(self, node: Node) -> list[Permuted]:
        return self._once("alternatives", node, lambda: list(alternatives(node)))

    def _all_known(self, node: Node, configuration: Configuration) -> bool:
        return all(v.is_constant or order in self.found.known(v) for v, order in configuration.pairs(node))

    def _add_accepted(self, node: Node, configuration: Configuration) -> None:
        """Add `configuration` if the target accepts it and all ranks are known."""
        for value, order in configuration.pairs(node):
            if len(order) != len(natural(value)):
                return
        as_it_is = node.op is ops.Transpose or configuration.change is None or not configuration.change.attributes
        if as_it_is or self._is_acceptable(node, configuration):
            self._add(node, configuration)

    def _is_acceptable(self, node: Node, configuration: Configuration) -> bool:
        def found() -> bool:
            with _permuted(node, configuration) as probe:
                return will_accept(probe, self.target)

        return self._once("acceptable", node, found, configuration)

    def _add(self, node: Node, new: Configuration) -> None:
        """Add a configuration of `node`. A Transpose either becomes an alias or has a cost."""
        known = self.found.configurations.get(node)
        if known is None:
            known = [] if node in self.fixed or node.op is ops.Transpose else [Configuration.of(node)]
            self.found.configurations[node] = known
        for configuration in known:
            if configuration.operands == new.operands and configuration.results == new.results:
                return
        known.append(new)
        for value, order in new.pairs(node):
            self.offer(value, order)


def _order_at(node: Node, change: Permuted, index: int) -> Order:
    """Return the order of operand `index` (-1: of the first result) of `node` after `change`."""
    values, orders = (node.operands, change.operands) if index >= 0 else (node.results, change.results)
    order = orders[max(index, 0)] if index < len(orders) else None
    value = values[max(index, 0)]
    return natural(value) if order is None and value is not None else order or ()


def can_be_permuted(type_: TensorType) -> bool:
    """Whether the axes of a tensor, and of the scales of its blocks, may change their order."""
    return type_.quantization is None or type_.quantization.block is None or type_.is_static


def _is_movable(value: Value) -> bool:
    """Whether permuting `value` removes a transpose (perhaps before arithmetic) or costs nothing (a weight)."""
    if is_weight(value):
        return not value.is_constant
    for _ in range(MAX_STEPS):
        node = value.producer
        if node is None or not issubclass(node.op, Elementwise | ops.Transpose):
            return False
        if node.op is ops.Transpose:
            return True
        value = node.operand(0) if not node.operand(0).is_constant else node.operand(len(node.operands) - 1)
    return False


@contextmanager
def _permuted(node: Node, configuration: Configuration) -> Iterator[Node]:
    """Return a detached node equal to `node` in `configuration`, for queries to the target."""
    change = configuration.change.attributes if configuration.change is not None else {}
    operands = [_moved(v, p) for v, p in zip(node.operands, configuration.operands, strict=True)]
    probe = Node(node.op, operands, {**node.attributes, **change})
    for value, order in zip(node.results, configuration.results, strict=True):
        result = _moved(value, order)
        probe.add_result(result.type if result is not None else None)
    try:
        yield probe
    finally:
        probe.detach()


def _moved(value: Value | None, order: Order | None) -> Value | None:
    """Return a copy of `value` with axis order `order`."""
    if value is None or order is None or value.is_constant:
        return value if value is None or order in (None, natural(value)) else transposed_constant(value, order)
    copy = Value(value.type, value.name)
    copy.known, copy.producer = value.known, value.producer
    if isinstance(value.type, TensorType) and value.type.shape is not None:
        copy.type = value.type.permuted(order)
    return copy


def expand_constants(node: Node) -> None:
    """Expand constant operands of an elementwise node to the rank of its result, so that they can be permuted."""
    rank = rank_of(node.result.type)
    for i, value in enumerate(node.operands):
        if value is None or value.data is None or rank is None:
            continue
        shape = value.data.shape
        if 0 < len(shape) < rank and value.data.size != 1:
            node.set_operand(i, reshaped_constant(value, (1,) * (rank - len(shape)) + shape))


@functools.cache
def transposition(have: Order, want: Order) -> Permutation:
    """Return the permutation from memory order `have` to `want`."""
    place = inverse(have)
    return tuple(place[axis] for axis in want)


__all__ = ["Boundary", "Configuration", "Order", "Orders", "can_be_permuted", "find_orders", "natural", "transposition"]
