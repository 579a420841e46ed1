"""Clamp."""

from __future__ import annotations

import numpy as np

from onnxtfl.ir import intervals
from onnxtfl.ir.data import Array
from onnxtfl.ir.op import NUMERIC, Elementwise, Operand


class Clamp(Elementwise):
    """min(max(input, min), max); either bound may be absent, and broadcasts.

    Source: neutral-ops 3.23, with the operands in ONNX Clip's order.
    """

    operands = (
        Operand("input", NUMERIC),
        Operand("min", NUMERIC, optional=True, like="input"),
        Operand("max", NUMERIC, optional=True, like="input"),
    )
    clamps = (None, None)
    carries = slice(0, 1)
    interval = intervals.clamped
    core = True
    propagates = True
    widens = True

    @staticmethod
    def compute(x: Array, low: Array | None, high: Array | None) -> Array:
        result = x if low is None else np.maximum(x, low)
        return result if high is None else np.minimum(result, high)
