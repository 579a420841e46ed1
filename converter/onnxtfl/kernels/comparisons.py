"""TFLite's comparisons (EQUAL, LESS and others) of integers with scales: real values in units of 1/256.

Source: LiteRT kernels/comparisons.cc, kernels/internal/reference/comparisons.h (ComparisonWithScaling).
Test: tests/unit/test_kernels_of_scales.py (test_comparisons_are_in_units_of_1_256).
"""

from __future__ import annotations

import numpy as np

from onnxtfl.errors import UnsupportedError
from onnxtfl.ir.data import Array
from onnxtfl.ir.graph import Value
from onnxtfl.ir.quantization import limits
from onnxtfl.ir.quantized import quantization_of
from onnxtfl.kernels.multipliers import multiply_by_factor

_UNITS = 256


def in_units_of_1_256(value: Value) -> Array:
    """Return the values of all stored integers in units of 1/256, rounded as in the kernel: int32 [256] or [65536].

    Raises UnsupportedError for a scale that it has no multiplier for.
    """
    quantization = quantization_of(value)
    scale = quantization.scales[0] if quantization is not None and quantization.per_tensor else 0.0
    if quantization is None or not 0 < scale < 1:
        message = f"TFLite's kernel compares integers with one scale between 0 and 1; this is {scale:g}"
        raise UnsupportedError(message, type_=value.type, code="E-QUANT-001")
    low, high = limits(quantization.dtype)
    stored = np.arange(int(low), int(high) + 1, dtype=np.int64)
    return multiply_by_factor((stored - quantization.zero_points[0]) * _UNITS, float(scale)).astype(np.int32)
