"""TFLite's SOFTMAX of int16: two functions by tables, and one division for each row.

Source: LiteRT kernels/activations.cc (SoftmaxPrepare), kernels/internal/reference/softmax.h (SoftmaxInt16).
Test: tests/unit/test_quantized_tfl.py (test_int16_softmax, test_int16_softmax_over_an_open_axis).
"""

from __future__ import annotations

import math

import numpy as np

from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.data import Array
from onnxtfl.ir.dims import size_or
from onnxtfl.ir.formula import Term
from onnxtfl.ir.graph import Node, Value
from onnxtfl.ir.quantization import Quantization
from onnxtfl.ir.quantized import quantization_of
from onnxtfl.ir.types import DType
from onnxtfl.kernels.lookup_int16 import between_samples, real_of_int16, stored_int16
from onnxtfl.kernels.multipliers import multiply_by_factor

_RANGE = 65535
_UNIT = np.float64(2.0 / _RANGE * -32768), np.float64(2.0 / _RANGE * 32767)
"""The bounds of int16 in the kernel's steps for [-1, 1]."""
_LONGEST, _STEEPEST = 1 << 14, 2.0
"""Sums of more elements, and differences in larger steps, may overflow int32."""
_HIGHEST = 30
"""The exponent of the largest sum along a dynamic axis; the kernel's sums overflow beyond it."""


def int16_softmax(b: Builder, node: Node, beta: float) -> Value | None:
    """The kernel's result along the last axis; None if the tensor is not int16 or the axis is known to be too long.

    ::

        e = exp[max(x) - x];  s = sum(e), 2^k <= s < 2^(k + 1)
        y = (e * reciprocal[s / 2^k] + 2^(k - 1)) >> k
    """
    x, y, shape = quantization_of(node.operand(0)), quantization_of(node.result), node.operand(0).tensor_type.shape
    if x is None or y is None or {x.storage, y.storage} != {"int16"} or not shape or any(x.zero_points):
        return None
    size, last = shape[-1], [len(shape) - 1]
    if not 0 < x.scales[0] * beta < _STEEPEST or not 0 < size_or(size, 1) < _LONGEST:
        return None
    highest = max(15, math.floor(math.log2(size * 32768.0))) if isinstance(size, int) else _HIGHEST
    stored = Term(b, stored_int16(b, node.operand(0)))
    powers = _gathered(_exponentials(x, beta), stored.reduce("max", last) - stored)
    share = _quotient(powers, powers.reduce("sum", last), highest)
    return real_of_int16(b, share.clamp(0, 32767).to(DType.INT16).value, y)


def _quotient(powers: Term, total: Term, highest: int) -> Term:
    """`powers` over their sums, in 2^15ths; 2^14 <= `total` < 2^(`highest` + 1)."""
    exponents = np.arange(14, highest + 1)
    thresholds = (1 << exponents[1:]).astype(np.int32)
    reached = total.apply(ops.Compare, thresholds, comparison_direction="GE").to(DType.INT32)
    place = reached.reduce("sum", [total.value.rank - 1])
    more, less = np.maximum(16 - exponents, 0), np.maximum(exponents - 16, 0)
    sixteenths = total * _gathered(1 << more, place) + _gathered((1 << less) >> 1, place)
    mantissa = (sixteenths / _gathered(1 << less, place) - (_RANGE + 1)).clamp(0, _RANGE)
    product, divisor = powers * _gathered(_reciprocals(), mantissa), 1 << exponents
    return (product + _gathered(divisor >> 1, place)) / _gathered(divisor, place)


def _gathered(table: Array, index: Term) -> Term:
    """Gather entries of an int32 table, which is stored as int16 if its values fit."""
    stored = table.astype(np.int32 if np.any(table >> 15) else np.int16)
    return Term(index.b, index.b(ops.Gather, stored, index.value, axis=0)).to(DType.INT32)


def _exponentials(x: Quantization, beta: float) -> Array:
    """e^-d in 2^15ths, for each difference d of stored elements: [65536]."""
    table = between_samples(np.exp, np.float64(-10.0 / _RANGE * _RANGE), np.float64(0), *_UNIT)
    real = float(np.float32(x.scales[0]) * np.float32(beta)) / (10.0 / _RANGE)
    scaled = multiply_by_factor(-np.arange(_RANGE + 1, dtype=np.int64), real)
    return np.asarray(table[np.clip(scaled + 32767, -32768, 32767) + 32768])


def _reciprocals() -> Array:
    """1 / (1 + x) in 2^15ths, for x in 2^16ths: [65536]."""
    return between_samples(lambda x: 1.0 / (1.0 + x), np.float64(0), np.float64(1.0 / _RANGE * _RANGE), *_UNIT)
