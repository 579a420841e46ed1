"""Simplification: folding, canonicalization and fusion, repeated until a fixed point."""

from __future__ import annotations

from onnxtfl.passes.booleans import BOOLEANS
from onnxtfl.passes.canonicalize import CANONICAL
from onnxtfl.passes.cleanup import merge_equal, remove_dead
from onnxtfl.passes.fold import empty_results, fold
from onnxtfl.passes.fuse import FUSE
from onnxtfl.passes.if_simplification import IF_SIMPLIFICATION
from onnxtfl.passes.known_sizes import infer_sizes
from onnxtfl.passes.loop_simplification import LOOP_SIMPLIFICATION
from onnxtfl.passes.quantize.infinite import INFINITE
from onnxtfl.passes.refine import refine
from onnxtfl.passes.shape_arithmetic import SHAPE_ARITHMETIC
from onnxtfl.rewriting.pass_manager import EVERYWHERE, Group, Pass
from onnxtfl.rewriting.patterns import Patterns

MAX_ROUNDS = 64

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
        Pass(
            "canonicalize",
            Patterns.of(CANONICAL, BOOLEANS, IF_SIMPLIFICATION, LOOP_SIMPLIFICATION, INFINITE, SHAPE_ARITHMETIC).apply,
            EVERYWHERE,
        ),
        Pass("fuse", FUSE.apply, EVERYWHERE),
        Pass("refine", refine, EVERYWHERE),
    ),
    rounds=MAX_ROUNDS,
    needs=frozenset({"neutral"}),
)
"""Brings a graph to its simplest form; idempotent."""
