"""Activations from their formulas in exported models (:mod:`onnxtfl.passes.canonical.templates`)."""

from __future__ import annotations

import math

from onnxtfl.ir import ops
from onnxtfl.ir.formula import Term
from onnxtfl.passes.canonical.templates import ROUNDED, Template, patterns_of


def _factored_gelu(x: Term, approximate: str) -> Term:
    return x * 0.5 * ((x * (x * x * 0.044715 + 1.0) * math.sqrt(2 / math.pi)).tanh() + 1.0)


def _shifted_clamp(x: Term) -> Term:
    return x * (x + 3.0).clamp(0.0, 6.0) / 6.0


def _written_out(x: Term) -> Term:
    return x * ops.HardSigmoid.formula(x, 1 / 6, 0.5)


ACTIVATIONS = patterns_of(
    Template.of(ops.Gelu, tolerance=ROUNDED),
    Template.of(ops.Gelu, tolerance=ROUNDED, approximate="tanh"),
    Template.of(ops.Gelu, _factored_gelu, tolerance=ROUNDED, approximate="tanh"),
    Template.of(ops.HardSwish, tolerance=ROUNDED),
    Template.of(ops.HardSwish, _shifted_clamp, tolerance=ROUNDED),
    Template.of(ops.HardSwish, _written_out, tolerance=ROUNDED),
    Template.of(ops.Mish),
)
