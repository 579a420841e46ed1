"""What older opsets of ONNX lack, written with what they have: bitwise logic (18), scattering that joins (16 and 18).

The other gaps are closed by the families' own decompositions (Gelu before 20, LayerNormalization before 17, ...).
"""

from __future__ import annotations

import numpy as np

from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.data import Array
from onnxtfl.ir.dims import product
from onnxtfl.ir.graph import Node, Value
from onnxtfl.ir.types import DType
from onnxtfl.rules import Term, decompose, reshape, unsqueezed

MOST_PAIRS = 1 << 24
"""Numbers up to which every update is compared with every other."""


# --- bits -------------------------------------------------------------------------------------------------------------


@decompose(ops.And, "onnx")
@decompose(ops.Or, "onnx")
@decompose(ops.Xor, "onnx")
def _bitwise(b: Builder, node: Node) -> Value | None:
    """Bit by bit along a new axis in front, as 0 and 1: the product, the greater, or whether they differ."""
    dtype = node.result.dtype
    if not dtype.is_integer or dtype.bits > 32:
        return None
    rank = node.result.rank
    left, right = (_bits(b, v, rank) for v in node.operands if v is not None)
    either = left.max(right) if node.op is ops.Or else (left + right) % 2
    joined = left * right if node.op is ops.And else either
    return b(ops.Convert, _number(b, joined, dtype).value, dtype=dtype)


def _powers(count: int, rank: int) -> Array:
    return (1 << np.arange(count, dtype=np.int64)).reshape(-1, *[1] * rank)


def _bits(b: Builder, value: Value, rank: int) -> Term:
    """The bits, lowest first, along a new axis in front of `rank` axes: those of -1 are all ones."""
    full = reshape(b, value, (*[1] * (rank - value.rank), *value.shape), value)
    wide = Term(b, b(ops.Convert, unsqueezed(b, full, [0]), dtype=DType.INT64))
    return wide.apply(ops.FloorDiv, Term(b, b.value(_powers(value.dtype.bits, rank)))) % 2  # type: ignore[arg-type]


def _number(b: Builder, bits: Term, dtype: DType) -> Term:
    """The number that `bits` are; the highest one counts below zero where the type has a sign."""
    weights = _powers(dtype.bits, bits.value.rank - 1)
    if dtype.is_signed:
        weights[-1] = -weights[-1]
    weighted = bits.apply(ops.Mul, Term(b, b.value(weights)))  # type: ignore[arg-type]
    return Term(b, b(ops.Reduce, weighted.value, [0], kind="sum", keepdims=False))


# --- scattering -------------------------------------------------------------------------------------------------------


@decompose(ops.ScatterND, "onnx")
def _joined_first(b: Builder, node: Node) -> Value | None:
    """Each update joined with all that go to the same place and with what stands there: then order does not matter."""
    if node.operands[0] is None:
        return None
    x, indices, updates = node.operand(0), node.operand(1), node.operand(2)
    kind, depth = node.attr("kind"), indices.shape[-1]
    if kind == "none" or not isinstance(depth, int):
        return None
    count, inner = product(indices.shape[:-1]), product(x.shape[depth:])
    if isinstance(count, int) and isinstance(inner, int) and count * count * inner > MOST_PAIRS:
        return None
    rows = reshape(b, indices, (count, depth), indices)
    flat = reshape(b, updates, (count, inner), updates)
    alike = b(ops.Compare, unsqueezed(b, rows, [1]), unsqueezed(b, rows, [0]), comparison_direction="EQ")
    same = b(ops.Reduce, alike, [2], kind="all", keepdims=False)
    neutral = {"add": 0, "mul": 1}
    blank = b.scalar(neutral[kind], flat) if kind in neutral else unsqueezed(b, flat, [1])
    others = b(ops.Select, unsqueezed(b, same, [2]), unsqueezed(b, flat, [0]), blank)
    reduction = {"add": "sum", "mul": "prod"}.get(kind, kind)
    joined = reshape(b, b(ops.Reduce, others, [1], kind=reduction, keepdims=False), updates.shape, updates)
    join = {"add": ops.Add, "mul": ops.Mul, "max": ops.Max, "min": ops.Min}[kind]
    return b(ops.ScatterND, x, indices, b(join, b(ops.GatherND, x, indices), joined), kind="none")
