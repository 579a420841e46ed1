"""Order along an axis: TopK Sort Unique."""

from __future__ import annotations

import numpy as np

from onnxtfl.ir import intervals
from onnxtfl.ir.attributes import Axis, ElementType, Flag
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.data import Array
from onnxtfl.ir.dims import Dim, exceeds, fresh_symbol, product, size_or
from onnxtfl.ir.dims import Shape as Dims
from onnxtfl.ir.formula import by_expansion
from onnxtfl.ir.graph import Node, Value
from onnxtfl.ir.intervals import Facts, FactsOf
from onnxtfl.ir.op import ANY, INTEGERS, NUMERIC, Op, Operand, SharedAxes
from onnxtfl.ir.ops.gathering import GatherElements
from onnxtfl.ir.reshape import dim_value
from onnxtfl.ir.shapes import known_dims, normalize_axis
from onnxtfl.ir.types import DType

MOST = (1 << 31) - 1
"""The largest `k`."""


class TopK(Op):
    """The `k` largest (or smallest) elements along `axis`, and their indices; of equal ones the first come first.

    In order (NaN is the largest) if `sorted`, else in any order. `k` has one element.
    Source: neutral-ops 3.135, ONNX TopK; `dtype` is the indices'.
    """

    documented = "Topk"
    operands = (Operand("input", NUMERIC), Operand("k", INTEGERS, likely=(1, 2)))
    results = (Operand("values"), Operand("indices", like="dtype"))
    attributes = {
        "axis": Axis(-1),
        "largest": Flag(True),
        "sorted": Flag(True),
        "dtype": ElementType(DType.INT64),
    }
    core = True
    shared_axes = SharedAxes(attributes=("axis",))
    positions = 1
    integers = "order"
    discrete = True

    @classmethod
    def facts(cls, node: Node, index: int, of: FactsOf) -> Facts | None:
        """The facts of elements of the operand, and of positions along the axis."""
        shape = node.operand(0).tensor_type.shape
        return intervals.positions_below(None if shape is None else shape[node.attr("axis")]) if index else of(0)

    @staticmethod
    def shape(x: Value, k: Value, *, axis: int) -> Dims:
        axis, known = normalize_axis(axis, x.rank), known_dims(k)
        if known is not None and len(known) != 1:
            raise ValueError(f"k has {len(known)} elements")
        count, size = known[0] if known else fresh_symbol(), x.shape[axis]
        if exceeds(count, size_or(size, MOST)):
            raise ValueError(f"the top {count} of {size}")
        return (*x.shape[:axis], count, *x.shape[axis + 1 :])

    @staticmethod
    def compute(x: Array, k: Array, *, axis: int, largest: bool) -> tuple[Array, ...]:
        places = np.take(_sorted_order(x, axis, largest), np.arange(int(k.reshape(()))), axis)
        return np.take_along_axis(x, places, axis), places


def _sorted_order(x: Array, axis: int, descending: bool) -> Array:
    """The indices of the sorted elements; equal elements keep their order."""
    if x.dtype.kind not in "iufb":
        x = x.astype(np.float32)
    if not descending:
        return np.argsort(x, axis, kind="stable")
    backwards = np.argsort(np.flip(x, axis), axis, kind="stable")
    return np.flip(x.shape[axis] - 1 - backwards, axis)


@by_expansion(
    Operand("inputs", ANY, variadic=True),
    results=(Operand("outputs", variadic=True),),
    shared_axes=SharedAxes(None, ("dimension",)),
    discrete=True,
)
def Sort(
    b: Builder, *inputs: Value, dimension: int = -1, descending: bool = False, is_stable: bool = True
) -> list[Value]:
    """All operands sorted along `dimension` as the first one is: its TopK, and the others gathered the same way.

    Source: neutral-ops 3.126.
    """
    x, axis = inputs[0], normalize_axis(dimension, inputs[0].rank)
    count = dim_value(b, x.shape[axis], x)
    values, order = b.many(TopK, x, count, axis=axis, largest=descending, sorted=True)
    return [values, *(b(GatherElements, v, order, axis=axis) for v in inputs[1:])]


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
