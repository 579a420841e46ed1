"""Matrices in the last two axes: Diagonal Trilu Cholesky."""

from __future__ import annotations

import numpy as np

from onnxtfl.ir.attributes import Flag
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.data import Array
from onnxtfl.ir.dims import Shape as Dims
from onnxtfl.ir.dims import differ, known_size, product
from onnxtfl.ir.formula import Term, by_expansion
from onnxtfl.ir.graph import Graph, Node, Value, constant
from onnxtfl.ir.intervals import ZERO, Facts, FactsOf
from onnxtfl.ir.op import FLOATS, INDICES, Op, Operand, Permutation, Permuted, SharedAxes
from onnxtfl.ir.ops.loops import Scan, scan_attributes
from onnxtfl.ir.reshape import reshape, transposed
from onnxtfl.ir.types import DType, TensorType


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
    shared_axes = SharedAxes(independent=False)
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


@by_expansion(Operand("input", FLOATS))
def Cholesky(b: Builder, x: Value, lower: bool = True) -> Value:
    """The triangular factor L of symmetric positive definite matrices L L^T, or L^T (not `lower`).

    Only the triangle of the input that the factor has is read. Other matrices result in NaN. The matrices have a
    static size; column after column, in a Scan. Source: neutral-ops 3.22; XLA.
    """
    n = known_size(x.shape[-1], "the size of the matrices")
    if x.rank < 2 or differ(x.shape[-2], n):
        raise ValueError(f"no square matrices: {x.type}")
    swap = (0, 2, 1)
    matrices = reshape(b, x, (product(x.shape[:-2]), n, n), x)
    matrices = matrices if lower else transposed(b, matrices, swap)
    zeros = Term(b, matrices).apply("Sub", Term(b, matrices))
    start = Term(b, constant(np.zeros(1, bool))).choose(zeros, 0.0)
    scanned = [matrices, constant(np.eye(n), x.dtype), constant(np.triu(np.ones((n, n), bool)))]
    factor = b(Scan, None, start.value, *scanned, body=_next_column(start.value, n), **scan_attributes(1, (2, 0, 0)))
    return reshape(b, factor if lower else transposed(b, factor, swap), x.shape, x)


def _next_column(start: Value, n: int) -> Graph:
    """Return the body of the Scan: the factor [k, n, n] with column j, from column j of the matrices [k, n]."""
    body = Graph("column")
    b = Builder(body)
    batch = start.shape[0]
    factor = Term(b, body.add_input(start.type))
    column = Term(b, body.add_input(TensorType(start.dtype, (batch, n))))
    unit = Term(b, body.add_input(TensorType(start.dtype, (n,))))
    below = Term(b, body.add_input(TensorType(DType.BOOL, (n,))))
    row = (factor * Term(b, reshape(b, unit.value, (n, 1)))).reduce("sum", [1])
    rest = column - (factor * row).reduce("sum", [2], keepdims=False)
    root = (rest * unit).reduce("sum", [1]).sqrt()
    found = below.choose(rest / root, 0.0)
    placed = Term(b, reshape(b, found.value, (batch, n, 1), found.value)) * unit
    body.outputs = [(factor + placed).value]
    return body
