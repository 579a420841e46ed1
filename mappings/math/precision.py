"""Rounding to the values of a smaller type."""

from __future__ import annotations

from onnxtfl.build.operands import formula
from onnxtfl.ir import ops
from onnxtfl.ir.formula import Term
from onnxtfl.ir.types import DType


@formula(ops.ReducePrecision, "onnx")
def _by_casts(x: Term, *, dtype: DType, saturate: bool, rounding: str) -> Term:
    there = x.apply(ops.Convert, dtype=dtype, saturate=saturate, rounding=rounding)
    return there.to(DType.FLOAT32)
