"""The pass manager: runs passes in order over a graph and its regions, verifies after each, and measures them.

A pass is a function that rewrites one graph in place, not the regions of its nodes; the pass manager visits these after
the graph. A group runs its passes in order, once or to a fixed point.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Literal

from onnxtfl.dataclass import dataclass
from onnxtfl.errors import InternalError
from onnxtfl.ir.budget import current_budget
from onnxtfl.ir.graph import Graph
from onnxtfl.ir.verify import verify
from onnxtfl.rewriting.sections import Section

Rewrite = Callable[[Graph], "bool | Section | None"]
"""Rewrites a graph; returns whether it changed it (None: unknown, but other passes of its group need not run again), or
its section of the report.
"""
Fact = Literal["neutral", "legal", "laid out", "lowered"]
"""Properties of a graph: all ops are neutral; the target accepts each; layouts are assigned; all are target ops."""
Observer = Callable[[str], None]


EVERYWHERE: Literal["everywhere"] = "everywhere"
"""For passes that rewrite regions like the main graph."""


def idle(graph: Graph) -> bool:
    """Do nothing."""
    return False


MAIN_ONLY = idle
"""For passes that skip regions or visit them themselves."""


@dataclass(frozen=True)
class Pass:
    """A pass: `run` rewrites the main graph, `on_region` each region (`EVERYWHERE`: the same; `MAIN_ONLY`: none).

    `needs`: required facts. `establishes`: facts that are true after it. `breaks`: facts that may be false after it.
    `when`: a condition on graphs that is false only if the pass would change nothing.
    """

    name: str
    run: Rewrite
    on_region: Rewrite | Literal["everywhere"]
    needs: frozenset[Fact] = frozenset()
    establishes: frozenset[Fact] = frozenset()
    breaks: frozenset[Fact] = frozenset()
    when: Callable[[Graph], bool] | None = None


@dataclass(frozen=True)
class Group:
    """Passes that run in order: once, or (`rounds` > 1) to a fixed point, at which the group is not run again until
    another pass changes the graph.

    Raises InternalError if `rounds` iterations do not reach it. `dependent`: later passes run only if the first one
    changed something.
    """

    name: str
    passes: Sequence[Pass | Group]
    rounds: int = 1
    dependent: bool = False
    needs: frozenset[Fact] = frozenset()
    establishes: frozenset[Fact] = frozenset()
    breaks: frozenset[Fact] = frozenset()


@dataclass(frozen=True, slots=True)
class PassTiming:
    """The seconds of one run of a pass and the number of nodes after it, both including regions."""

    name: str
    seconds: float
    nodes: int


class PassManager:
    """Runs `passes` in order; InternalError if one needs a fact that no earlier pass establishes.

    `given`: initial facts. `observe` is called with the name of each pass before it runs. `check`: run the verifier
    after each pass, also after each member of a group. `sections`: what passes reported, in order.
    """

    def __init__(
        self,
        passes: Sequence[Pass | Group],
        *,
        given: frozenset[Fact] = frozenset(),
        observe: Observer | None = None,
        check: bool = False,
    ) -> None:
        _check_facts(passes, given)
        self.passes = passes
        self.timings: list[PassTiming] = []
        self.sections: list[Section] = []
        self._observe = observe
        self._check = check
        self._is_changed = True  # whether a pass may have changed something since this was reset
        self._converged: Group | None = None  # the last group that reached its fixed point, if nothing changed since

    def run(self, graph: Graph, until: str | None = None) -> None:
        """Rewrite `graph` and its regions; `until`: the name of the last pass to run."""
        nodes = 0
        for step in self.passes:
            if self._observe is not None:
                self._observe(step.name)
            started = time.perf_counter()
            if step is not self._converged:
                nodes = self._run(step, graph)
            self.timings.append(PassTiming(step.name, time.perf_counter() - started, nodes))
            if step.name == until:
                return

    def _run(self, step: Pass | Group, graph: Graph) -> int:
        """Rewrite `graph` and its regions; return the number of their nodes.

        The fixed point of a graph with regions is not known: they are rewritten after the graph, which may depend on
        them.
        """
        self._is_changed = False
        nodes = self._visit(step, graph, False)
        self._verify(graph, step)
        if isinstance(step, Group) and step.rounds > 1:
            self._converged = None if graph.holders else step
        elif self._is_changed:
            self._converged = None
        return nodes

    def _visit(self, step: Pass | Group, graph: Graph, is_region: bool) -> int:
        """Rewrite `graph`, then the regions of its remaining nodes; return the number of nodes with regions.

        A region that several nodes share is visited once.
        """
        self._apply(step, graph, is_region)
        if not graph.holders:
            return graph.size
        regions = dict.fromkeys(region for node in list(graph.nodes) for region in node.regions)
        return graph.size + sum(self._visit(step, region, True) for region in regions)

    def _apply(self, step: Pass | Group, graph: Graph, is_region: bool) -> bool:
        current_budget().look()
        if isinstance(step, Pass):
            if step.when is not None and not step.when(graph):
                return False
            rewrite = step.run if not is_region or step.on_region == EVERYWHERE else step.on_region
            found = rewrite(graph)
            self._is_changed |= found is not False
            self.sections += [found] if isinstance(found, Section) else []
            return bool(found)
        changed_at_all = False
        for _ in range(step.rounds):
            changed = False
            for member in step.passes:
                changed |= self._apply(member, graph, is_region)
                self._verify(graph, member)
                if step.dependent and not changed:
                    break
            changed_at_all |= changed
            if not changed:
                return changed_at_all
        if step.rounds > 1:
            raise InternalError(step.name, RuntimeError(f"no fixed point within {step.rounds} iterations"))
        return changed_at_all

    def _verify(self, graph: Graph, step: Pass | Group) -> None:
        if self._check:
            verify(graph, f"after {step.name}")


def _check_facts(passes: Sequence[Pass | Group], given: frozenset[Fact]) -> None:
    facts = set(given)
    for step in passes:
        if missing := step.needs - facts:
            raise InternalError(step.name, RuntimeError(f"the pass needs a graph that is {', '.join(sorted(missing))}"))
        facts = (facts - step.breaks) | step.establishes
