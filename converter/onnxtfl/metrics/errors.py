"""The errors of one array against another, measured in blocks: arrays may be hundreds of megabytes, and a copy in
float64 is twice that.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from onnxtfl.ir.blocks import BLOCK, in_blocks
from onnxtfl.ir.data import Array
from onnxtfl.metrics.noise import Noise, floor
from onnxtfl.metrics.slices import Peaks

TINY = float(np.finfo(np.float32).tiny)
_SMALL = 1e-3
"""Smaller elements, relative to the largest one, have no relative error of their own."""
_ROUNDED = 1e-3
"""The tolerance for a difference of one step, in steps."""


@dataclass(frozen=True)
class Allowed:
    """The allowed error of an element: ``rtol`` times it plus ``least``, or ``step``, or the noise.

    ``atol``: where ``peaks`` are known, this part of the peak of the element's slice, and at least ``least``.
    """

    rtol: float
    least: float
    step: float | None
    noise: Noise | None
    atol: float = 0.0
    peaks: Peaks | None = None

    def limit(self, first: int, size: Array) -> Array:
        """The allowed errors of a block of elements with absolute values ``size``, which begins at ``first``."""
        if self.peaks is None:
            return np.asarray(self.rtol * size + self.least)
        slices = self.peaks.of_block(first, first + size.size)
        return np.asarray(self.rtol * size + np.maximum(self.atol * slices, self.least))


@dataclass
class Errors:
    """Of ``count`` elements, ``bad`` differ by more than the allowed error; the one at ``worst`` (flat) has the largest
    error. ``within`` differ by at most a step, ``excused`` by at most a step or the allowed error.
    """

    count: int
    largest: float = 0.0
    relative: float = 0.0
    bad: int = 0
    worst: int = 0
    within: int = 0
    excused: int = 0
    _excess: float = 0.0


def largest_finite(a: Array) -> float:
    """Return the largest finite ``|a|``, 0.0 if there is none."""
    return max((float(_size(part).max(initial=0.0)) for part in in_blocks(a)), default=0.0)


def measure_errors(a: Array, b: Array, peak: float, allowed: Allowed) -> Errors:
    """The errors of ``b``, of the shape and dtype of ``a``, whose largest finite element is ``peak``.

    Elements at which ``a`` is not finite have no error; ``b`` has to be equal there.
    """
    noise = allowed.noise if allowed.noise is not None and allowed.noise.elements.shape == a.shape else None
    most = 0.0 if noise is None else noise.largest(_whole(a, b))
    found = Errors(a.size)
    for k, (x, y) in enumerate(zip(in_blocks(a), in_blocks(b), strict=True)):
        error, size = _error(x, y), _size(x)
        limit = np.zeros(()) if a.dtype.kind in "iub" else allowed.limit(k * BLOCK, size)
        if noise is not None:
            own = noise.elements.reshape(-1)[k * BLOCK : (k + 1) * BLOCK]
            limit = np.maximum(limit, floor(own, most, limit))
        _add(found, error, limit, allowed.step, k * BLOCK)
        relative = error / np.maximum(size, max(_SMALL * peak, TINY))
        found.relative = max(found.relative, float(relative.max(initial=0.0)))
    return found


def _whole(a: Array, b: Array) -> float:
    """The root of the mean square of all errors."""
    total = sum(float(np.sum(_error(x, y) ** 2)) for x, y in zip(in_blocks(a), in_blocks(b), strict=True))
    return math.sqrt(total / a.size) if a.size else 0.0


def _add(found: Errors, error: Array, limit: Array, step: float | None, first: int) -> None:
    """Count the errors of a block whose elements begin at ``first``."""
    found.largest = max(found.largest, float(error.max(initial=0.0)))
    if step is not None:
        step *= 1 + _ROUNDED
        found.within += int(np.count_nonzero(error <= step))
        found.excused += int(np.count_nonzero(error <= np.maximum(limit, step)))
    bad = error > limit
    if not bad.any():
        return
    excess = np.where(bad, error - limit, -np.inf)
    at = int(excess.argmax())
    if excess[at] > found._excess or not found.bad:
        found.worst, found._excess = first + at, float(excess[at])
    found.bad += int(np.count_nonzero(bad))


def _size(part: Array) -> Array:
    """``|part|`` in float64, 0 where it is not finite."""
    wide = widened(part)
    return np.abs(np.where(np.isfinite(wide), wide, 0))


def _error(x: Array, y: Array) -> Array:
    """``|y - x|`` in float64, 0 where ``x`` is not finite; exact for integers, also for int64 beyond 2**53."""
    if x.dtype.kind == "b":
        return np.asarray(np.not_equal(x, y), dtype=np.float64)
    if x.dtype.kind in "iu":
        low, high = np.minimum(x, y), np.maximum(x, y)
        return np.asarray(high.astype(np.uint64) - low.astype(np.uint64), dtype=np.float64)
    p, q = widened(x), widened(y)
    finite = np.isfinite(p)
    difference: Array = np.abs(np.where(finite, q, 0) - np.where(finite, p, 0))
    return difference


def widened(array: Array) -> Array:
    """Return an array as float64 or complex128."""
    wide: Array = array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)
    return wide
