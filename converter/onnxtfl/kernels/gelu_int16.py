"""TFLite's GELU of int16: the samples between which the kernel interpolates.

Source: LiteRT kernels/internal/reference/gelu.h (GeluTransform, GeluTransformApproximate).
Test: tests/unit/test_quantized_tfl.py (test_int16_gelu).
"""

from __future__ import annotations

import math

import numpy as np

from onnxtfl.ir.data import Array
from onnxtfl.kernels.lookup_int16 import Table, interpolated


def gelu_table(of_tanh: bool) -> Table:
    """The results for every stored int16; `of_tanh`: with the option `approximate`."""
    return interpolated(_gelu_of_tanh if of_tanh else _gelu_of_erfc)


def _gelu_of_tanh(x: Array) -> Array:
    """Each step in float32, as the kernel computes it."""
    factor, cubic, half, one = np.asarray([math.sqrt(2 / math.pi), 0.044715, 0.5, 1], np.float32)
    return np.asarray(half * x * (one + np.tanh(factor * (x + cubic * x * x * x))))


def _gelu_of_erfc(x: Array) -> Array:
    """Each step in float32, as the kernel computes it."""
    scaled = x * np.float32(-math.sqrt(0.5))
    erfc = np.asarray([math.erfc(place) for place in scaled.reshape(-1).tolist()], np.float32).reshape(x.shape)
    return np.asarray(np.float32(0.5) * x * erfc)
