"""Parts of the matrices in the last two axes: Diagonal Trilu."""

from __future__ import annotations

import numpy as np

from onnxtfl.ir.attributes import Flag
from onnxtfl.ir.data import Array
from onnxtfl.ir.dims import Shape as Dims
from onnxtfl.ir.dims import differ
from onnxtfl.ir.graph import Node, Value
from onnxtfl.ir.intervals import ZERO, Facts, FactsOf
from onnxtfl.ir.op import INDICES, Op, Operand, Permutation, Permuted, SharedAxes


class Diagonal(Op):
    """The diagonals of the square matrices in the last two axes. Source: XLA, matrix diagonal part (added)."""

    operands = (Operand("input"),)
    moves = slice(0, 1)

    @staticmethod
    def shape(x: Value) -> Dims:
        rows, columns = x.shape[-2:]
        if differ(rows, columns):
            raise ValueError(f"no diagonal of matrices of {rows} x {columns}")
        return x.shape[:-1]

    @staticmethod
    def compute(x: Array) -> Array:
        return np.ascontiguousarray(np.diagonal(x, axis1=-2, axis2=-1))


class Trilu(Op):
    """The upper (or lower) triangle of the matrices on the last two axes, zeros elsewhere.

    `k` (rank 0 or one element, 0 where absent): the diagonal where the triangle begins, positive above the main one.
    Source: neutral-ops 3.137, with `k` as an operand as in ONNX.
    """

    operands = (Operand("input"), Operand("k", INDICES, optional=True, likely=(0, 1)))
    attributes = {"upper": Flag(True)}
    core = True
    shared_axes = SharedAxes()
    carries = slice(0, 1)

    @classmethod
    def facts(cls, node: Node, index: int, of: FactsOf) -> Facts | None:
        """The union of the operand and 0."""
        return of(0).or_else(ZERO)

    @staticmethod
    def shape(x: Value, k: Value | None) -> Dims:
        if x.rank < 2:
            raise ValueError(f"a triangle of rank {x.rank}")
        return x.shape

    @staticmethod
    def compute(x: Array, k: Array | None, *, upper: bool) -> Array:
        diagonal = 0 if k is None else int(k.reshape(()))
        rows, columns = x.shape[-2:]
        distance = np.arange(columns)[None, :] - np.arange(rows)[:, None]
        keep = distance >= diagonal if upper else distance <= diagonal
        return np.where(keep, x, np.zeros((), x.dtype))

    @classmethod
    def permuted(cls, node: Node, index: int, permutation: Permutation) -> Permuted | None:
        """Any permutation that keeps the last two axes."""
        rank = len(permutation)
        return super().permuted(node, index, permutation) if permutation[-2:] == (rank - 2, rank - 1) else None
