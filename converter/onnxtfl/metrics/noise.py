"""The noise of a model: the change of its outputs if only rounding differs.

It is measured on the source alone: without the optimizations of its runtime, and for inputs changed by one unit in the
last place, which also shows how much the model amplifies; where inputs are integers, for constants changed so (see
`perturbed`). An error below it says nothing about a conversion.

A long sum of large values rounds alike for all of these: its units are larger than those of its summands. Changes of
another size show it, up and down by the same, between which only the rounding is left::

    (f(x + d) + f(x - d)) / 2 - f(x)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from onnxtfl.ir.data import Array

FACTOR = 8.0
"""The allowed multiple of the noise: in another runtime, rounding errors add up in other ways. The largest measured one
of a correct conversion in the corpus was 6.
"""
LIMIT = 10.0
"""An error beyond this multiple of the tolerance is never accepted as noise."""
AMPLIFIED = 1e-2
"""If the noise relative to the outputs is larger, outputs are no evidence. That of a correct float16 network
(segformer) is 7e-4, that of networks that amplify rounding 0.1 and more.
"""
MOST_INFINITE = 1e-2
"""The largest fraction of elements that are finite in one run of the source and infinite in another."""
SAMPLES = 3
"""The number of changed sets of inputs, and of constants."""
STEP = 2.0**-14
"""Relative changes that show the rounding of long sums."""
_BLOCK = 1 << 18
Run = Callable[[Sequence[Any], str], Sequence[Any]]
"""Inputs and a kernel set -> outputs of the model."""
RunPerturbed = Callable[[Sequence[Any], "Perturbation"], Sequence[Any]]
"""Inputs, and how constants are changed -> outputs of the model."""


@dataclass(frozen=True)
class Perturbation:
    """Changes each element up or down, at random by ``seed``: by ``step`` times its value; one unit in the last place
    if 0.
    """

    seed: int
    step: float = 0.0

    def changed(self, values: Array, *place: int) -> Array:
        """The changed array; ``place``: the number of the part, of a larger array."""
        up = np.random.default_rng([self.seed, *place]).integers(0, 2, values.shape, np.uint8).astype(bool)
        if self.step:
            return np.asarray(values * np.where(up, 1 + self.step, 1 - self.step).astype(values.dtype))
        infinity = values.dtype.type(np.inf)
        return np.asarray(np.where(up, np.nextafter(values, infinity), np.nextafter(values, -infinity)))


@dataclass(frozen=True)
class Noise:
    """Of one output: ``elements``, the largest change of each; ``typical``, the root of their mean square.

    The change is infinite of the few elements that are finite in one run and not in another.
    """

    elements: Array
    typical: float

    def largest(self, whole: float) -> float:
        """Return the largest noise of any element, given the root mean square error ``whole``.

        If all errors together are of the size of the noise, it is chance which elements have the largest ones.
        """
        if whole > FACTOR * self.typical:
            return self.typical
        return float(self.elements.max(initial=0.0, where=np.isfinite(self.elements)))


def unlimited(shape: tuple[int, ...]) -> Noise:
    """Noise that explains all errors up to `LIMIT` times the tolerance."""
    return Noise(np.broadcast_to(np.float32(np.inf), shape), math.inf)


def floor(elements: Array, largest: float, allowed: Array) -> Array:
    """The error that noise explains, for each of ``elements``: a multiple of its noise, or of the ``largest``.

    ``allowed``: by the tolerance, which limits it.
    """
    return np.minimum(FACTOR * np.maximum(elements, largest), LIMIT * allowed)


def measure(
    run: Run, values: Sequence[Any], outputs: Sequence[Any], perturbed: RunPerturbed | None
) -> list[Noise | None]:
    """Return the noise of each output; ``outputs``: the results for ``values`` with default kernels.

    ``perturbed``: runs the model with changed constants; None if that cannot be done. None for outputs that are not
    float arrays, or whose shape changes too, or which elements are infinite.
    """
    return _noises(outputs, others(run, values, perturbed))


def measure_sums(
    run: Run, values: Sequence[Any], outputs: Sequence[Any], perturbed: RunPerturbed | None
) -> list[Noise | None]:
    """The noise of each output by long sums of large values, as `measure` returns it."""
    return _noises(outputs, _means(run, values, perturbed))


def _means(run: Run, values: Sequence[Any], perturbed: RunPerturbed | None) -> Iterator[Sequence[Any]]:
    """The means of the outputs for changes up and down."""
    for seed in range(SAMPLES):
        pair = [_changed(run, values, perturbed, Perturbation(seed, step)) for step in (STEP, -STEP)]
        if (up := pair[0]) is not None and (down := pair[1]) is not None:
            yield [_mean(*both) for both in zip(up, down, strict=True)]


def others(
    run: Run, values: Sequence[Any], perturbed: RunPerturbed | None, also: Iterable[Sequence[Any]] = ()
) -> Iterator[Sequence[Any]]:
    """The outputs of runs of the model that differ from the one on its default kernels by rounding only."""
    yield run(values, "builtin")
    yield from also
    for seed in range(SAMPLES):
        if (found := _changed(run, values, perturbed, Perturbation(seed))) is not None:
            yield found


def is_amplified(noise: float, output: Any) -> bool:
    """Whether noise (by `distance`) is too large, relative to an output, for conclusions about its model."""
    if not isinstance(output, np.ndarray) or not is_float(output):
        return noise > 0
    return noise >= AMPLIFIED * distance(output, np.where(np.isfinite(output), 0, output))


def distance(a: Any, b: Any) -> float:
    """Return the root mean square difference of two float outputs.

    For other outputs the share of different elements; inf if shapes differ, or elements are finite in only one.
    """
    if not isinstance(a, np.ndarray) or not isinstance(b, np.ndarray) or a.shape != b.shape:
        return math.inf
    if is_float(a) != is_float(b):
        return math.inf
    if not is_float(a):
        return float(np.mean(a != b)) if a.size else 0.0
    total, count, infinite = 0.0, 0, 0
    x, y = a.reshape(-1), b.reshape(-1)
    for at in range(0, x.size, _BLOCK):
        p, q = (v[at : at + _BLOCK].astype(np.float64) for v in (x, y))
        finite, both = np.isfinite(p), np.isfinite(p) & np.isfinite(q)
        infinite += int(np.count_nonzero(np.isfinite(q) != finite))
        total += float(np.sum((q[both] - p[both]) ** 2))
        count += int(np.count_nonzero(both))
    if infinite > MOST_INFINITE * a.size:
        return math.inf
    return math.sqrt(total / count) if count else 0.0


def _changed(run: Run, values: Sequence[Any], perturbed: RunPerturbed | None, by: Perturbation) -> Sequence[Any] | None:
    """Return the outputs for changed inputs (and changed constants if some inputs are not float), else None."""
    floats = [is_float(value) for value in values]
    if not any(floats) and perturbed is None:
        return None
    changed = [by.changed(v, k) if is_float else v for k, (v, is_float) in enumerate(zip(values, floats, strict=True))]
    return run(changed, "default") if perturbed is None or all(floats) else perturbed(changed, by)


def _mean(a: Any, b: Any) -> Any:
    with np.errstate(invalid="ignore"):
        alike = is_float(a) and a.shape == b.shape
        return (a.astype(np.float64) + b.astype(np.float64)) / 2 if alike else a


def is_float(value: Any) -> bool:
    """Whether an output is an array of floats."""
    return isinstance(value, np.ndarray) and value.dtype.kind == "f"


def _noises(outputs: Sequence[Any], others: Iterable[Sequence[Any]]) -> list[Noise | None]:
    """The noise of each output, over all runs; the outputs of one run are in memory at a time."""
    found: list[Array | None] = [_no_noise(out) for out in outputs]
    measured = False
    for other in others:
        measured = True
        found = [None if e is None else _larger(e, *pair) for e, *pair in zip(found, outputs, other, strict=True)]
    return [None if elements is None or not measured else _summed(elements) for elements in found]


def _no_noise(out: Any) -> Array | None:
    return np.zeros(out.shape, np.promote_types(out.dtype, np.float32)) if is_float(out) else None


def _larger(elements: Array, out: Any, other: Any) -> Array | None:
    """The larger of ``elements`` and the changes between two outputs; None if these cannot be compared."""
    if other.shape != out.shape:
        return None
    infinite = 0
    flat, a, b = (array.reshape(-1) for array in (elements, out, other))
    for at in range(0, a.size, _BLOCK):
        here = slice(at, at + _BLOCK)
        finite, differs = np.isfinite(a[here]), np.isfinite(a[here]) != np.isfinite(b[here])
        infinite += int(np.count_nonzero(differs))
        with np.errstate(invalid="ignore"):
            change = np.where(finite, np.abs(b[here].astype(np.float64) - a[here].astype(np.float64)), 0.0)
        flat[here] = np.maximum(flat[here], np.where(differs, np.inf, change))
    return None if infinite > MOST_INFINITE * a.size else elements


def _summed(elements: Array) -> Noise:
    total, count = 0.0, 0
    for at in range(0, elements.size, _BLOCK):
        block = elements.reshape(-1)[at : at + _BLOCK]
        known = block[np.isfinite(block)]
        total, count = total + float(np.sum(known.astype(np.float64) ** 2)), count + known.size
    return Noise(elements, math.sqrt(total / count) if count else 0.0)
