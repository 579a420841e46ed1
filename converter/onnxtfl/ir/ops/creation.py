"""Sequences of values: Range Iota DynamicIota."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from onnxtfl.ir.builder import Builder
from onnxtfl.ir.data import Array
from onnxtfl.ir.dims import Dim, ceildiv, fresh_symbol, is_open, is_static, known_size
from onnxtfl.ir.dims import Shape as Dims
from onnxtfl.ir.formula import by_expansion
from onnxtfl.ir.graph import Node, Value
from onnxtfl.ir.intervals import UNKNOWN, Facts, FactsOf
from onnxtfl.ir.op import INDICES, NUMERIC, Op, Operand
from onnxtfl.ir.ops.broadcasting import BroadcastTo
from onnxtfl.ir.ops.casts import Convert
from onnxtfl.ir.ops.gathering import Gather
from onnxtfl.ir.ops.reshape import Reshape
from onnxtfl.ir.shapes import known_dims, normalize_axis
from onnxtfl.ir.types import DType


@by_expansion(Operand("shape", INDICES), results=(Operand("output", like="dtype"),))
def DynamicIota(b: Builder, shape: Value, iota_dimension: int, dtype: DType = DType.INT64) -> Value:
    """Integers that count up from 0 along one dimension of a tensor of `shape`. Source: neutral-ops 3.42."""
    length = known_size(shape.shape[0], "the rank")
    axis = normalize_axis(iota_dimension, length)
    size = b(Convert, b(Gather, shape, np.asarray(axis, np.int64), axis=0), dtype=DType.INT64)
    counts = b(Convert, b(Range, b.scalar(0, size), size, b.scalar(1, size)), dtype=dtype)
    return b(BroadcastTo, b(Reshape, counts, [-1 if i == axis else 1 for i in range(length)]), shape)


@by_expansion(results=(Operand("output", like="dtype"),))
def Iota(b: Builder, iota_dimension: int, shape: Sequence[int], dtype: DType = DType.INT64) -> Value:
    """DynamicIota with the shape as an attribute (which the document takes from the result's type).

    Source: neutral-ops 3.69.
    """
    return b(DynamicIota, list(shape), iota_dimension=iota_dimension, dtype=dtype)


class Range(Op):
    """start, start + delta, ... before limit: max(ceil((limit - start) / delta), 0) elements.

    Operands of rank 0 (or one element). Source: ONNX Range.
    """

    operands = (
        Operand("start", NUMERIC, likely=(0, 1)),
        Operand("limit", NUMERIC, likely=(2, 6)),
        Operand("delta", NUMERIC, likely=(1, 2)),
    )
    core = True
    propagates = True

    @classmethod
    def implied(cls, node: Node) -> Mapping[int, Sequence[float]]:
        """The limit after the last element, if start and delta are known."""
        start, _, delta = node.operands
        known = is_static(node.result.shape)
        if not known or start is None or delta is None or not (start.is_constant and delta.is_constant):
            return {}
        return {1: [start.numpy().item() + node.result.size(0) * delta.numpy().item()]}

    @classmethod
    def facts(cls, node: Node, index: int, of: FactsOf) -> Facts | None:
        """Integers are between start and limit; floats, which are rounded, have a known sign."""
        start, limit, delta = (of(i) for i in range(3))
        if start.of_integers:
            return start.or_else(limit)
        return replace(UNKNOWN, low=0) if start.low >= 0 and delta.low >= 0 else None

    @staticmethod
    def shape(*bounds: Value) -> Dims:
        return (_count(bounds),)

    @staticmethod
    def compute(*bounds: Array) -> Array:
        start, limit, delta = (x.reshape(()) for x in bounds)
        count = _range_count(start, limit, delta)
        wide = np.float64 if start.dtype.kind not in "iuO" else start.dtype
        steps = np.arange(count).astype(wide) * delta.astype(wide)
        return np.asarray(start.astype(wide) + steps)


def _count(bounds: Sequence[Value]) -> Dim:
    """The length of a Range."""
    if all(v.is_constant for v in bounds):
        return _range_count(*(v.numpy().reshape(()) for v in bounds))
    known = [known_dims(v) for v in bounds]
    if any(k is None for k in known):
        return fresh_symbol()
    start, limit, delta = (k[0] for k in known if k is not None)
    room = ceildiv(limit - start, delta)
    return fresh_symbol() if is_open(room) else room


def _range_count(start: Array, limit: Array, delta: Array) -> int:
    if not delta:
        raise ValueError("a range with a step of 0")
    if start.dtype.kind in "iuO":
        return max(-((int(start) - int(limit)) // int(delta)), 0)
    return max(math.ceil((float(limit) - float(start)) / float(delta)), 0)
