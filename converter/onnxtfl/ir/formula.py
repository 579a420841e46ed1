"""Formulas over neutral ops, written as formulas: ``(x * 0.5).exp() + 1`` makes Mul, Exp and Add."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.graph import Value
from onnxtfl.ir.op import Op
from onnxtfl.ir.types import DType

Number = int | float | bool


@dataclass(frozen=True, eq=False)
class Term:
    """A value that can be computed with. Plain numbers become constants of the value's element type."""

    b: Builder
    value: Value

    @property
    def dtype(self) -> DType:
        """The element type."""
        return self.value.dtype

    def apply(self, op: type[Op], *others: Term | Value | Number, **attributes: Any) -> Term:
        """`op` of this and `others`."""
        return Term(self.b, self.b(op, self.value, *(self._other(o) for o in others), **attributes))

    def _other(self, other: Term | Value | Number) -> Value:
        if isinstance(other, Term):
            return other.value
        return other if isinstance(other, Value) else self.b.scalar(other, self.value)

    def constant(self, number: Number) -> Term:
        """`number` in this element type."""
        return Term(self.b, self.b.scalar(number, self.value))

    def __add__(self, other: Term | Number) -> Term:
        return self.apply(ops.Add, other)

    def __radd__(self, other: Number) -> Term:
        return self.apply(ops.Add, other)

    def __sub__(self, other: Term | Number) -> Term:
        return self.apply(ops.Sub, other)

    def __rsub__(self, other: Number) -> Term:
        return self.constant(other).apply(ops.Sub, self)

    def __mul__(self, other: Term | Number) -> Term:
        return self.apply(ops.Mul, other)

    def __rmul__(self, other: Number) -> Term:
        return self.apply(ops.Mul, other)

    def __truediv__(self, other: Term | Number) -> Term:
        return self.apply(ops.Div, other)

    def __rtruediv__(self, other: Number) -> Term:
        return self.constant(other).apply(ops.Div, self)

    def __mod__(self, other: Term | Number) -> Term:
        """The remainder with the divisor's sign."""
        return self.apply(ops.FloorMod, other)

    def __neg__(self) -> Term:
        return self.apply(ops.Neg)

    def __xor__(self, other: Term | Number) -> Term:
        return self.apply(ops.Xor, other)

    def __and__(self, other: Term | Number) -> Term:
        return self.apply(ops.And, other)

    def __or__(self, other: Term | Number) -> Term:
        return self.apply(ops.Or, other)

    def __lt__(self, other: Term | Number) -> Term:
        return self.compared("LT", other)

    def __le__(self, other: Term | Number) -> Term:
        return self.compared("LE", other)

    def __gt__(self, other: Term | Number) -> Term:
        return self.compared("GT", other)

    def __ge__(self, other: Term | Number) -> Term:
        return self.compared("GE", other)

    def compared(self, direction: str, other: Term | Number) -> Term:
        """The bools of a comparison."""
        return self.apply(ops.Compare, other, comparison_direction=direction)

    def equals(self, other: Term | Number) -> Term:
        """Where both are the same."""
        return self.compared("EQ", other)

    def differs(self, other: Term | Number) -> Term:
        """Where they are not the same."""
        return self.compared("NE", other)

    def choose(self, on_true: Term, on_false: Term | Number) -> Term:
        """`on_true` where this (of bools) holds, else `on_false`."""
        other = on_false if isinstance(on_false, Term) else on_true.constant(on_false)
        return self.apply(ops.Select, on_true, other)

    def max(self, other: Term | Number) -> Term:
        """The greater."""
        return self.apply(ops.Max, other)

    def min(self, other: Term | Number) -> Term:
        """The smaller."""
        return self.apply(ops.Min, other)

    def abs(self) -> Term:
        """The absolute value."""
        return self.apply(ops.Abs)

    def exp(self) -> Term:
        """e to this."""
        return self.apply(ops.Exp)

    def log(self) -> Term:
        """The natural logarithm."""
        return self.apply(ops.Log)

    def sqrt(self) -> Term:
        """The square root."""
        return self.apply(ops.Sqrt)

    def floor(self) -> Term:
        """Rounded down."""
        return self.apply(ops.Floor)

    def sign(self) -> Term:
        """-1, 0 or 1."""
        return self.apply(ops.Sign)

    def to(self, dtype: DType) -> Term:
        """In another element type."""
        return self if dtype is self.dtype else self.apply(ops.Convert, dtype=dtype)

    def bits(self, dtype: DType) -> Term:
        """The same bits read as another element type."""
        return self if dtype is self.dtype else self.apply(ops.BitcastConvert, dtype=dtype)
