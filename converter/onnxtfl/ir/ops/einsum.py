"""Contractions over more axes than a matmul has: Contraction."""

from __future__ import annotations

from collections.abc import Iterator

from onnxtfl.ir.graph import Node
from onnxtfl.ir.op import Relabeled
from onnxtfl.ir.ops.contraction import DotGeneral


class Contraction(DotGeneral):
    """A DotGeneral that is written as one Einsum, over more axes than a matmul has. Source: ONNX Einsum-12 (added)."""

    core = False

    @classmethod
    def offers(cls, node: Node) -> Iterator[Relabeled]:
        """None: an Einsum takes its operands, and gives its result, in any order."""
        return iter(())
