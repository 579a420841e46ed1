"""Which slices of a model output have different values, among their elements or over several runs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from onnxtfl.ir.data import Array

MOST_NAMED = 3
"""The most slices that are named."""


@dataclass
class Changes:
    """The lowest and highest values of the slices along some axes (axis 1 and the last one), over ``runs`` arrays."""

    runs: int = 0
    bounds: dict[int, tuple[Array, Array]] = field(default_factory=dict)

    def add(self, a: Any) -> None:
        """Add an array. An axis along which the arrays differ in size is omitted.

        Types that NumPy lacks are omitted, and integers of more than 16 bits, which are indices and counts: a constant
        one is no evidence.
        """
        if not isinstance(a, np.ndarray) or not a.size:
            return
        if a.dtype.kind != "f" and not (a.dtype.kind in "iub" and a.dtype.itemsize < 4):
            return
        found = {axis: _bounds(a, axis) for axis in {min(1, a.ndim - 1), a.ndim - 1} if a.ndim}
        if self.runs:
            same = [
                axis for axis in found if axis in self.bounds and self.bounds[axis][0].shape == found[axis][0].shape
            ]
            old = self.bounds
            found = {k: (np.minimum(old[k][0], found[k][0]), np.maximum(old[k][1], found[k][1])) for k in same}
        self.runs, self.bounds = self.runs + 1, found

    def constant(self) -> str:
        """Describe the slices with only one value in all runs; "" if none or all are such."""
        for axis, (low, high) in sorted(self.bounds.items()):
            indices = np.flatnonzero(low == high).tolist()
            if 0 < len(indices) < low.size and self.runs > 1:
                named = ", ".join(map(str, indices[:MOST_NAMED])) + ", ..." * (len(indices) > MOST_NAMED)
                return f"{len(indices)} of {low.size} channels ({named} of axis {axis})"
        return ""


def _bounds(a: Array, axis: int) -> tuple[Array, Array]:
    others = tuple(k for k in range(a.ndim) if k != axis)
    return np.asarray(a.min(others)), np.asarray(a.max(others))
