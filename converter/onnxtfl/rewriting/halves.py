"""Moves int32 elements as floats, for kernels that move float32 but no integers of 32 bits or more.

::

    Transpose(x: int32)   ->   low = x - x / 65536 * 65536
                               Transpose(x / 65536 float32) int32 * 65536 + Transpose(low float32) int32

float32 represents all integers of 24 bits: elements known to be smaller are converted directly.
"""

from __future__ import annotations

from onnxtfl.ir.builder import Builder
from onnxtfl.ir.facts import EXACT, max_magnitude
from onnxtfl.ir.formula import Term
from onnxtfl.ir.graph import Node, Value
from onnxtfl.ir.types import DType
from onnxtfl.rewriting.target import Refusal

_HALF = 1 << 16


def moved_in_halves(builder: Builder, node: Node, refusal: Refusal) -> list[Value] | None:
    """Return the results of `node`, which moves int32 elements, computed on floats; None for other nodes."""
    moved = node.moved_operands
    if not moved or any(v.dtype is not DType.INT32 or v.is_quantized for v in moved) or node.regions:
        return None
    if DType.FLOAT32 not in refusal.allowed or (refusal.found and DType.INT32 not in refusal.found):
        return None
    if not node.is_pure:
        return None
    terms = {v: Term(builder, v) for v in moved}
    if all((bound := max_magnitude(v)) is not None and bound <= EXACT for v in moved):
        return [x.to(DType.INT32).value for x in _on_floats(builder, node, terms)]
    high = {v: x / _HALF for v, x in terms.items()}
    low = {v: x - high[v] * _HALF for v, x in terms.items()}
    both = zip(_on_floats(builder, node, high), _on_floats(builder, node, low), strict=True)
    return [(a.to(DType.INT32) * _HALF + b.to(DType.INT32)).value for a, b in both]


def _on_floats(builder: Builder, node: Node, terms: dict[Value, Term]) -> list[Term]:
    """Return the results of `node` with the converted `terms` as the operands that it moves."""
    assert node.op.moves is not None
    operands = list(node.operands)
    for i in range(*node.op.moves.indices(len(operands))):
        v = operands[i]
        operands[i] = None if v is None else terms[v].to(DType.FLOAT32).value
    made = builder.remade(node, *operands, **node.attributes)
    return [Term(builder, value) for value in made]
