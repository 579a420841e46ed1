"""Compares the results of a conversion with the source's: exact for integers, floats within the effect of rounding.

An element may differ where noise of one part in a million in what the source computes changes it as much: then it
depends on rounding in the source too (a Floor, a comparison, an index of the largest element).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from tests.harness.compare import is_float, largest_error, wide
from tests.harness.litert import Array, narrow

Arrays = Mapping[str, Array]
Run = Callable[[Arrays], Arrays]
Noisy = Callable[[Arrays, float, int], Arrays]
"""Inputs, the relative size of the noise and a seed, to the source's outputs with that noise."""
NO_STEPS: Mapping[str, float] = MappingProxyType({})
NOISE = 1e-6
_ROUNDS = 24
_HALF = 512
"""How much coarser the noise is for float16, the unit of which is 1e-3."""


def difference(
    actual: Arrays, expected: Arrays, inputs: Arrays, noisy: Noisy, steps: Mapping[str, float] = NO_STEPS
) -> tuple[str, str] | None:
    """Name and description of the first output that is wrong; None where all agree.

    ``steps``: by how much elements of outputs that are quantized, or were, may differ: one step.
    """
    half = any(a.dtype == np.float16 for a in (*inputs.values(), *expected.values()))
    for name, wide_or_not in expected.items():
        if name not in actual:
            return name, "is missing"
        found, wanted = actual[name], narrow(wide_or_not)
        if wanted.dtype.kind == "c" and found.dtype.kind == "f":  # ONNX has pairs instead
            wanted = np.stack([wanted.real, wanted.imag], axis=-1)
        if found.dtype != wanted.dtype or found.shape != wanted.shape:
            return name, f"is {found.dtype}{list(found.shape)} instead of {wanted.dtype}{list(wanted.shape)}"
        error = largest_error(found, wanted)
        if error <= (30 if half else 1):
            continue
        if name in steps and np.abs(_exact(found) - _exact(wanted)).max(initial=0) <= steps[name]:
            continue
        if not _is_noise(name, found, wanted, inputs, noisy, NOISE * (_HALF if half else 1)):
            return name, f"error {error:.3g}; {_elements(found, wanted)}"
    return None


def _elements(found: Array, wanted: Array) -> str:
    """Some elements that differ."""
    where = np.argwhere(np.atleast_1d(found != wanted))[:4]
    pairs = [(np.atleast_1d(found)[tuple(i)], np.atleast_1d(wanted)[tuple(i)]) for i in where]
    return ", ".join(f"{a} not {b} at {i.tolist()}" for i, (a, b) in zip(where, pairs, strict=True))


def _exact(array: Array) -> Array:
    return array.astype(np.float64) if array.dtype.kind == "f" else array.astype(np.int64)


def _is_noise(name: str, found: Array, wanted: Array, inputs: Arrays, noisy: Noisy, noise: float) -> bool:
    exact = wide(wanted) if is_float(wanted.dtype) else wanted.astype(np.float64)
    effect = np.zeros(wanted.shape)
    for seed in range(_ROUNDS):
        other = noisy(inputs, noise, seed).get(name)
        if other is None or other.shape != wanted.shape:
            return other is not None
        change = np.abs(np.asarray(other).astype(np.float64) - exact)
        effect = np.maximum(effect, np.where(np.isnan(change), np.inf, change))
    allowed = 20 * effect + 1e-6 + 1e-3 * np.abs(exact) * is_float(wanted.dtype)
    with np.errstate(invalid="ignore"):
        error = np.abs(np.asarray(found).astype(np.float64) - exact)
        return bool(((error <= allowed) | np.isinf(allowed) | _does_not_fit(found, wanted)).all())


def _does_not_fit(found: Array, wanted: Array) -> Any:
    """Where an integer was made of a float that it cannot hold: x86 has the lowest number, others the nearest."""
    if wanted.dtype not in (np.int32, np.int64):
        return False
    limits = np.iinfo(wanted.dtype)
    return (wanted == limits.min) & (found == limits.max)


def noisy_inputs(run: Run) -> Noisy:
    """Noise in the inputs only, for a source that nothing can be added to."""

    def noisy(inputs: Arrays, noise: float, seed: int) -> Arrays:
        random = np.random.default_rng(seed)
        return run({n: with_noise(random, a, noise) for n, a in inputs.items()})

    return noisy


def with_noise(random: np.random.Generator, array: Array, noise: float, offset: float = 0) -> Array:
    """Floats with noise of this relative size; of float32 also ``offset`` times it of the largest element, or of 1.

    The offset is for sums that cancel out. It does not depend on infinities or floats of 1e30 and more (masks).
    """
    if array.dtype.kind != "f":
        return array
    changed = array.astype(np.float64) * (1 + noise * random.standard_normal(array.shape))
    if array.dtype == np.float32:
        sizes = np.abs(array[np.abs(array) < 1e30])
        changed += offset * noise * max(1.0, float(sizes.max(initial=0))) * random.standard_normal(array.shape)
    limits = np.finfo(array.dtype)
    return np.where(np.isfinite(array), np.clip(changed, limits.min, limits.max), array).astype(array.dtype)


def makes_integers_of_nan(ops: Iterable[tuple[Sequence[str], Sequence[str]]], arrays: Arrays) -> bool:
    """Whether an op makes integers of floats that are no numbers: C++ does not define which, and runtimes differ.

    ``ops``: the names of operands and results of each.
    """
    return any(
        any(n in arrays and arrays[n].dtype.kind == "f" and np.isnan(arrays[n]).any() for n in operands)
        and any(n in arrays and arrays[n].dtype.kind in "iu" for n in results)
        for operands, results in ops
    )


def sum_overflows(array: Array) -> bool:
    """Whether a sum of integers may not fit their type: it is undefined in C++, and ONNX Runtime has the limit."""
    return array.dtype.kind == "i" and float(np.abs(array.astype(np.float64)).sum()) > np.iinfo(array.dtype).max


def finite(arrays: Arrays) -> bool:
    """Whether there are outputs, and all floats are finite and not huge, so that they can be compared."""
    return bool(arrays) and all(
        a.dtype.kind not in "f" or (np.isfinite(a).all() and np.abs(a).max(initial=0) < 1e6) for a in arrays.values()
    )
