"""Sequences of values: Range Iota DynamicIota."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from onnxtfl.ir.define import *
from onnxtfl.ir.ops.broadcasting import BroadcastTo
from onnxtfl.ir.ops.casts import Convert
from onnxtfl.ir.ops.gathering import Gather
from onnxtfl.ir.ops.reshape import Reshape


def _scalar(b: Builder, vector: Value, index: int) -> Value:
    return b(Gather, vector, np.asarray(index, np.int64), axis=0)


class DynamicIota(Derived):
    """Numbers that count up from 0 along one dimension of a tensor of `shape`. Source: neutral-ops 3.42."""

    operands: ClassVar[tuple[Operand, ...]] = (Operand("shape", INDICES),)
    results = (Operand("output", like="dtype"),)
    defaults = {"iota_dimension": REQUIRED, "dtype": DType.INT64}

    @classmethod
    def expand(cls, b: Builder, node: Node) -> list[Value]:
        shape, dtype = node.operand(0), node.attr("dtype")
        length = shape.shape[0]
        if not isinstance(length, int):
            raise ValueError("the rank has to be known before run time")
        axis = normalize_axis(node.attr("iota_dimension"), length)
        size = (
            b(Convert, _scalar(b, shape, axis), dtype=DType.INT64)
            if shape.dtype is DType.INT32
            else _scalar(b, shape, axis)
        )
        counts = b(Range, b.scalar(0, size), size, b.scalar(1, size))
        numbers = counts if dtype is DType.INT64 else b(Convert, counts, dtype=dtype)
        return [b(BroadcastTo, b(Reshape, numbers, [-1 if i == axis else 1 for i in range(length)]), shape)]


class Iota(DynamicIota):
    """The same with the shape as an attribute (which the document takes from the result's type).

    Source: neutral-ops 3.69.
    """

    operands = ()
    defaults = {"iota_dimension": REQUIRED, "shape": REQUIRED, "dtype": DType.INT64}

    @classmethod
    def expand(cls, b: Builder, node: Node) -> list[Value]:
        return super().expand(b, Node(node.op, [b.value(list(node.attr("shape")))], node.attributes))


class Range(Op):
    """start, start + delta, ... up to but without limit: max(ceil((limit - start) / delta), 0) numbers.

    Operands of rank 0 (or one element). Source: ONNX Range.
    """

    operands = (Operand("start", NUMERIC), Operand("limit", NUMERIC), Operand("delta", NUMERIC))
    core = True
    follows_values = True

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
        return fresh()
    start, limit, delta = (k[0] for k in known if k is not None)
    room = ceildiv(limit - start, delta)
    return fresh() if is_open(room) else room


def _range_count(start: Array, limit: Array, delta: Array) -> int:
    if start.dtype.kind in "iuO":
        return max(-((int(start) - int(limit)) // int(delta)), 0)
    return max(math.ceil((float(limit) - float(start)) / float(delta)), 0)
