"""Simplification: folding, canonicalization and fusion, repeated until a fixed point."""

from __future__ import annotations

from onnxtfl.passes.canonical.booleans import BOOLEANS
from onnxtfl.passes.canonical.branches import IF_SIMPLIFICATION
from onnxtfl.passes.canonical.canonicalize import CANONICAL
from onnxtfl.passes.canonical.dead_code import remove_dead
from onnxtfl.passes.canonical.fold import empty_results, fold
from onnxtfl.passes.canonical.fuse import FUSE
from onnxtfl.passes.canonical.infinite_scales import INFINITE
from onnxtfl.passes.canonical.known_sizes import infer_sizes
from onnxtfl.passes.canonical.masks import MASKS
from onnxtfl.passes.canonical.merge_equal import merge_equal
from onnxtfl.passes.canonical.refine import refine
from onnxtfl.passes.canonical.shape_arithmetic import SHAPE_ARITHMETIC
from onnxtfl.passes.loops.simplification import LOOP_SIMPLIFICATION
from onnxtfl.rewriting.pass_manager import EVERYWHERE, Group, Pass
from onnxtfl.rewriting.patterns import Patterns

MAX_ROUNDS = 64
_CANONICAL = Patterns.of(CANONICAL, BOOLEANS, IF_SIMPLIFICATION, LOOP_SIMPLIFICATION, INFINITE, MASKS, SHAPE_ARITHMETIC)

CLEANUP = (
    Pass("fold", fold, EVERYWHERE),
    Pass("merge equal", merge_equal, EVERYWHERE),
    Pass("remove dead", remove_dead, EVERYWHERE),
)
SIMPLIFY = Group(
    "simplify",
    (
        *CLEANUP,
        Pass("sizes", infer_sizes, EVERYWHERE),
        Pass("empty results", empty_results, EVERYWHERE),
        Pass("canonicalize", _CANONICAL.apply, EVERYWHERE),
        Pass("fuse", FUSE.apply, EVERYWHERE),
        Pass("refine", refine, EVERYWHERE),
    ),
    rounds=MAX_ROUNDS,
    needs=frozenset({"neutral"}),
)
"""Brings a graph to its simplest form; idempotent."""
