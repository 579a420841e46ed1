"""How large integers can be, as far as one can see: whether float32 holds a sum of their products exactly."""

from __future__ import annotations

import numpy as np

from onnxtfl.ir import ops
from onnxtfl.ir.graph import Value
from onnxtfl.ir.types import DType

EXACT = 1 << 24
"""float32 holds every integer up to this."""


def magnitude(value: Value, depth: int = 8) -> int | None:
    """A bound of the absolute values in an integer tensor; None where nothing is seen."""
    if value.data is not None and value.data.size < 1 << 20:
        return int(np.abs(value.numpy().astype(np.int64)).max(initial=0))
    own = _of_type(value.dtype)
    node = value.producer
    if own is not None or node is None or depth == 0:
        return own
    if node.op in (ops.Convert, ops.Reshape, ops.Transpose, ops.Slice, ops.Pad, ops.BroadcastTo, ops.Split):
        return magnitude(node.operand(0), depth - 1)
    if node.op in (ops.Add, ops.Sub):
        bounds = [magnitude(v, depth - 1) for v in node.operands if v is not None]
        return sum(b for b in bounds if b is not None) if None not in bounds else None
    return None


def _of_type(dtype: DType) -> int | None:
    if dtype is DType.BOOL:
        return 1
    return (1 << (dtype.bits - dtype.is_signed)) if dtype.is_integer and dtype.bits <= 16 else None


def exact_terms(lhs: Value, rhs: Value) -> int | None:
    """How many products of elements of `lhs` and `rhs` float32 adds up exactly; None where no bound is seen."""
    a, b = magnitude(lhs), magnitude(rhs)
    if a is None or b is None:
        return None
    return EXACT // max(1, a * b)
