"""Formulas that convert between values and bits of small types."""

from __future__ import annotations

import numpy as np

from onnxtfl.ir import ops
from onnxtfl.ir.formula import Term
from onnxtfl.ir.small_types import FORMATS, shift_right, wrap_to
from onnxtfl.ir.types import DType


def decoded(bits: Term, dtype: DType) -> Term:
    """Return the values with these `bits` (of `bits_type`)."""
    if dtype is DType.BFLOAT16:
        return (bits.bits(DType.INT16).to(DType.INT32) * (1 << 16)).bits(DType.FLOAT32)
    if dtype.is_integer:
        return wrap_to(bits, dtype)
    values = np.arange(1 << dtype.bits, dtype=np.uint8).view(dtype.numpy).astype(np.float32)
    return Term(bits.b, bits.b(ops.Gather, values, bits.to(DType.INT32).value, axis=0))


def encoded(x: Term, dtype: DType) -> Term:
    """Return the bits of the values `x` of `dtype`, as `bits_type`."""
    if dtype.is_integer:
        return (x.to(DType.INT32) % (1 << dtype.bits)).to(DType.UINT8)
    bits = x.bits(DType.INT32)
    if dtype is DType.BFLOAT16:
        nan = (bits < 0).choose(bits.constant(-0x40), 0x7FC0)
        return x.is_nan().choose(nan, shift_right(bits, 16)).to(DType.INT16).bits(DType.UINT16)
    positive = x.abs().bits(DType.INT32)
    if dtype is DType.FLOAT8E8M0:
        return shift_right(positive, 23).to(DType.UINT8)
    form, sign = FORMATS[dtype], 1 << dtype.bits - 1
    normal = shift_right(positive, 23 - form.fraction) - ((126 + form.least) << form.fraction)
    normal = normal if form.infinity is None else normal.min(form.infinity)
    small = (x.abs().min(2.0**form.least) / form.step).to(DType.INT32)
    code = (x.abs() < 2.0**form.least).choose(small, normal)
    if form.nan is not None:
        code = x.is_nan().choose(code.constant(form.nan & 0x7F), code)
    code = (bits < 0).choose(code + sign, code)
    if not form.negative_zero:
        code = x.is_nan().choose(code.constant(0x80), code)
    return code.to(DType.UINT8)
