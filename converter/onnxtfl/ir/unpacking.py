"""Arithmetic on floats that unpacks the fields of bytes at run time."""

from __future__ import annotations

from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.formula import Term
from onnxtfl.ir.graph import Value
from onnxtfl.ir.packed import fields_per_byte
from onnxtfl.ir.reshape import reshape, stacked_along
from onnxtfl.ir.types import DType


def fields_of(rest: Term, bits: int) -> list[Term]:
    """The fields of `bits` bits in bytes, which are floats; the lowest field first."""
    fields = []
    for _ in range(8 // bits - 1):
        higher = (rest * 0.5**bits).apply(ops.Floor)
        fields.append(rest - higher * float(1 << bits))
        rest = higher
    return [*fields, rest]


def unpacked_rows(b: Builder, packed: Value, dtype: DType) -> Term:
    """Unpack bytes [..., n] at run time to float32 [..., n * fields]: the fields of each byte are adjacent."""
    fields = fields_of(Term(b, packed).to(DType.FLOAT32), dtype.bits)
    whole = stacked_along(b, [f.value for f in fields], packed.rank)
    shape = packed.shape
    return Term(b, reshape(b, whole, [*shape[:-1], shape[-1] * fields_per_byte(dtype)], packed))
