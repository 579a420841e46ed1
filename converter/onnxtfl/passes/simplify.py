"""Canonical forms, folding and fusing, in turn until nothing changes."""

from __future__ import annotations

from onnxtfl.ir.graph import Graph
from onnxtfl.passes.branches import BRANCHES
from onnxtfl.passes.canonicalize import CANONICAL
from onnxtfl.passes.cleanup import merge_equal, remove_dead
from onnxtfl.passes.fold import fold
from onnxtfl.passes.fuse import FUSE
from onnxtfl.passes.refine import refine
from onnxtfl.passes.truth import TRUTH
from onnxtfl.passes.vectors import VECTORS
from onnxtfl.rewriting.patterns import Patterns

MAX_ROUNDS = 8
_CANONICAL = Patterns.of(CANONICAL, TRUTH, BRANCHES, VECTORS)


def simplify(graph: Graph) -> None:
    """Bring `graph` to its simplest form; idempotent."""
    for _ in range(MAX_ROUNDS):
        fold(graph)
        merge_equal(graph)
        remove_dead(graph)
        changed = _CANONICAL.apply(graph)
        changed = FUSE.apply(graph) or changed
        if not (refine(graph) or changed):
            break
    for node in graph.nodes:
        for inner in node.subgraphs():
            simplify(inner)
