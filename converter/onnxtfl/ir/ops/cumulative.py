"""Cumulative sums: CumSum."""

from __future__ import annotations

import numpy as np

from onnxtfl.ir import intervals
from onnxtfl.ir.attributes import Flag
from onnxtfl.ir.data import Array
from onnxtfl.ir.dims import Shape as Dims
from onnxtfl.ir.dims import product, size_or
from onnxtfl.ir.graph import Node, Value
from onnxtfl.ir.intervals import MOST, Facts, FactsOf
from onnxtfl.ir.op import INTEGERS, NUMERIC, Op, Operand, SharedAxes
from onnxtfl.ir.shapes import normalize_axis, static_ints


class CumSum(Op):
    """The sum of all elements up to each one along an axis; `exclusive`: without it; `reverse`: from the end.

    `axis`: an integer of rank 0, or of one element. Source: ONNX CumSum, TFLite CUMSUM (added).
    """

    operands = (Operand("input", NUMERIC), Operand("axis", INTEGERS))
    attributes = {"exclusive": Flag(False), "reverse": Flag(False)}
    core = True
    shared_axes = SharedAxes(axes=(1,))
    widens = True
    integers = "bits"

    @classmethod
    def facts(cls, node: Node, index: int, of: FactsOf) -> Facts | None:
        """Bounds of sums of at most as many elements as the axis has."""
        sizes = [size_or(d, MOST) for d in node.operand(0).tensor_type.shape or (MOST,)]
        return intervals.total(of(0), max(sizes))

    @staticmethod
    def shape(x: Value, axis: Value) -> Dims:
        where = static_ints(axis)
        if where is not None and len(where) != 1:
            raise ValueError(f"axis {where}")
        if axis.tensor_type.is_static and product(axis.shape) != 1:
            raise ValueError(f"an axis of shape {list(axis.shape)}, not of one element")
        if where is not None:
            normalize_axis(where[0], x.rank)
        return x.shape

    @staticmethod
    def compute(x: Array, axis: Array, *, exclusive: bool, reverse: bool) -> Array:
        along = normalize_axis(int(axis.reshape(-1)[0]), x.ndim)
        x = np.flip(x, along) if reverse else x
        sums = np.cumsum(x, along, dtype=x.dtype)
        if exclusive and x.shape[along]:
            shape = [1 if i == along else d for i, d in enumerate(x.shape)]
            kept = sums.take(np.arange(x.shape[along] - 1), along)
            sums = np.concatenate([np.zeros(shape, x.dtype), kept], along)
        return np.flip(sums, along) if reverse else sums
