"""uint64, which TFLite's kernels do not have, on int64 values with the same bits."""

from __future__ import annotations

from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.formula import Term
from onnxtfl.ir.graph import Node, Value
from onnxtfl.ir.types import DType

SMALLEST_INT64 = -(1 << 63)


def on_signed(b: Builder, node: Node) -> list[Value] | None:
    """`node` computed on int64 operands; None without uint64 operands, and for means and scattered extremes.

    Moves, sums, products and equality need the same bits only; where the order of the elements matters, 2**63 is
    subtracted before and added after.
    """
    kind, direction = node.attr("kind"), node.attr("comparison_direction", "EQ")
    if not any(v is not None and v.dtype is DType.UINT64 for v in node.operands):
        return None
    if kind == "mean" or (kind in ("max", "min") and node.op is not ops.Reduce):
        return None
    ordered = node.op.integers == "order" or kind in ("max", "min") or direction not in ("EQ", "NE")
    shift = SMALLEST_INT64 if ordered else 0
    operands = [
        v if v is None or v.dtype is not DType.UINT64 else (Term(b, v).bits(DType.INT64) + shift).value
        for v in node.operands
    ]
    return [
        (Term(b, new) + shift).bits(DType.UINT64).value if old.dtype is DType.UINT64 else new
        for new, old in zip(b.many(node.op, *operands, **node.attributes), node.results, strict=True)
    ]


def split_words(x: Term) -> tuple[Term, Term]:
    """The low and the high 32-bit words of 64-bit integers, as int32."""
    pair = x.bits(DType.INT32)
    low, high = (pair.at(i, pair.rank - 1) for i in (0, 1))
    return low, high
