"""Rows of two arrays as sets: if a row is selected in one run only, all that follow it are at other positions."""

from __future__ import annotations

import math

import numpy as np

from onnxtfl.ir.data import Array

CLOSE = 1e-3
"""The relative difference of elements in equal rows."""
_MOST = 1 << 24
"""The most comparisons of elements."""


def share_without_counterpart(a: Array, b: Array) -> float:
    """The share of the rows of `a` without an equal row in `b` (of the same shape), at any position, or the reverse if
    that is larger.

    Rows are along the last axis of arrays with at least 3 axes, else single elements. 1 for very large arrays.
    """
    width = a.shape[-1] if a.ndim > 2 else 1
    count = math.prod(a.shape) // max(width, 1)
    if a.shape != b.shape or not count or count * count * width > _MOST:
        return 1.0
    x, y = (array.reshape(count, width).astype(np.float64) for array in (a, b))
    with np.errstate(invalid="ignore"):
        near = CLOSE * np.maximum(np.abs(x), np.abs(x).max(initial=0.0) * 0.1)
        equal = np.stack([np.all(np.abs(y - row) <= limit, axis=1) for row, limit in zip(x, near, strict=True)])
    return float(max(np.mean(~equal.any(axis=axis)) for axis in (0, 1)))
