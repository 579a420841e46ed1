"""Rewrite patterns, and the worklist that applies them until none matches."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import NamedTuple

from onnxtfl.ir.budget import current_budget
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.declaration import UnknownRankError
from onnxtfl.ir.graph import OPS, Graph, Node, Value
from onnxtfl.ir.op import Op
from onnxtfl.ir.quantized import may_match, touches_quantized
from onnxtfl.rewriting.registry import rule_name
from onnxtfl.rewriting.structure import structure_of

Rewrite = Callable[[Builder, Node], "Value | Sequence[Value] | None"]
"""Returns the values that replace the node's results, or None if the pattern does not match; nodes built until then are
removed. Before a match is certain, it may change the graph only through the builder.
"""

Pays = Callable[[str, Sequence[Node], Sequence[Node]], bool]

MANY_USES = 1000
"""For values with more uses, only uses that a rewrite adds are visited again."""


class _Pattern(NamedTuple):
    rewrite: Rewrite
    quantized: bool
    local: bool
    name: str


class Patterns:
    """Rewrites by the op of their root node, in the order in which they are tried."""

    def __init__(self) -> None:
        self._by_op: dict[type[Op], list[_Pattern]] = {}

    @classmethod
    def of(cls, *parts: Patterns) -> Patterns:
        """The rewrites of all `parts`, in order."""
        whole = cls()
        for part in parts:
            for op, rewrites in part._by_op.items():
                whole._by_op.setdefault(op, []).extend(rewrites)
        return whole

    def on(self, *ops: type[Op], quantized: bool = False, local: bool = False) -> Callable[[Rewrite], Rewrite]:
        """Register a rewrite whose root node is one of `ops`, or a subclass of an abstract one.

        `quantized`: also try it on nodes with quantized operands or results. Most patterns are equations of real
        numbers and ignore rounding. `local`: whether it matches depends on the structure of the root alone
        (:func:`onnxtfl.rewriting.structure.structure_of`); where it does not match, or pay, equal nodes are not tried.
        """

        def register(rewrite: Rewrite) -> Rewrite:
            for op in (each for given in ops for each in _concrete(given)):
                self._by_op.setdefault(op, []).append(_Pattern(rewrite, quantized, local, rule_name(rewrite)))
            return rewrite

        return register

    def has(self, op: type[Op]) -> bool:
        """Whether there is a rewrite for nodes of this op."""
        return op in self._by_op

    def apply(self, graph: Graph, pays: Pays | None = None) -> bool:
        """Rewrite `graph` until nothing matches; return whether anything changed.

        `pays`: says whether a rewrite is made, by its name, the nodes that it removes and those that it adds.
        """
        work = deque(node for node in graph.nodes if node.op in self._by_op)
        waiting = set(work)
        budget, changed, declined = current_budget(), False, set[Hashable]()
        while work:
            node = work.popleft()
            waiting.discard(node)
            if node.graph is not graph:
                continue
            budget.step(node.name, node.op.name)
            touched = self._step(graph, node, pays, declined)
            changed |= touched is not None
            for other in touched or ():
                if other.op in self._by_op and other.graph is graph and other not in waiting:
                    waiting.add(other)
                    work.append(other)
        return changed

    def _step(self, graph: Graph, node: Node, pays: Pays | None, declined: set[Hashable]) -> list[Node] | None:
        """Make the first rewrite of `node` that matches and pays; `declined`: local ones that did not, by structure."""
        plain = not touches_quantized(node)
        builder = Builder(graph, node)
        for rewrite, quantized, local, builder.maker in self._by_op[node.op]:
            if not plain and not (quantized and may_match(node, quantized)):
                continue
            structure = structure_of(node) if local else None
            if structure is not None and (rewrite, structure) in declined:
                continue
            try:
                result = builder.tried(rewrite, node)
            except UnknownRankError:  # equations of shapes do not hold for it; where it has to be known, rules say so
                result = None
            if result is not None and pays and not pays(builder.maker, replaced(graph, node), builder.created):
                builder.undo()
                result = None
            if result is None:
                if structure is not None:
                    declined.add((rewrite, structure))
                continue
            values = [result] if isinstance(result, Value) else list(result)
            producers = [v.producer for v in node.present_operands if v.producer]
            moved = [u for r in node.results for u in r.users()]
            graph.replace(node, values)
            erased = erase_dead(graph, producers)
            for made in builder.created:
                made.add_history(*erased)
            around = [u for v in values for u in (v.users() if len(v.uses) < MANY_USES else moved)]
            around += [v.producer for v in values if v.producer]
            return [*builder.created, *around]
        return None


def _concrete(op: type[Op]) -> list[type[Op]]:
    """Return the concrete subclasses of an abstract op, else `op`."""
    return [op] if OPS.get(op.name) is op else [inner for each in op.__subclasses__() for inner in _concrete(each)]


def replaced(graph: Graph, root: Node) -> list[Node]:
    """The nodes that are unused once `root` is: itself and, of the nodes before it, those without another use."""
    found = {root: None}
    for node in (work := [root]):
        for value in node.operands:
            made = None if value is None else value.producer
            if made is None or made in found or not made.is_pure:
                continue
            if all(u in found for r in made.results for u in r.users()) and not any(map(graph.is_output, made.results)):
                found[made] = None
                work.append(made)
    return work


def erase_dead(graph: Graph, candidates: Iterable[Node]) -> list[Node]:
    """Remove the pure nodes among `candidates` whose results are unused, then their producers; return the removed."""
    work = list(candidates)
    erased = []
    while work:
        node = work.pop()
        if node.graph is not graph or [r for r in node.results if r.uses or graph.is_output(r)]:  # faster than any()
            continue
        if not node.is_pure:
            continue
        work.extend(v.producer for v in node.present_operands if v.producer)
        graph.drop(node)
        erased.append(node)
    return erased
