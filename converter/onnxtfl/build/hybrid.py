"""TFLite's hybrid kernels (float activations, quantized weights): they quantize the activations at run time.

Lifting writes the quantized activations as float arithmetic: x rounded to the grid of its own range.
"""

from __future__ import annotations

from onnxtfl.ir.graph import Value
from onnxtfl.ir.types import DType


def is_hybrid(x: Value, weights: Value) -> bool:
    """Whether a kernel multiplies float activations by quantized weights."""
    return weights.is_quantized and not x.is_quantized and x.dtype is DType.FLOAT32
