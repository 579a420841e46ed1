"""Distinct elements, or slices along an axis: Unique."""

from __future__ import annotations

import numpy as np

from onnxtfl.ir import intervals
from onnxtfl.ir.attributes import Axis, ElementType, Flag
from onnxtfl.ir.data import Array
from onnxtfl.ir.dims import Dim, fresh_symbol, product
from onnxtfl.ir.dims import Shape as Dims
from onnxtfl.ir.graph import Node, Value
from onnxtfl.ir.intervals import Facts, FactsOf
from onnxtfl.ir.op import Op, Operand
from onnxtfl.ir.shapes import normalize_axis
from onnxtfl.ir.types import DType


class Unique(Op):
    """The distinct elements (or, with `axis`, slices along it); the index of the first occurrence of each; for each
    element, its index among the distinct ones; and the counts.

    In order if `sorted`, else in the order of first occurrence. Source: ONNX Unique, TFLite UNIQUE.
    """

    operands = (Operand("input"),)
    results = (Operand("values"), *(Operand(name, like="dtype") for name in ("indices", "inverse", "counts")))
    attributes = {"axis": Axis(None), "sorted": Flag(True), "dtype": ElementType(DType.INT64)}
    core = True
    integers = "order"

    @classmethod
    def facts(cls, node: Node, index: int, of: FactsOf) -> Facts | None:
        """The facts of elements of the operand, of positions, and of counts."""
        return intervals.SIZES if index else of(0)

    @staticmethod
    def shape(x: Value, *, axis: int | None) -> list[Dims | None]:
        before = x.tensor_type.shape
        counted = before if before is None or axis is None else [before[axis]]
        count: Dim = 0 if counted is not None and 0 in counted else fresh_symbol()
        if before is None:
            return [None if axis is not None else (count,), (count,), (fresh_symbol(),), (count,)]
        if axis is None:
            return [(count,), (count,), (product(before),), (count,)]
        axis = normalize_axis(axis, len(before))
        return [(*before[:axis], count, *before[axis + 1 :]), (count,), (before[axis],), (count,)]

    @staticmethod
    def compute(x: Array, *, axis: int | None, sorted: bool) -> tuple[Array, ...]:
        values, first, inverse, counts = np.unique(x, True, True, True, axis=axis)
        inverse = inverse.reshape(-1)
        if not sorted:
            order = np.argsort(first, kind="stable")
            values, first, counts = np.take(values, order, axis or 0), first[order], counts[order]
            inverse = np.argsort(order)[inverse]
        return values, first, inverse, counts
