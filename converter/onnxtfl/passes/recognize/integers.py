"""Integers that TFLite computes in a narrower type, because its kernels have no other.

::

    Convert(Div(Convert(x) int32, c) int32) int64    ->    Div(x, c) int64        where the numbers fit into int32
"""

from __future__ import annotations

from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.graph import Node, Value, constant
from onnxtfl.ir.matching import made_by, single_use
from onnxtfl.ir.ranges import fits_int32
from onnxtfl.ir.types import DType
from onnxtfl.rewriting.patterns import Patterns

INTEGERS = Patterns()


@INTEGERS.on(ops.Convert)
def wide_quotient(b: Builder, node: Node) -> Value | None:
    """A quotient of int64 in int32."""
    inner = made_by(node.operand(0), ops.Div)
    if inner is None or node.attr("dtype") is not DType.INT64 or inner.result.dtype is not DType.INT32:
        return None
    if not single_use(inner.result, b.graph):
        return None
    operands = [_wide(v) for v in inner.operands]
    found = [v for v in operands if v is not None]
    return b(ops.Div, *found) if len(found) == 2 and not all(v.is_constant for v in found) else None


def _wide(value: Value | None) -> Value | None:
    """The int64 tensor that `value` was made from, or would be as a constant."""
    if value is not None and value.data is not None:
        return constant(value.data.cast(DType.INT64))
    narrowed = made_by(value, ops.Convert)
    source = narrowed.operand(0) if narrowed is not None else None
    return source if source is not None and source.dtype is DType.INT64 and fits_int32(source) else None
