"""Which labels each value may have, and which configurations each node offers for them."""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from onnxtfl.ir import ops
from onnxtfl.ir.graph import Graph, Node, Value
from onnxtfl.ir.op import Elementwise, Permutation, Relabeled, inverse
from onnxtfl.ir.quantized import may_match
from onnxtfl.ir.reshape import reshaped_constant
from onnxtfl.ir.types import TensorType

MAX_LABELS = 8
"""Labels tried for one value; more never paid in practice, and this bounds the program."""

MAX_STEPS = 4
"""Elementwise ops between a transpose and a matmul that are looked through."""

Takes = Callable[[Node], bool]


@dataclass(frozen=True, slots=True)
class Configuration:
    """One way a node can read and write: a label for each operand and result (None: absent or not a tensor)."""

    operands: tuple[Permutation | None, ...]
    results: tuple[Permutation | None, ...]
    change: Relabeled | None = None


@dataclass
class Labels:
    """The labels of values with a choice, and the configurations of the nodes around them."""

    of: dict[Value, list[Permutation]] = field(default_factory=dict)
    configurations: dict[Node, list[Configuration]] = field(default_factory=dict)

    def labels(self, value: Value) -> list[Permutation]:
        """All labels of `value`; only the identity where there is no choice."""
        return self.of.get(value) or [identity(value)]


def identity(value: Value) -> Permutation:
    """The label of a value that lies as it is."""
    rank = value.type.rank if isinstance(value.type, TensorType) else 0
    return _identity(rank or 0)


@functools.cache
def _identity(rank: int) -> Permutation:
    return tuple(range(rank))


def find_labels(graph: Graph, channels_last: bool, takes: Takes, free: set[Value]) -> Labels:
    """Spread labels from ops with dimension numbers and from transposes through everything that can follow.

    `takes(node)`: whether the target takes this (relabeled) node. `free`: inputs and outputs that may be moved.
    """
    search = _Search(channels_last, takes)
    for node in graph.nodes:
        search.seed(node)
    for value in free:
        search.offer(value, channels_last_label(value) if channels_last else identity(value))
    search.spread()
    return search.found


def channels_last_label(value: Value) -> Permutation:
    """Axis 1 behind all others."""
    rank = len(identity(value))
    return (0, *range(2, rank), 1) if rank > 2 else tuple(range(rank))


class _Search:
    def __init__(self, channels_last: bool, takes: Takes) -> None:
        self.channels_last = channels_last
        self.takes = takes
        self.found = Labels()
        self.fixed: set[Node] = set()
        self.work: deque[tuple[Value, Permutation]] = deque()

    def seed(self, node: Node) -> None:
        preferred = node.op.prefers(node, self.channels_last)
        if preferred is not None:
            self.fixed.add(node)
            self._add(node, preferred)
        elif node.op is ops.Transpose and may_match(node, quantized=True):
            operand = node.operand(0)
            if isinstance(operand.type, TensorType) and operand.type.rank is not None:
                self._follow(node, 0, identity(operand))
                self._follow(node, -1, identity(node.result))
        else:
            self._seed_offers(node)

    def _seed_offers(self, node: Node) -> None:
        """A matmul may take what a transpose gives in another order: then the transpose need not move as much."""
        moved = [i for i, v in enumerate(node.operands) if v is not None and _is_moved(v)]
        for offer in node.op.offers(node) if moved else ():
            labels = [*offer.operands, *offer.results]
            if any(labels[i] is not None and labels.count(None) == len(labels) - 1 for i in moved) and self._taken(
                node, offer
            ):
                self._add(node, offer)

    def offer(self, value: Value, label: Permutation) -> None:
        """Let `value` have `label`; new labels are spread to its users and its producer."""
        if value.is_constant or not isinstance(value.type, TensorType) or not label or not _can_be_permuted(value.type):
            return
        known = self.found.of.setdefault(value, [identity(value)])
        if label in known or len(known) >= MAX_LABELS:
            return
        known.append(label)
        self.work.append((value, label))

    def spread(self) -> None:
        while self.work:
            value, label = self.work.popleft()
            if value.producer is not None and value.index == 0:
                self._follow(value.producer, -1, label)
            for user, index in list(value.uses):
                self._follow(user, index, label)

    def _follow(self, node: Node, index: int, label: Permutation) -> None:
        if node in self.fixed or node.regions or not may_match(node, quantized=True):
            return
        if issubclass(node.op, Elementwise):
            expand_constants(node)
        for relabeled in self._possible(node, index, label):
            if self._taken(node, relabeled):
                self._add(node, relabeled)

    def _possible(self, node: Node, index: int, label: Permutation) -> list[Relabeled]:
        """How `node` reads with `label` at `index`.

        Of the many ways of a matmul: the plainest, which may spread labels, and those whose labels all are known.
        """
        offers = [o for o in node.op.offers(node) if _at(node, o, index) == label]
        if offers:
            return [offers[0], *(o for o in offers[1:] if self._all_known(node, o))]
        relabeled = node.op.relabel(node, index, label)
        return [] if relabeled is None else [relabeled]

    def _all_known(self, node: Node, offer: Relabeled) -> bool:
        pairs = [*_pairs(node.operands, offer.operands), *_pairs(node.results, offer.results)]
        return all(v is None or v.is_constant or p is None or p in self.found.labels(v) for v, p in pairs)

    def _taken(self, node: Node, relabeled: Relabeled) -> bool:
        if node.op is ops.Transpose or not relabeled.attributes:
            return True
        return self.takes(_relabeled_probe(node, relabeled))

    def _add(self, node: Node, relabeled: Relabeled) -> None:
        operands = tuple(_label(v, p) for v, p in _pairs(node.operands, relabeled.operands))
        results = tuple(_label(v, p) for v, p in _pairs(node.results, relabeled.results))
        configuration = Configuration(operands, results, relabeled)
        known = self.found.configurations.setdefault(node, [] if node in self.fixed else list(_as_it_is(node)))
        if any(c.operands == operands and c.results == results for c in known):
            return
        known.append(configuration)
        for value, label in [*zip(node.operands, operands, strict=True), *zip(node.results, results, strict=True)]:
            if value is not None and label is not None:
                self.offer(value, label)


def _can_be_permuted(type_: TensorType) -> bool:
    """Whether the axes of a tensor, and of the scales of its blocks, may change their order."""
    return type_.quantization is None or type_.quantization.block is None or type_.is_static


def _as_it_is(node: Node) -> Iterator[Configuration]:
    """A node without a preference can stay as it is; a transpose is an alias, and one that is paid for has a cost."""
    if node.op is not ops.Transpose:
        yield Configuration(tuple(_label(v, None) for v in node.operands), tuple(_label(v, None) for v in node.results))


def _pairs(
    values: list[Value | None] | list[Value], labels: tuple[Permutation | None, ...]
) -> Iterator[tuple[Value | None, Permutation | None]]:
    for i, value in enumerate(values):
        yield value, labels[i] if i < len(labels) else None


def _label(value: Value | None, label: Permutation | None) -> Permutation | None:
    return None if value is None else (label if label is not None else identity(value))


def _is_moved(value: Value) -> bool:
    """Whether a transpose makes `value`, perhaps with arithmetic behind it."""
    for _ in range(MAX_STEPS):
        node = value.producer
        if node is None or not issubclass(node.op, Elementwise | ops.Transpose):
            return False
        if node.op is ops.Transpose:
            return True
        value = node.operand(0) if not node.operand(0).is_constant else node.operand(len(node.operands) - 1)
    return False


def _at(node: Node, offer: Relabeled, index: int) -> Permutation | None:
    """The label that `offer` gives operand `index`, or the first result for -1."""
    value, label = (node.results[0], offer.results[0]) if index < 0 else (node.operands[index], offer.operands[index])
    return _label(value, label)


def _relabeled_probe(node: Node, relabeled: Relabeled) -> Node:
    """A node that stands nowhere, as `node` would be, to ask the target about."""

    def moved(value: Value | None, label: Permutation | None) -> Value | None:
        if value is None or label is None or not isinstance(value.type, TensorType) or value.type.shape is None:
            return value if value is None else _stand_in(value)
        stand_in = _stand_in(value)
        stand_in.type = value.type.permuted(label)
        return stand_in

    operands = [moved(v, p) for v, p in _pairs(node.operands, relabeled.operands)]
    probe = Node(node.op, operands, {**node.attributes, **relabeled.attributes})
    for value, label in _pairs(node.results, relabeled.results):
        result = moved(value, label)
        probe.add_result(result.type if result is not None else None)
    return probe


def _stand_in(value: Value) -> Value:
    copy = Value(value.type, value.name)
    copy.data, copy.known = value.data, value.known
    return copy


def expand_constants(node: Node) -> None:
    """Give constant operands of an elementwise node the rank of its result, so that they can follow a permutation."""
    rank = node.result.tensor_type.rank if isinstance(node.result.type, TensorType) else None
    for i, value in enumerate(node.operands):
        if value is None or value.data is None or rank is None:
            continue
        shape = value.data.shape
        if 0 < len(shape) < rank and value.data.size != 1:
            node.set_operand(i, reshaped_constant(value, (1,) * (rank - len(shape)) + shape))


def transposition(have: Permutation, want: Permutation) -> Permutation:
    """The permutation that turns memory labelled `have` into memory labelled `want`."""
    place = inverse(have)
    return tuple(place[axis] for axis in want)


__all__ = ["Configuration", "Labels", "channels_last_label", "find_labels", "identity", "transposition"]
