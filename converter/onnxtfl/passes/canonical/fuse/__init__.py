"""Fusion: separate arithmetic becomes fewer ops, one module for each family of patterns."""

from onnxtfl.passes.canonical.fuse.activation_formulas import ACTIVATIONS
from onnxtfl.passes.canonical.fuse.factors import FACTORS
from onnxtfl.passes.canonical.fuse.linear import LINEAR
from onnxtfl.passes.canonical.fuse.repeated_batches import REPEATED_BATCHES
from onnxtfl.passes.canonical.fuse.repeated_features import REPEATED
from onnxtfl.rewriting.patterns import Patterns

FUSE = Patterns.of(LINEAR, FACTORS, REPEATED, REPEATED_BATCHES, ACTIVATIONS)

__all__ = ["FUSE"]
