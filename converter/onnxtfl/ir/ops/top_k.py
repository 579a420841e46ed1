"""The largest or smallest elements along an axis: TopK."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from onnxtfl.ir import intervals
from onnxtfl.ir.attributes import Axis, ElementType, Flag
from onnxtfl.ir.data import Array
from onnxtfl.ir.dims import Shape as Dims
from onnxtfl.ir.dims import exceeds, fresh_symbol, is_static, size_or
from onnxtfl.ir.graph import Node, Value
from onnxtfl.ir.intervals import Facts, FactsOf
from onnxtfl.ir.op import INTEGERS, NUMERIC, Op, Operand, SharedAxes
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

    @classmethod
    def implied(cls, node: Node) -> Mapping[int, Sequence[float]]:
        shape = node.results[0].tensor_type.shape
        return {1: [shape[node.attr("axis")]]} if is_static(shape) else {}

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
