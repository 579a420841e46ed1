"""Runs of both models on varied inputs, and whether their outputs are within the tolerance."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from onnxtfl.checking.criteria.tolerance import Tolerance
from onnxtfl.checking.pairing.interface import Pair
from onnxtfl.checking.report import OutputCheck
from onnxtfl.metrics.errors import largest_finite
from onnxtfl.metrics.noise import is_float
from onnxtfl.runtimes import RunError, RunOptions

EXP = 87.0
"""The logarithm of the largest float32, and of the smallest one that is not denormal."""
BATCH = 8
"""The number of sets of inputs in one batch of runs."""


class VariedRun(NamedTuple):
    """Inputs and outputs of the first model, and whether those of the second miss the tolerance."""

    values: list[Any]
    outputs: Sequence[Any]
    is_missed: bool


@dataclass(frozen=True)
class VariedRuns:
    """Compares many runs by the tolerance. ``ordinary``: outputs of the first model on ordinary inputs; ``moved``:
    whether inputs have their axes in another order.
    """

    tolerance: Tolerance
    out_pairs: Sequence[Pair]
    options: RunOptions
    ordinary: Sequence[Any]
    moved: bool

    def compared(
        self, sets: Iterable[list[Any]], feed: Callable[[Sequence[Any]], list[Any]], until: float
    ) -> Iterator[VariedRun]:
        """The runs whose outputs could be compared.

        ``feed``: the inputs of the second model for those of the first. ``until``: when to stop (`time.perf_counter`).
        """
        peaks = [largest_finite(out) if is_float(out) else 0.0 for out in self.ordinary]
        for batch in _batches(sets, BATCH):
            if time.perf_counter() > until:
                return
            try:
                expected = self.tolerance.a.begin(batch, self.options)
                begun = self.tolerance.b.begin([feed(values) for values in batch], self.options)
                runs = list(zip(expected.result(), begun.result(), batch, strict=False))
            except RunError:
                return
            yield from (VariedRun(v, x, self._differ(x, y, peaks)) for x, y, v in runs if self._can_compare(x, y))

    def _differ(self, x: Sequence[Any], y: Sequence[Any], peaks: Sequence[float]) -> bool:
        """Whether outputs miss the tolerance."""
        checks = [self.tolerance.compare(pair, x[pair.a], y[pair.b], self.moved) for pair in self.out_pairs]
        pairs = zip(self.out_pairs, checks, strict=True)
        return any(not check.ok and not self._is_small(check, peaks[pair.a]) for pair, check in pairs)

    def _can_compare(self, x: Sequence[Any], y: Sequence[Any]) -> bool:
        """Whether outputs are comparable: neither model overflows, and ranks are equal.

        Another rank is what the report of a conversion assumes not to occur.
        """
        if not all(map(_is_finite, x)) or any(np.ndim(x[p.a]) != np.ndim(y[p.b]) for p in self.out_pairs):
            return False
        return not any(_is_out_of_range(x[p.a], y[p.b]) for p in self.out_pairs)

    def _is_small(self, check: OutputCheck, peak: float) -> bool:
        """Whether an error is within the tolerance for ordinary values: saturated outputs may be nearly 0."""
        return check.max_abs is not None and check.max_abs <= self.tolerance.settings.atol * peak


def _is_finite(output: Any) -> bool:
    """Whether no element of an output is infinite or NaN."""
    return not is_float(output) or bool(np.isfinite(output).all())


def _is_out_of_range(x: Any, y: Any) -> bool:
    """Whether ``y`` is infinite where ``exp`` of a value of ``x`` is 0 or infinite in float32, as the Log of a Softmax
    may be where a LogSoftmax is finite.
    """
    return not _is_finite(y) and is_float(x) and float(np.abs(x).max(initial=0.0)) > EXP


def _batches(items: Iterable[Any], size: int) -> Iterator[list[Any]]:
    """The items, ``size`` at a time."""
    rest = iter(items)
    while batch := list(islice(rest, size)):
        yield batch
