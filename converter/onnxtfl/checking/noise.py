"""The noise of a model: by how much its outputs change where nothing but rounding differs.

It is measured on the source alone: without the optimizations of its runtime, and for inputs changed by one unit in the
last place, which also shows how much the model amplifies. An error below it says nothing about a conversion.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from onnxtfl.ir.data import Array

FACTOR = 8.0
"""An error may be this multiple of the noise: rounding adds up in other ways in another runtime. Of the conversions in
the corpus that are correct, the largest measured was 6.
"""
LIMIT = 10.0
"""No noise excuses an error beyond this multiple of the tolerance."""
MOST_INFINITE = 1e-2
"""The share of elements that may be finite in one run of the source and infinite in another."""
SAMPLES = 3
"""How often inputs are changed."""
Run = Callable[[Sequence[Any], str], Sequence[Any]]
"""Inputs and a kernel set -> outputs of the model."""


@dataclass(frozen=True)
class Noise:
    """Of one output: ``elements``, the largest change of each; ``typical``, the root of their mean square.

    The change is infinite of the few elements that are finite in one run and not in another.
    """

    elements: Array
    typical: float

    def floor(self, error: Array, allowed: Array) -> Array:
        """The error that noise explains, for each element; ``allowed``: by the tolerance, which limits it.

        A multiple of the noise of each element, and where the errors as a whole are of the size of the noise, of the
        largest noise of all elements: which ones are hit is chance.
        """
        whole = float(np.sqrt(np.mean(error**2))) if error.size else 0.0
        largest = (
            self.elements.max(initial=0.0, where=np.isfinite(self.elements))
            if whole <= FACTOR * self.typical
            else self.typical
        )
        return np.minimum(FACTOR * np.maximum(self.elements, largest), LIMIT * allowed)


def measure(run: Run, values: Sequence[Any], outputs: Sequence[Any]) -> list[Noise | None]:
    """The noise of each output; ``outputs``: what the model computes for ``values`` on its default kernels.

    None for outputs that are not float arrays, or whose shape changes too, or which elements are infinite.
    """
    random = np.random.default_rng(0)
    others = [run(values, "builtin")]
    if any(_is_float(value) for value in values):
        others += [run([_nudged(value, random) for value in values], "default") for _ in range(SAMPLES)]
    return [_noise(out, [other[k] for other in others]) for k, out in enumerate(outputs)]


def _is_float(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.dtype.kind == "f"


def _nudged(value: Any, random: np.random.Generator) -> Any:
    """Floats one unit in the last place up or down, other values as they are."""
    if not _is_float(value):
        return value
    up = random.integers(0, 2, value.shape, dtype=np.uint8).astype(bool)
    return np.where(up, np.nextafter(value, value.dtype.type(np.inf)), np.nextafter(value, value.dtype.type(-np.inf)))


def _noise(out: Any, others: Sequence[Any]) -> Noise | None:
    if not _is_float(out) or any(other.shape != out.shape for other in others):
        return None
    wide, finite = out.astype(np.float64), np.isfinite(out)
    other = [np.isfinite(run) != finite for run in others]
    if any(of.sum() > MOST_INFINITE * of.size for of in other):
        return None
    with np.errstate(invalid="ignore"):
        changes = [np.where(finite, np.abs(run.astype(np.float64) - wide), 0.0) for run in others]
    elements: Array = np.max([np.where(of, np.inf, change) for of, change in zip(other, changes, strict=True)], axis=0)
    known = elements[np.isfinite(elements)]
    return Noise(elements, float(np.sqrt(np.mean(known**2))) if known.size else 0.0)
