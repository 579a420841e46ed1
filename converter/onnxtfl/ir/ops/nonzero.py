"""The indices of nonzero elements."""

from __future__ import annotations

import numpy as np

from onnxtfl.ir.data import Array
from onnxtfl.ir.dims import Dim, fresh_symbol
from onnxtfl.ir.dims import Shape as Dims
from onnxtfl.ir.graph import Node, Value
from onnxtfl.ir.intervals import SIZES, Facts, FactsOf
from onnxtfl.ir.op import Op, Operand
from onnxtfl.ir.types import DType, rank_of


class NonZero(Op):
    """The indices of the nonzero elements in C order: [rank, n]; a scalar is a vector of one element.

    Source: neutral-ops 3.83; shaped like ONNX NonZero's.
    """

    operands = (Operand("input"),)
    results = (Operand("indices", frozenset({DType.INT64})),)
    core = True
    discrete = True

    @classmethod
    def facts(cls, node: Node, index: int, of: FactsOf) -> Facts | None:
        """Indices are in the range of the axes."""
        return SIZES

    @staticmethod
    def shape(x: Value) -> Dims:
        rank = rank_of(x.type)
        count: Dim = 0 if 0 in (x.tensor_type.shape or ()) else fresh_symbol()
        axes: Dim = fresh_symbol() if rank is None else max(rank, 1)
        return (axes, count)

    @staticmethod
    def compute(x: Array) -> Array:
        return np.asarray(np.nonzero(np.atleast_1d(x)))
