"""64-bit unsigned integers, for which TFLite has no arithmetic: computed, or moved, as signed ones of the same bits."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.formula import Term
from onnxtfl.ir.graph import Node, Value
from onnxtfl.ir.types import DType

SMALLEST_INT64 = -(1 << 63)
_SAME_ON_BITS = ("none", "add", "mul")


def moved_as_signed(b: Builder, node: Node) -> Sequence[Value] | None:
    """`node`, which moves elements (or adds and multiplies them where it scatters), on signed operands."""
    if node.results[0].dtype is not DType.UINT64 or node.attr("kind", "none") not in _SAME_ON_BITS:
        return None
    operands = [
        b(ops.BitcastConvert, v, dtype=DType.INT64) if v is not None and v.dtype is DType.UINT64 else v
        for v in node.operands
    ]
    return [b(ops.BitcastConvert, v, dtype=DType.UINT64) for v in b.many(node.op, *operands, **node.attributes)]


def signed(b: Builder, value: Value) -> Term:
    """`value`, of uint64 as int64 of the same bits."""
    return Term(b, value).bits(DType.INT64) if value.dtype is DType.UINT64 else Term(b, value)


def is_uint64(node: Node) -> bool:
    """Whether an operand is of uint64."""
    return any(v is not None and v.dtype is DType.UINT64 for v in node.operands)


def same_bits(b: Builder, node: Node) -> Value | None:
    """`node` on signed operands: sums, products and choices have the same bits in both."""
    if not is_uint64(node):
        return None
    operands = [None if v is None else signed(b, v).value for v in node.operands]
    result = Term(b, b(node.op, *operands, **node.attributes))
    return (result.bits(DType.UINT64) if node.result.dtype is DType.UINT64 else result).value


def same_order(b: Builder, node: Node) -> Value | None:
    """`node` on signed operands, shifted down by half of the range: then they are in the same order."""
    if not is_uint64(node):
        return None
    operands = [(signed(b, v) + SMALLEST_INT64).value for v in node.operands if v is not None]
    result = Term(b, b(node.op, *operands, **node.attributes))
    return ((result + SMALLEST_INT64).bits(DType.UINT64) if node.result.dtype is DType.UINT64 else result).value


def words(x: Term) -> tuple[Term, Term]:
    """The low and the high halves of 64-bit integers, as int32."""
    pair = x.bits(DType.INT32).value
    low, high = (x.b(ops.Gather, pair, np.asarray(i, np.int32), axis=pair.rank - 1) for i in (0, 1))
    return Term(x.b, low), Term(x.b, high)
