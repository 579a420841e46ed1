"""Reductions by elementwise ops on halves, for targets without the reduction kernel."""

from __future__ import annotations

from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.computations import joining
from onnxtfl.ir.dims import at_most
from onnxtfl.ir.graph import Node, Value
from onnxtfl.ir.op import Op
from onnxtfl.ir.ops.slicing import slice_axes
from onnxtfl.ir.reshape import reshape
from onnxtfl.ir.types import DType

_KINDS = ("sum", "prod", "max", "min")
_LONGEST = 1 << 12
"""The longest axis that is reduced by halving."""


def by_halving(b: Builder, node: Node) -> Value | None:
    """Return x[: n / 2] op x[n / 2 : n] along each axis, repeated to one element; an odd element is added last.

    For int32, whose order does not matter, and for products.
    """
    x, axes, kind = node.operand(0), ops.reduced_axes(node), node.attr("kind")
    if not axes or kind not in _KINDS or not (x.dtype is DType.INT32 or (kind == "prod" and x.dtype.is_float)):
        return None
    if x.is_quantized or any(not at_most(x.shape[a], _LONGEST) or x.shape[a] == 0 for a in axes):
        return None
    for axis in axes:
        x = _halved(b, x, axis, joining(kind))
    return x if node.attr("keepdims") else reshape(b, x, node.result.shape, x)


def _halved(b: Builder, x: Value, axis: int, op: type[Op]) -> Value:
    """Reduce `axis` of `x` to one element."""
    while (size := x.size(axis)) > 1:
        half = size // 2
        made = b(op, *(slice_axes(b, x, {axis: part}) for part in (slice(0, half), slice(half, 2 * half))))
        if size % 2:
            last = slice_axes(b, x, {axis: slice(size - 1, size)})
            made = b(op, made, last) if half == 1 else b(ops.Concatenate, made, last, axis=axis)
        x = made
    return x
