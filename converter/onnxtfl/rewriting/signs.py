"""What is known of the sign of numbers before run time."""

from __future__ import annotations

import functools

from onnxtfl.ir import ops
from onnxtfl.ir.dims import Dim
from onnxtfl.ir.graph import Value
from onnxtfl.ir.op import Op
from onnxtfl.ir.shapes import known_dims

_MANY = 1 << 30
_SMALL = 1 << 16
"""Elements up to which a constant's numbers are looked at."""


def never_negative(value: Value, depth: int = 8) -> bool:
    """Whether the numbers in `value` are seen to be 0 or more (or NaN), looking back over `depth` nodes at most."""
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
    count = _keeps_sign().get(node.op)
    return count is not None and all(never_negative(v, depth - 1) for v in node.operands[:count] if v is not None)


def _is_size(dim: Dim) -> bool:
    return dim >= 0 if isinstance(dim, int) else all(c > 0 for _, c in dim.terms) and "v?" not in str(dim)


@functools.cache
def _positive() -> frozenset[type[Op]]:
    """Ops whose results never are negative."""
    counting = {ops.Shape, ops.Size, ops.NonZero, ops.ArgMax, ops.ArgMin}
    return frozenset(counting | {ops.Relu, ops.Relu6, ops.Sigmoid, ops.Softmax, ops.Abs, ops.Exp, ops.Sqrt})


@functools.cache
def _keeps_sign() -> dict[type[Op], int]:
    """Ops whose results are not negative where so many of their operands are not."""
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
