"""Sign analysis before run time: which tensors are never negative. Ops are named, so that op modules can import it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from onnxtfl.ir.dims import is_nonnegative
from onnxtfl.ir.graph import Node, Value
from onnxtfl.ir.shapes import known_dims

_MANY = 1 << 30
_SMALL = 1 << 16
"""The largest number of elements of a constant that is read."""
_POSITIVE = frozenset(
    {"Shape", "NonZero", "ArgMax", "ArgMin", "Relu", "Relu6", "Sigmoid", "Softmax", "Exp", "Sqrt"},
)
"""Ops whose results are never negative."""
_MOVING = ("Reshape", "Transpose", "Slice", "Gather", "BroadcastTo", "Split", "Tile", "MaxPool")
_ARITHMETIC = ("Add", "Mul", "Div", "FloorDiv", "Rem", "Concatenate", "Max", "Min", "Range")
_KEEPS_SIGN = dict.fromkeys(_MOVING, 1) | dict.fromkeys(_ARITHMETIC, _MANY)
"""Ops whose results are nonnegative if that many leading operands are."""


DEPTH = 8
"""The most producers in a chain that an analysis visits."""
MOST_VISITS = 500
"""The most values that one analysis visits."""
T = TypeVar("T")


class Search(Generic[T]):
    """An analysis of a value from those that it depends on: at most `DEPTH` producers in a chain, each value once at
    each depth, and at most `MOST_VISITS` in all. Further ones are `unknown`.
    """

    def __init__(self, unknown: T, analyse: Callable[[Search[T], Value, int], T]) -> None:
        self.unknown, self._analyse = unknown, analyse
        self._found: dict[tuple[int, int], T] = {}

    def of(self, value: Value, depth: int = DEPTH) -> T:
        """The result for `value`, from at most `depth` producers in a chain."""
        key = id(value), depth
        if key not in self._found:
            if len(self._found) == MOST_VISITS:
                return self.unknown
            self._found[key] = self.unknown
            self._found[key] = self._analyse(self, value, depth)
        return self._found[key]


def never_negative(value: Value) -> bool:
    """Whether all elements of `value` are known to be >= 0 (or NaN)."""
    return Search(False, _is_nonnegative).of(value)


def _is_nonnegative(search: Search[bool], value: Value, depth: int) -> bool:
    if value.is_quantized:
        return False
    if not value.dtype.is_signed:
        return value.dtype.is_integer
    if value.data is not None:
        return value.data.size <= _SMALL and not (value.numpy() < 0).any()
    known = known_dims(value)
    if known is not None and all(map(is_nonnegative, known)):
        return True
    return value.producer is not None and depth > 0 and _made_nonnegative(search, value, value.producer, depth - 1)


def _made_nonnegative(search: Search[bool], value: Value, node: Node, depth: int) -> bool:
    """Whether what `node` computes is >= 0; its operands are analysed to `depth`."""
    name = node.op.name
    if name in _POSITIVE or (name == "Abs" and value.dtype.is_float):
        return True
    if name == "Convert":
        return _fits_signed(node) and search.of(node.operand(0), depth)
    if name == "Clamp":
        return node.optional(1) is not None and search.of(node.operand(1), 0)
    if name == "Max":
        return any(search.of(v, depth) for v in node.operands if v is not None)
    if name in ("TopK", "Unique"):
        return value.index > 0 or search.of(node.operand(0), depth)
    if name == "FloorMod":
        return search.of(node.operand(1), depth)
    if name == "Mul" and node.operand(0) is node.operand(1):
        return value.dtype.is_float
    if name == "Reduce" and node.attr("kind") != "max":
        return search.of(node.operand(0), depth)
    count = _KEEPS_SIGN.get(name)
    return count is not None and all(search.of(v, depth) for v in node.operands[:count] if v is not None)


def _fits_signed(convert: Node) -> bool:
    """Whether `convert` makes no nonnegative integer negative; sizes in int64 fit into int32."""
    before, after = convert.operand(0).dtype, convert.result.dtype
    if not (before.is_integer and after.is_integer):
        return True
    return after.bits > before.bits if not before.is_signed else after.bits >= min(before.bits, 32)
