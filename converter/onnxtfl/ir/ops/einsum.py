"""Contractions over more axes than a matmul has: Contraction."""

from __future__ import annotations

from onnxtfl.ir.ops.contraction import DotGeneral


class Contraction(DotGeneral):
    """A DotGeneral that is written as one Einsum, over more axes than a matmul has. Source: ONNX Einsum-12 (added)."""

    core = False
