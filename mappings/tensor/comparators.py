"""The order that the comparator of a STABLEHLO_SORT defines: sort keys, or the places of the sorted elements.

A comparator is a lifted graph of scalars with the inputs x0, y0, x1, y1, ..., one pair for each sorted operand; it
returns whether the x precede the y.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from onnxtfl.dataclass import dataclass
from onnxtfl.errors import UnsupportedError
from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.dims import known_sizes
from onnxtfl.ir.formula import Term
from onnxtfl.ir.graph import Graph, Node, Value, constant
from onnxtfl.ir.inlining import applied, is_elementwise, shown_ops
from onnxtfl.ir.op import Op
from onnxtfl.ir.reshape import broadcast, with_unit_axis
from onnxtfl.ir.types import DType


@dataclass(frozen=True)
class Key:
    """Values that are compared: `value` of x with `other`, the same function of y. `nan_last`: NaN as the largest."""

    value: Value
    other: Value
    descending: bool
    nan_last: bool = False


def sort_keys(body: Graph) -> list[Key] | None:
    """The keys, the most significant first, of a comparator that compares functions of x and y; None for others."""
    return _keys(body.outputs[0], body)


def _keys(value: Value, body: Graph) -> list[Key] | None:
    """Match less(x, y), and less(x, y) | (equal(x, y) & further keys)."""
    key = _single_key(value, body)
    if key is not None:
        return [key]
    for first, second in _both_orders(_operands_of(value, ops.Or)):
        key = _single_key(first, body)
        for equal, rest in _both_orders(_operands_of(second, ops.And)):
            if key is not None and _is_equality(equal, key) and (further := _keys(rest, body)) is not None:
                return [key, *further]
    return None


def _both_orders(pair: Sequence[Value]) -> list[tuple[Value, Value]]:
    """A pair and its reverse; an empty list for no operands."""
    return [(pair[0], pair[1]), (pair[1], pair[0])] if pair else []


def _operands_of(value: Value, op: type[Op]) -> list[Value]:
    """The two operands of the `op` that computes `value`; none if another does."""
    node = value.producer
    return [node.operand(0), node.operand(1)] if node is not None and node.op is op else []


def _single_key(value: Value, body: Graph) -> Key | None:
    """Match x < y, y > x and the like, and x < y | (isnan(y) & !isnan(x))."""
    sides = _less(value)
    operands = _operands_of(value, ops.Or)
    if sides is None and operands and (found := _less(operands[0])) is not None:
        sides = found if _is_nan_order(operands[1], *found) else None
    if sides is None:
        return None
    for descending, (a, b) in enumerate((sides, sides[::-1])):
        if _same(a, b, body.inputs):
            return Key(a, b, bool(descending), bool(operands))
    return None


def _less(value: Value) -> tuple[Value, Value] | None:
    """The smaller and the greater operand of a strict comparison."""
    node = value.producer
    if node is None or node.op is not ops.Compare or node.attr("comparison_direction") not in ("LT", "GT"):
        return None
    sides = node.operand(0), node.operand(1)
    return sides if node.attr("comparison_direction") == "LT" else sides[::-1]


def _is_nan_order(value: Value, small: Value, large: Value) -> bool:
    """Whether `value` is isnan(large) & !isnan(small)."""
    parts = _operands_of(value, ops.And)
    negated = parts[1].producer if parts else None
    is_not = negated is not None and negated.op is ops.Not
    return is_not and negated is not None and _is_nan(parts[0], large) and _is_nan(negated.operand(0), small)


def _is_nan(value: Value, x: Value) -> bool:
    return _is_comparison(value, "NE", x, x)


def _is_comparison(value: Value, direction: str, a: Value, b: Value) -> bool:
    node = value.producer
    if node is None or node.op is not ops.Compare or node.attr("comparison_direction") != direction:
        return False
    return any(_same(x, a) and _same(y, b) for x, y in _both_orders((node.operand(0), node.operand(1))))


def _is_equality(value: Value, key: Key) -> bool:
    """Whether `value` is true where the key of x and y is equal."""
    if not key.nan_last:
        return _is_comparison(value, "EQ", key.value, key.other)
    parts = _operands_of(value, ops.Or)
    nans = _operands_of(parts[1], ops.And) if parts else []
    both = any(_is_nan(a, key.value) and _is_nan(b, key.other) for a, b in _both_orders(nans))
    return both and _is_comparison(parts[0], "EQ", key.value, key.other)


def _same(a: Value, b: Value, pairs: Sequence[Value] = ()) -> bool:
    """Whether `a` and `b` are computed by the same ops; with `pairs`: from x and y, inputs in turn."""
    if a in pairs or b in pairs:
        found = pairs.index(a) if a in pairs else -1
        return found >= 0 and found % 2 == 0 and b is pairs[found + 1]
    if a is b:
        return a.is_constant or not pairs
    if a.is_constant and b.is_constant:
        return a.type == b.type and bool(np.array_equal(a.numpy(), b.numpy(), equal_nan=a.dtype.is_float))
    one, two = a.producer, b.producer
    return one is not None and two is not None and a.index == b.index and _alike(one, two, pairs)


def _alike(one: Node, two: Node, pairs: Sequence[Value]) -> bool:
    """Whether two nodes are the same op of values that are computed by the same ops."""
    if one.op is not two.op or one.attributes != two.attributes or len(one.operands) != len(two.operands):
        return False
    each = zip(one.operands, two.operands, strict=True)
    return all(a is b if a is None or b is None else _same(a, b, pairs) for a, b in each)


# --- the order of tensors --------------------------------------------------------------------------------------------

_MOST_COMPARISONS = 1 << 24
"""The most pairs of elements that a comparator without keys compares."""


def sorted_order(b: Builder, values: Sequence[Value], body: Graph, axis: int) -> Value:
    """The positions along `axis` of the sorted elements; elements that are not ordered keep their order."""
    if not is_elementwise(body):
        raise UnsupportedError(f"a comparator that is not elementwise: {shown_ops(body)}", code="E-OP-005")
    keys = sort_keys(body)
    if keys is None:
        return _by_comparing(b, values, body, axis)
    inputs = [v for value in values for v in (value, value)]
    columns = [column for key in keys for column in _columns(b, key, body, inputs)]
    order: Value | None = None
    for column, descending in reversed(columns):
        whole = broadcast(b, column.value, values[0].shape, values[0])
        whole = whole if order is None else b(ops.GatherElements, whole, order, axis=axis)
        count = b(ops.Shape, whole, axes=(axis,))
        _, places = b.many(ops.TopK, whole, count, axis=axis, largest=descending, sorted=True)
        order = places if order is None else b(ops.GatherElements, order, places, axis=axis)
    assert order is not None
    return order


def _columns(b: Builder, key: Key, body: Graph, inputs: Sequence[Value]) -> list[tuple[Term, bool]]:
    """The key as tensors that TopK sorts, the most significant first: whether it is NaN, and the other values."""
    (value,) = applied(b, body, inputs, [key.value])
    found = _sortable(Term(b, value))
    if not key.nan_last:
        return [(found, key.descending)]
    nan = found.differs(found)
    return [(nan.to(DType.INT32), key.descending), (nan.choose(found.constant(0), found), key.descending)]


def _sortable(x: Term) -> Term:
    """`x` in a type that ONNX Runtime sorts, in the same order."""
    if x.dtype is DType.UINT64:
        return x.bits(DType.INT64) + (-1 << 63)
    if x.dtype.is_float:
        return x.to(DType.FLOAT32) if x.dtype.bits < 32 else x
    if x.dtype is DType.BOOL or x.dtype.bits < 32:
        return x.to(DType.INT32)
    return x.to(DType.INT64) if x.dtype is DType.UINT32 else x


def _by_comparing(b: Builder, values: Sequence[Value], body: Graph, axis: int) -> Value:
    """The order from comparisons of all pairs: an element's place is the number of those that precede it.

    ::

        precedes[i, j] = less(x[i], x[j]) | (i < j & !less(x[j], x[i]))
    """
    shape = values[0].tensor_type.shape or ()
    known = known_sizes(shape)
    size = known[axis] if len(known) == len(shape) else 0
    if len(known) != len(shape) or np.prod(known) * size > _MOST_COMPARISONS:
        raise UnsupportedError(f"a sort of {list(shape)} by a comparator of {shown_ops(body)}", code="E-OP-005")
    first = [with_unit_axis(b, v, axis + 1) for v in values]
    second = [with_unit_axis(b, v, axis) for v in values]
    (less,) = applied(b, body, [v for pair in zip(first, second, strict=True) for v in pair])
    less = broadcast(b, less, (*known[: axis + 1], size, *known[axis + 1 :]))
    order = list(range(len(shape) + 1))
    order[axis : axis + 2] = [axis + 1, axis]
    greater = Term(b, b(ops.Transpose, less, permutation=tuple(order)))
    above = np.triu(np.ones((size, size), bool), 1).reshape(size, size, *[1] * (len(shape) - axis - 1))
    precedes = Term(b, less) | (Term(b, constant(above)) & greater.apply(ops.Not))
    places = precedes.to(DType.INT32).reduce("sum", [axis], keepdims=False)
    return b.many(ops.TopK, places.value, [size], axis=axis, largest=False, sorted=True)[1]
