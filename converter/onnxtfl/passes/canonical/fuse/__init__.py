"""Fusion: separate arithmetic becomes fewer ops, one module for each family of patterns."""

from onnxtfl.passes.canonical.fuse.activation_formulas import ACTIVATIONS
from onnxtfl.passes.canonical.fuse.factors import FACTORS
from onnxtfl.passes.canonical.fuse.groups import GROUPS
from onnxtfl.passes.canonical.fuse.linear import LINEAR
from onnxtfl.passes.canonical.fuse.repeated_batches import REPEATED_BATCHES
from onnxtfl.passes.canonical.fuse.repeated_features import REPEATED
from onnxtfl.passes.canonical.fuse.rotations import ROTATIONS
from onnxtfl.passes.canonical.fuse.rows_of_scores import ROWS_OF_SCORES
from onnxtfl.rewriting.patterns import Patterns

FUSE = Patterns.of(GROUPS, LINEAR, FACTORS, REPEATED, REPEATED_BATCHES, ROWS_OF_SCORES, ROTATIONS, ACTIVATIONS)

__all__ = ["FUSE"]
