"""Range analysis of integer tensors before run time: the sign, and a bound of the magnitude."""

from __future__ import annotations

import functools

import numpy as np

from onnxtfl.ir import ops
from onnxtfl.ir.dims import Dim, is_open
from onnxtfl.ir.graph import Node, Value
from onnxtfl.ir.op import Op
from onnxtfl.ir.shapes import known_dims
from onnxtfl.ir.types import DType

EXACT = 1 << 24
"""float32 represents every integer up to this exactly."""

_MANY = 1 << 30
_SMALL = 1 << 16
"""The largest number of elements of a constant that is read."""


def never_negative(value: Value, depth: int = 8) -> bool:
    """Whether all elements of `value` are known to be >= 0 (or NaN), from at most `depth` producers in a chain."""
    if value.is_quantized:
        return False
    if not value.dtype.is_signed:
        return value.dtype.is_integer
    if value.data is not None:
        return value.data.size <= _SMALL and not (value.numpy() < 0).any()
    known = known_dims(value)
    if known is not None and all(_is_size(d) for d in known):
        return True
    node = value.producer
    if node is None or depth == 0:
        return False
    if node.op in _positive():
        return True
    if node.op is ops.Clamp:
        return node.optional(1) is not None and never_negative(node.operand(1), 0)
    if node.op in (ops.TopK, ops.Unique):
        return value.index > 0 or never_negative(node.operand(0), depth - 1)
    if node.op is ops.FloorMod:
        return never_negative(node.operand(1), depth - 1)
    if node.op is ops.Mul and node.operand(0) is node.operand(1):
        return value.dtype.is_float
    if node.op is ops.Reduce and node.attr("kind") != "max":
        return never_negative(node.operand(0), depth - 1)
    count = _keeps_sign().get(node.op)
    return count is not None and all(never_negative(v, depth - 1) for v in node.operands[:count] if v is not None)


def _is_size(dim: Dim) -> bool:
    return dim >= 0 if isinstance(dim, int) else all(c > 0 for _, c in dim.terms) and not is_open(dim)


@functools.cache
def _positive() -> frozenset[type[Op]]:
    """Ops whose results are never negative."""
    counting = {ops.Shape, ops.NonZero, ops.ArgMax, ops.ArgMin}
    return frozenset(counting | {ops.Relu, ops.Relu6, ops.Sigmoid, ops.Softmax, ops.Abs, ops.Exp, ops.Sqrt})


@functools.cache
def _keeps_sign() -> dict[type[Op], int]:
    """Ops whose results are nonnegative if that many leading operands are."""
    moving: tuple[type[Op], ...] = (
        ops.Reshape,
        ops.Transpose,
        ops.Slice,
        ops.Gather,
        ops.BroadcastTo,
        ops.Split,
        ops.Tile,
    )
    moving += (ops.Convert, ops.MaxPool)
    arithmetic = (ops.Add, ops.Mul, ops.Div, ops.FloorDiv, ops.Rem, ops.Concatenate, ops.Max, ops.Min, ops.Range)
    return dict.fromkeys(moving, 1) | dict.fromkeys(arithmetic, _MANY)


def magnitude(value: Value, depth: int = 8) -> int | None:
    """An upper bound of the absolute values in an integer tensor; None if it is unknown."""
    if value.is_quantized:
        return None
    if value.data is not None and value.data.size < 1 << 20:
        return int(np.abs(value.numpy().astype(np.int64)).max(initial=0))
    own = _of_type(value.dtype)
    node = value.producer
    if own is not None or node is None or depth == 0:
        return own
    if node.op in (ops.TopK, ops.ArgMax, ops.ArgMin):
        return _positions(value, node)
    if node.op in _MOVES and node.operand(0).dtype.is_integer:
        return magnitude(node.operand(0), depth - 1)
    if node.op in (ops.FloorMod, ops.Rem):
        return magnitude(node.operand(1), depth - 1)
    if node.op is ops.Div and value.dtype.is_integer:
        return magnitude(node.operand(0), depth - 1)
    if node.op in (ops.Add, ops.Sub, ops.Select, ops.Concatenate):
        parts = node.operands[1:] if node.op is ops.Select else node.operands
        bounds = [magnitude(v, depth - 1) for v in parts if v is not None]
        known = [b for b in bounds if b is not None]
        together = sum if node.op in (ops.Add, ops.Sub) else max
        return together(known) if len(known) == len(bounds) else None
    return None


_MOVES = frozenset(
    {ops.Convert, ops.Reshape, ops.Transpose, ops.Slice, ops.Pad, ops.BroadcastTo, ops.Split, ops.Gather}
)


def _positions(value: Value, node: Node) -> int | None:
    """An upper bound of the indices along an axis that `node` returns."""
    shape = node.operand(0).tensor_type.shape
    size = shape[node.attr("axis")] if shape is not None else None
    return size if isinstance(size, int) and (node.op is not ops.TopK or value.index == 1) else None


def _of_type(dtype: DType) -> int | None:
    if dtype is DType.BOOL:
        return 1
    return (1 << (dtype.bits - dtype.is_signed)) if dtype.is_integer and dtype.bits <= 16 else None


def fits_int32(value: Value) -> bool:
    """Whether all elements of `value` are known to be > -2**31 and < 2**31."""
    bound = magnitude(value)
    return bound is not None and bound < 1 << 31


def exact_terms(lhs: Value, rhs: Value) -> int | None:
    """The number of products of elements of `lhs` and `rhs` whose float32 sum is exact; None if it is unknown."""
    a, b = magnitude(lhs), magnitude(rhs)
    if a is None or b is None:
        return None
    return EXACT // max(1, a * b)
