"""Matches of tensors of two models by their values, if there is neither a record nor equal names.

A tensor is described by its number of elements and five figures that depend on neither axis order nor shape. Those that
are alike are compared element by element before they are used (`onnxtfl.checking.localize.engine`).
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Sequence

import numpy as np

from onnxtfl.ir.data import Array
from onnxtfl.ir.quantization import Quantization, dequantize
from onnxtfl.ir.quantized import quantization_of
from onnxtfl.tracing.matches import Match
from onnxtfl.tracing.trace import InnerModel

ALIKE = 1e-3
"""The allowed difference of a figure, relative to the largest value."""
LEAST = 4
"""The fewest elements whose equality is evidence."""
BATCH = 48 << 20
Figures = tuple[float, ...]


def by_value(a: InnerModel, b: InnerModel, known: Sequence[Match], until: float) -> list[Match]:
    """Matches of tensors that are not in `known`, by their values if each model reads its own inputs.

    Of several tensors of the first model with the same values, the first one. `until`: when to stop, in seconds of the
    clock; a third of the time until then is for the first model, and as much for the second.
    """
    first, second = {m.a for m in known}, {m.b for m in known}
    now = time.perf_counter()
    described: dict[int, list[tuple[int, Figures]]] = {}
    for i, (size, figures) in _described(a, first, now + (until - now) / 3):
        described.setdefault(size, []).append((i, figures))
    alike = {size: _Alike(found) for size, found in described.items()}
    found = list[Match]()
    for j, (size, figures) in _described(b, second, now + (until - now) * 2 / 3):
        step = _step(quantization_of(b.values[j]), figures)
        best = alike[size].nearest(figures, step) if size in alike else None
        if best is not None:
            found.append(Match(best, j, by_value=True))
    return found


class _Alike:
    """The figures of tensors of the first model, all of one size: float64[tensors, figures]."""

    def __init__(self, found: Sequence[tuple[int, Figures]]) -> None:
        self._numbers = [number for number, _ in found]
        self._figures = np.asarray([figures for _, figures in found])
        self._peaks = np.abs(self._figures[:, :2]).max(axis=1)

    def nearest(self, figures: Figures, step: float) -> int | None:
        """The first tensor whose figures are alike, else the first that is off by at most a `step` more."""
        distances = np.abs(self._figures - figures).max(axis=1) / self._peaks
        for limit in (ALIKE, ALIKE + step):
            if (near := distances <= limit).any():
                return self._numbers[int(near.argmax())]
        return None


def _described(model: InnerModel, known: Collection[int], until: float) -> Iterator[tuple[int, tuple[int, Figures]]]:
    """The number, size and figures of the real tensors that are not in `known`, as many as there is time for."""
    wanted = [i for i in sorted(model.changing) if i not in known]
    for batch in _batches(model, wanted):
        if time.perf_counter() > until:
            break
        for i, array in model.fetch(batch).items():
            figures = _figures(array, quantization_of(model.values[i]))
            if figures is not None:
                yield i, (array.size, figures)


def _batches(model: InnerModel, wanted: Sequence[int]) -> Iterator[list[int]]:
    batch, size = list[int](), 0
    for i in wanted:
        if batch and size + model.nbytes(i) > BATCH:
            yield batch
            batch, size = [], 0
        batch.append(i)
        size += model.nbytes(i)
    if batch:
        yield batch


def _figures(array: Array, grid: Quantization | None) -> Figures | None:
    """Minimum, maximum, mean, standard deviation and cube root of the mean cube; None if these are no evidence."""
    if array.size < LEAST or (array.dtype.kind != "f" and (grid is None or array.dtype.kind not in "iu")):
        return None
    real = (array if grid is None or array.dtype.kind == "f" else dequantize(array, grid)).astype(np.float64)
    if not np.isfinite(real).all() or real.min() == real.max():
        return None
    figures = real.min(), real.max(), real.mean(), real.std(), np.cbrt((real**3).mean())
    return tuple(float(figure) for figure in figures)


def _step(grid: Quantization | None, figures: Figures) -> float:
    """One step relative to the largest value, of a quantized tensor."""
    peak = max(abs(figures[0]), abs(figures[1]))
    return grid.scales[0] / peak if grid is not None and peak else 0.0
