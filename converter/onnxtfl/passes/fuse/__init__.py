"""Fusing: spread-out arithmetic becomes fewer ops, a family of patterns a module."""

from onnxtfl.passes.fuse.activations import ACTIVATIONS
from onnxtfl.passes.fuse.convolutions import CONVOLUTIONS
from onnxtfl.passes.fuse.matmuls import MATMULS
from onnxtfl.rewriting.patterns import Patterns

FUSE = Patterns.of(CONVOLUTIONS, MATMULS, ACTIVATIONS)

__all__ = ["FUSE"]
