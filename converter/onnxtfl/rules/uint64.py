"""uint64 arithmetic and moves, which TFLite does not have, on int64 values with the same bits."""

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
    """The results of `node`, which moves elements (or scatters with add or mul), computed on int64; None otherwise."""
    if node.results[0].dtype is not DType.UINT64 or node.attr("kind", "none") not in _SAME_ON_BITS:
        return None
    operands = [
        b(ops.BitcastConvert, v, dtype=DType.INT64) if v is not None and v.dtype is DType.UINT64 else v
        for v in node.operands
    ]
    return [b(ops.BitcastConvert, v, dtype=DType.UINT64) for v in b.many(node.op, *operands, **node.attributes)]


def signed(b: Builder, value: Value) -> Term:
    """`value`, a uint64 one as int64 with the same bits."""
    return Term(b, value).bits(DType.INT64) if value.dtype is DType.UINT64 else Term(b, value)


def is_uint64(node: Node) -> bool:
    """Whether an operand of `node` is uint64."""
    return any(v is not None and v.dtype is DType.UINT64 for v in node.operands)


def same_bits(b: Builder, node: Node) -> Value | None:
    """`node` computed on int64: sums, products and selections have the same bits; None without uint64 operands."""
    if not is_uint64(node):
        return None
    operands = [None if v is None else signed(b, v).value for v in node.operands]
    result = Term(b, b(node.op, *operands, **node.attributes))
    return (result.bits(DType.UINT64) if node.result.dtype is DType.UINT64 else result).value


def same_order(b: Builder, node: Node) -> Value | None:
    """`node` computed on int64 values minus 2**63, which have the same order; None without uint64 operands."""
    if not is_uint64(node):
        return None
    operands = [(signed(b, v) + SMALLEST_INT64).value for v in node.operands if v is not None]
    result = Term(b, b(node.op, *operands, **node.attributes))
    return ((result + SMALLEST_INT64).bits(DType.UINT64) if node.result.dtype is DType.UINT64 else result).value


def words(x: Term) -> tuple[Term, Term]:
    """The low and the high 32-bit words of 64-bit integers, as int32."""
    pair = x.bits(DType.INT32).value
    low, high = (x.b(ops.Gather, pair, np.asarray(i, np.int32), axis=pair.rank - 1) for i in (0, 1))
    return Term(x.b, low), Term(x.b, high)
