"""The largest values of an array by slice, along an axis whose slices have different magnitudes.

Boxes in pixels and class scores in one tensor, or channels of different units: an error of the small ones is not
measured by the large ones.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from onnxtfl.ir.data import Array

SPREAD = 10.0
"""The least ratio of the largest to the smallest peak of slices with different magnitudes."""
LEAST_ELEMENTS = 16
"""The fewest elements of a slice whose largest one shows its magnitude."""
FLOOR = 1e-3
"""The least peak of a slice, relative to the whole array: sums of large values have rounding errors of that size."""


@dataclass(frozen=True)
class Peaks:
    """The peaks of the slices along ``axis`` of an array of ``shape``."""

    axis: int
    shape: tuple[int, ...]
    peaks: Array

    def of_block(self, start: int, stop: int) -> Array:
        """The peaks of the elements ``start`` to ``stop``, in C order."""
        inner = math.prod(self.shape[self.axis + 1 :])
        return np.asarray(self.peaks[np.arange(start, stop) // inner % self.shape[self.axis]])


def slice_peaks(a: Array, peak: float) -> Peaks | None:
    """The peaks along the axis whose slices differ most in magnitude; None if there is no such axis.

    ``peak``: the largest finite ``|a|``.
    """
    best, found = SPREAD, None
    if not peak or a.dtype.kind != "f" or a.ndim < 2:
        return None
    for axis, size in enumerate(a.shape):
        if size < 2 or a.size // size < LEAST_ELEMENTS:
            continue
        others = tuple(k for k in range(a.ndim) if k != axis)
        peaks = np.maximum(_finite_peaks(a, others), FLOOR * peak)
        if (spread := peak / float(peaks.min())) >= best:
            best, found = spread, Peaks(axis, a.shape, peaks)
    return found


def _finite_peaks(a: Array, axes: tuple[int, ...]) -> Array:
    highest, lowest = a.max(axes), a.min(axes)
    peaks = np.maximum(np.abs(highest), np.abs(lowest)).astype(np.float64)
    if np.isfinite(peaks).all():
        return np.asarray(peaks)
    return np.asarray(np.abs(np.where(np.isfinite(a), a, 0)).max(axes).astype(np.float64))
