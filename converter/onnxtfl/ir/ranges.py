"""Range analysis of integer tensors before run time: a bound of the magnitude (:mod:`onnxtfl.ir.signs`: the sign)."""

from __future__ import annotations

from onnxtfl.ir import ops
from onnxtfl.ir.graph import Node, Value
from onnxtfl.ir.signs import Search
from onnxtfl.ir.types import DType

EXACT = 1 << 24
"""float32 represents every integer up to this exactly."""


_Range = tuple[int, int]
"""The lowest and the highest element."""


def magnitude(value: Value) -> int | None:
    """An upper bound of the absolute values in an integer tensor; None if it is unknown."""
    found = Search(None, _range).of(value)
    return None if found is None else max(-found[0], found[1])


def _range(search: Search[_Range | None], value: Value, depth: int) -> _Range | None:
    if value.is_quantized:
        return None
    if value.data is not None and value.data.size < 1 << 20:
        stored = value.numpy()
        return (min(int(stored.min()), 0), max(int(stored.max()), 0)) if stored.size else (0, 0)
    own = _of_type(value.dtype)
    node = value.producer
    if own is not None or node is None or depth == 0:
        return own
    if node.op in (ops.TopK, ops.ArgMax, ops.ArgMin):
        return _positions(value, node)
    if node.op in _MOVES and node.operand(0).dtype.is_integer:
        return search.of(node.operand(0), depth - 1)
    if node.op in (ops.FloorMod, ops.Rem):
        return _either_sign(search.of(node.operand(1), depth - 1))
    if node.op is ops.Div and value.dtype.is_integer:
        return _either_sign(search.of(node.operand(0), depth - 1))
    if node.op not in (ops.Add, ops.Sub, ops.Select, ops.Concatenate):
        return None
    parts = node.operands[1:] if node.op is ops.Select else node.operands
    found = [search.of(v, depth - 1) for v in parts if v is not None]
    return _joined(node, [part for part in found if part is not None]) if None not in found else None


def _joined(node: Node, parts: list[_Range]) -> _Range:
    """Of a sum or difference, or of a tensor with elements of all operands."""
    low, high = zip(*parts, strict=True)
    if node.op is ops.Add:
        return sum(low), sum(high)
    if node.op is ops.Sub:
        return low[0] - high[1], high[0] - low[1]
    return min(low), max(high)


def _either_sign(found: _Range | None) -> _Range | None:
    if found is None:
        return None
    most = max(-found[0], found[1])
    return -most, most


_MOVES = frozenset(
    {ops.Convert, ops.Reshape, ops.Transpose, ops.Slice, ops.Pad, ops.BroadcastTo, ops.Split, ops.Gather}
)


def _positions(value: Value, node: Node) -> _Range | None:
    """The indices along an axis that `node` returns."""
    shape = node.operand(0).tensor_type.shape
    size = shape[node.attr("axis")] if shape is not None else None
    return (0, size) if isinstance(size, int) and (node.op is not ops.TopK or value.index == 1) else None


def _of_type(dtype: DType) -> _Range | None:
    if dtype is DType.BOOL:
        return 0, 1
    if not dtype.is_integer or dtype.bits > 16:
        return None
    most = 1 << (dtype.bits - dtype.is_signed)
    return (-most, most - 1) if dtype.is_signed else (0, most - 1)


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
