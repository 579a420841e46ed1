"""Matches integers from which a zero point is subtracted."""

from __future__ import annotations

from onnxtfl.ir import ops
from onnxtfl.ir.data import min_and_max
from onnxtfl.ir.graph import Value, constant
from onnxtfl.ir.matching import made_by
from onnxtfl.ir.types import DType


def shifted(value: Value) -> tuple[Value, Value | None] | None:
    """Return stored integers and zero point if `value` is their difference in int32 (folded if constant)."""
    if value.data is not None:
        low, high = min_and_max(value.data)
        return (constant(value.data.cast(DType.INT8)), None) if low >= -128 and high <= 127 else None
    minus = made_by(value, ops.Sub)
    stored = made_by(value if minus is None else minus.operand(0), ops.Convert)
    if stored is None:
        return None
    return stored.operand(0), None if minus is None else _unconverted(minus.operand(1))


def _unconverted(value: Value) -> Value:
    """Return the zero point before its conversion to int32."""
    node = made_by(value, ops.Convert, ops.Reshape) if value.dtype.bits > 8 else None
    return value if node is None else _unconverted(node.operand(0))
