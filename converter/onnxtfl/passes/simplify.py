"""Canonical forms, folding and fusing, in turn until nothing changes."""

from __future__ import annotations

from onnxtfl.passes.branches import BRANCHES
from onnxtfl.passes.canonicalize import CANONICAL
from onnxtfl.passes.cleanup import merge_equal, remove_dead
from onnxtfl.passes.fold import fold
from onnxtfl.passes.fuse import FUSE
from onnxtfl.passes.refine import refine
from onnxtfl.passes.truth import TRUTH
from onnxtfl.passes.vectors import VECTORS
from onnxtfl.rewriting.pass_manager import Group, Pass
from onnxtfl.rewriting.patterns import Patterns

MAX_ROUNDS = 64

CLEANUP = (Pass("fold", fold), Pass("merge equal", merge_equal), Pass("remove dead", remove_dead))
SIMPLIFY = Group(
    "simplify",
    (
        *CLEANUP,
        Pass("canonicalize", Patterns.of(CANONICAL, TRUTH, BRANCHES, VECTORS).apply),
        Pass("fuse", FUSE.apply),
        Pass("refine", refine),
    ),
    rounds=MAX_ROUNDS,
    needs=frozenset({"neutral"}),
)
"""Brings a graph to its simplest form; idempotent."""
