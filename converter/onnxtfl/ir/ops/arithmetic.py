"""Binary arithmetic under NumPy broadcasting, and Clamp."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from onnxtfl.ir import numeric
from onnxtfl.ir.data import Array
from onnxtfl.ir.graph import Node
from onnxtfl.ir.op import FLOATS, NUMERIC, Elementwise, Operand
from onnxtfl.ir.shapes import broadcast_shapes, same_type
from onnxtfl.ir.types import DType, TensorType, Type

_ARITHMETIC = NUMERIC | {DType.COMPLEX64, DType.COMPLEX128}


def broadcast_type(node: Node, first: int = 0) -> TensorType:
    """The type of a node whose operands from `first` on have one element type; all of them broadcast.

    TypeError where element types differ, ValueError where shapes do not broadcast.
    """
    types = [v.tensor_type for v in node.operands if v is not None]
    dtypes = {t.dtype for t in types[first:]}
    if len(dtypes) > 1:
        raise TypeError(f"element types differ: {', '.join(sorted(d.value for d in dtypes))}")
    return same_type(types[first], broadcast_shapes(*(t.shape for t in types)))


class Binary(Elementwise, register=False):
    """Two operands of one element type, which broadcast; `function` computes the result, integers wrap."""

    operands = (Operand("lhs", NUMERIC), Operand("rhs", NUMERIC))
    core = True
    function: ClassVar[Callable[..., Any]]

    @classmethod
    def infer(cls, node: Node) -> Sequence[Type]:
        return [broadcast_type(node)]

    @classmethod
    def evaluate(cls, attributes: Mapping[str, Any], *operands: Array | None) -> Array:
        a, b = operands
        assert a is not None and b is not None
        return numeric.computed(cls.function, a, b)


class Add(Binary):
    """output = lhs + rhs. Source: neutral-ops 3.3."""

    operands = (Operand("lhs", _ARITHMETIC), Operand("rhs", _ARITHMETIC))
    function = np.add
    follows_values = True


class Sub(Binary):
    """output = lhs - rhs. Source: neutral-ops 3.130."""

    operands = (Operand("lhs", _ARITHMETIC), Operand("rhs", _ARITHMETIC))
    function = np.subtract
    follows_values = True


class Mul(Binary):
    """output = lhs * rhs. Source: ONNX Mul (the document leaves it out)."""

    operands = (Operand("lhs", _ARITHMETIC), Operand("rhs", _ARITHMETIC))
    function = np.multiply
    follows_values = True


class Div(Binary):
    """output = lhs / rhs; integers are rounded toward zero. Source: neutral-ops 3.36."""

    function = numeric.truncating_divide
    follows_values = True


class FloorDiv(Binary):
    """The quotient rounded down. Source: TFLite FLOOR_DIV (added)."""

    function = numeric.floor_divide
    follows_values = True


class Rem(Binary):
    """The remainder with the sign of the dividend (C's fmod and %). Source: neutral-ops 3.97."""

    function = np.fmod
    follows_values = True

    @classmethod
    def evaluate(cls, attributes: Mapping[str, Any], *operands: Array | None) -> Array:
        a, b = operands
        assert a is not None and b is not None
        return np.mod(a, b) if a.dtype == object else numeric.computed(np.fmod, a, b)


class FloorMod(Binary):
    """The remainder with the sign of the divisor (Python's %). Source: TFLite FLOOR_MOD, ONNX Mod (added)."""

    function = np.mod
    follows_values = True


class Pow(Binary):
    """lhs to the rhs, in the element type of lhs. The exponents may be of another type. Source: neutral-ops 3.89."""

    function = numeric.power
    follows_values = True

    @classmethod
    def infer(cls, node: Node) -> Sequence[Type]:
        a, b = node.operand(0).tensor_type, node.operand(1).tensor_type
        return [same_type(a, broadcast_shapes(a.shape, b.shape))]


class Max(Binary):
    """The greater; NaN where either is. Source: neutral-ops 3.76."""

    function = np.maximum
    follows_values = True


class Min(Binary):
    """The smaller; NaN where either is. Source: neutral-ops 3.79."""

    function = np.minimum
    follows_values = True


class Atan2(Binary):
    """The angle of the point (rhs, lhs), in (-pi, pi]. Source: neutral-ops 3.10."""

    operands = (Operand("lhs", FLOATS), Operand("rhs", FLOATS))
    function = np.arctan2


class SquaredDifference(Binary):
    """(lhs - rhs) squared. Source: TFLite SQUARED_DIFFERENCE (added); into the core: Sub and Mul."""

    core = False

    @staticmethod
    def function(a: Array, b: Array) -> Array:
        return np.asarray((a - b) * (a - b))


class Clamp(Elementwise):
    """min(max(input, min), max); either bound may be absent, and broadcasts.

    Source: neutral-ops 3.23, with the operands in ONNX Clip's order.
    """

    operands = (
        Operand("input", NUMERIC),
        Operand("min", NUMERIC, optional=True),
        Operand("max", NUMERIC, optional=True),
    )
    core = True
    follows_values = True

    @classmethod
    def infer(cls, node: Node) -> Sequence[Type]:
        return [broadcast_type(node)]

    @classmethod
    def evaluate(cls, attributes: Mapping[str, Any], *operands: Array | None) -> Array:
        x, low, high = (*operands, None, None)[:3]
        assert x is not None
        result = x if low is None else numeric.computed(np.maximum, x, low)
        return result if high is None else numeric.computed(np.minimum, result, high)
