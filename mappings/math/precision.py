"""Rounding to the values of a smaller type."""

from __future__ import annotations

from onnxtfl.build.operands import formula
from onnxtfl.ir import ops
from onnxtfl.ir.formula import Term
from onnxtfl.ir.types import DType

_WITHOUT_CAST = (DType.FLOAT4E2M1, DType.FLOAT8E8M0)
"""Types of opset 23 and 24, for which ONNX Runtime has no Cast."""


@formula(ops.ReducePrecision, "onnx")
def _by_casts(x: Term, *, dtype: DType, saturate: bool, rounding: str) -> Term | None:
    if dtype in _WITHOUT_CAST:
        return None
    there = x.apply(ops.Convert, dtype=dtype, saturate=saturate, rounding=rounding)
    return there.to(DType.FLOAT32)
