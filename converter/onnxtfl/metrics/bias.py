"""The signed mean error of quantized values: rounding has none; a lost bias, zero point or pad value causes one.

Elements of equal values are one sample: they are rounded alike, as are the elements of a channel that is constant. So
the mean is one over the different values of the reference, of each of which the mean error counts::

    mean over v of (mean over the elements with a = v of (b - a) / step)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from onnxtfl.ir.data import Array

BOUND = 0.1
"""The largest allowed mean error in steps. Measured for correct ops: 0.00 to 0.09 step; for a lost bias: its size."""
COARSER = 0.5
"""The increase of the bound for each step of measured kernel error."""
CHANCE = 4.5
"""Standard deviations up to which a mean may be chance, with as many channels as models have."""
LEAST_DEVIATION = 0.5
"""The least standard deviation of single errors in steps, also if the few samples are equal."""
_BINS = 256
"""The number of distinct values; of 16-bit values, neighbors share one."""
_MOST = 1 << 22
"""The most elements that are read; of larger arrays, every n-th along the longest axis."""


@dataclass(frozen=True)
class Bias:
    """``mean``: the signed mean error in steps, of the group of elements (all, or a channel) with the largest excess;
    ``excess``: the steps by which its magnitude exceeds chance, 0.0 if it may be chance.
    """

    mean: float = 0.0
    excess: float = 0.0

    def is_fault(self, coarse: float) -> bool:
        """Whether rounding cannot explain it; ``coarse``: the measured error of kernels in steps."""
        return self.excess > BOUND + COARSER * coarse


def measure_bias(a: Array, b: Array, step: float) -> Bias:
    """The bias of ``b`` against ``a``, of equal shapes, in units of ``step``.

    Elements at which both have the lowest or both the highest value are omitted: clipping hides their errors.
    """
    a, b = _sample(a), _sample(b)
    x, y = a.astype(np.float32), b.astype(np.float32)
    finite = np.isfinite(x) & np.isfinite(y)
    if not finite.any():
        return Bias()
    low, high = float(x.min(where=finite, initial=np.inf)), float(x.max(where=finite, initial=-np.inf))
    counted = finite & ~((x == y) & ((x == low) | (x == high)))
    errors = np.where(counted, y - x, np.float32(0)) / np.float32(step)
    width = max(step, (high - low) / (_BINS - 1))
    bins = np.where(counted, np.rint((np.where(finite, x, low) - low) / width), 0).astype(np.int32)
    groups = (_of_groups(errors, counted, bins, axis) for axis in _axes(x.ndim))
    return max(groups, key=lambda bias: (bias.excess, abs(bias.mean)))


def _sample(array: Array) -> Array:
    if array.size <= _MOST:
        return array
    axis = int(np.argmax(array.shape))
    every = -(-array.size // _MOST)
    return array[(slice(None),) * axis + (slice(None, None, every),)]


def _axes(rank: int) -> Iterator[int | None]:
    """The axes whose slices are groups: none (all elements are one group), the last, the second (channels last or
    first).
    """
    yield None
    if rank >= 2:
        yield rank - 1
    if rank >= 3:
        yield 1


def _of_groups(errors: Array, counted: Array, bins: Array, axis: int | None) -> Bias:
    """The bias of the group with the largest excess, among the slices along an axis."""
    groups = 1 if axis is None else errors.shape[axis]
    shape = [1] * errors.ndim
    if axis is not None:
        shape[axis] = groups
    at = (bins + np.arange(groups, dtype=np.int32).reshape(shape) * _BINS)[counted]
    count = np.bincount(at, minlength=groups * _BINS).reshape(groups, _BINS)
    total = np.bincount(at, errors[counted], groups * _BINS).reshape(groups, _BINS)
    mean_of_value = total / np.maximum(count, 1)
    values = np.maximum((count > 0).sum(1), 1)
    mean = mean_of_value.sum(1) / values
    square = (mean_of_value**2).sum(1) / values
    deviation = np.maximum(np.sqrt(np.maximum(square - mean**2, 0)), LEAST_DEVIATION)
    excess = np.maximum(np.abs(mean) - CHANCE * deviation / np.sqrt(values), 0.0)
    worst = int(excess.argmax()) if excess.any() else int(values.argmax())
    return Bias(float(mean[worst]), float(excess[worst]))
