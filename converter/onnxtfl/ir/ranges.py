"""Range analysis of integer tensors before run time: a bound of the magnitude (:mod:`onnxtfl.ir.signs`: the sign)."""

from __future__ import annotations

from onnxtfl.ir import ops
from onnxtfl.ir.graph import Node, Value
from onnxtfl.ir.signs import Search
from onnxtfl.ir.types import DType

EXACT = 1 << 24
"""float32 represents every integer up to this exactly."""


def magnitude(value: Value) -> int | None:
    """An upper bound of the absolute values in an integer tensor; None if it is unknown."""
    return Search(None, _bound).of(value)


def _bound(search: Search[int | None], value: Value, depth: int) -> int | None:
    if value.is_quantized:
        return None
    if value.data is not None and value.data.size < 1 << 20:
        stored = value.numpy()
        return max(int(stored.max()), -int(stored.min())) if stored.size else 0
    own = _of_type(value.dtype)
    node = value.producer
    if own is not None or node is None or depth == 0:
        return own
    if node.op in (ops.TopK, ops.ArgMax, ops.ArgMin):
        return _positions(value, node)
    if node.op in _MOVES and node.operand(0).dtype.is_integer:
        return search.of(node.operand(0), depth - 1)
    if node.op in (ops.FloorMod, ops.Rem):
        return search.of(node.operand(1), depth - 1)
    if node.op is ops.Div and value.dtype.is_integer:
        return search.of(node.operand(0), depth - 1)
    if node.op in (ops.Add, ops.Sub, ops.Select, ops.Concatenate):
        parts = node.operands[1:] if node.op is ops.Select else node.operands
        bounds = [search.of(v, depth - 1) for v in parts if v is not None]
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
