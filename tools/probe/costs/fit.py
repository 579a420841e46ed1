"""Fit cost rows to measured times: nanoseconds for each unit of work, with as few kinds of work as possible."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from onnxtfl.targets.work import Amounts

KINDS = ("call", "read", "written", "rows", "pieces", "blocks")
PRODUCT = ("call", "read", "written", "macs")
_IMPROVEMENT = 0.9
"""A further kind of work has to reduce the error to at most this fraction."""
_MIN_TIMINGS = 6
"""The minimum number of timings for a row."""
_ITERATIONS = 8
_RESOLUTION = 50.0
"""The smallest measurable time in nanoseconds."""
Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Timing:
    """One form of one node: names of constant operands, whether it works along the last axis, work, nanoseconds."""

    weights: frozenset[str]
    last: bool
    is_product: bool
    amounts: Amounts
    nanoseconds: float


Fit = tuple[float, dict[str, float]]
"""(error of the logarithms, rates)."""


Row = dict[str, Any]
"""Conditions and rates, as in the tables."""


def rows(timings: Iterable[Timing]) -> list[Row]:
    """The rows of one op, those with conditions first."""
    groups: defaultdict[frozenset[str], list[Timing]] = defaultdict(list)
    for timing in timings:
        groups[timing.weights].append(timing)
    shared = frozenset.intersection(*groups)
    ordered = sorted(groups, key=lambda weights: (-len(weights), sorted(weights)))
    return [row for weights in ordered for row in _rows(weights - shared, groups[weights])]


def _rows(weights: frozenset[str], timings: Sequence[Timing]) -> Iterator[Row]:
    """One row, or, if they fit better, two: for work along the last axis, and for other axes."""
    parts = {last: [t for t in timings if t.last == last] for last in (True, False)}
    single = best_fit(timings)
    split = {last: best_fit(part) for last, part in parts.items() if len(part) >= _MIN_TIMINGS}
    if len(split) == 2 and _error(split, parts) < single[0] * _IMPROVEMENT:
        for last, (_, rates) in split.items():
            yield _row(weights, {"last": last}, rates)
    else:
        yield _row(weights, {}, single[1])


def _error(fits: Mapping[bool, Fit], parts: Mapping[bool, Sequence[Timing]]) -> float:
    """The combined error of two fits."""
    squares = sum(error**2 * len(parts[last]) for last, (error, _) in fits.items())
    return float(np.sqrt(squares / sum(map(len, parts.values()))))


def _row(weights: frozenset[str], conditions: Mapping[str, bool], rates: Mapping[str, float]) -> Row:
    """A row; rates have two significant digits, the precision of the measurement."""
    constant = {"constant": " ".join(sorted(weights))} if weights else {}
    return {**constant, **conditions, **{kind: float(f"{rate:.1e}") for kind, rate in rates.items()}}


def best_fit(timings: Sequence[Timing]) -> Fit:
    """The fit with the fewest rates; a further rate has to reduce the error enough."""
    kinds = _distinct(timings, PRODUCT if timings[0].is_product else KINDS)
    times = np.asarray([max(t.nanoseconds, _RESOLUTION) for t in timings])
    best: Fit = (np.inf, {})
    for count in range(1, len(kinds) + 1):
        fits = [_fit(timings, times, chosen) for chosen in itertools.combinations(kinds, count)]
        fit = min((f for f in fits if f is not None), key=lambda f: f[0], default=None)
        if fit is not None and fit[0] < best[0] * _IMPROVEMENT:
            best = fit
    return best


def _distinct(timings: Sequence[Timing], kinds: Sequence[str]) -> list[str]:
    """`kinds` without those proportional to an earlier one."""
    independent: dict[tuple[float, ...], str] = {}
    for kind in kinds:
        work = [t.amounts[kind] for t in timings]
        independent.setdefault(tuple(round(w / work[0], 9) if work[0] else w for w in work), kind)
    return list(independent.values())


def _fit(timings: Sequence[Timing], times: Array, kinds: Sequence[str]) -> Fit | None:
    """The least-squares fit with these kinds of work; None if a rate is negative.

    Iterative reweighting approximates least squares of the logarithms.
    """
    work = np.asarray([[t.amounts[kind] for kind in kinds] for t in timings])
    estimate = times
    for _ in range(_ITERATIONS):
        scale = np.sqrt(estimate * times)
        rates, *_ = np.linalg.lstsq(work / scale[:, None], times / scale, rcond=None)
        if (rates <= 0).any():
            return None
        estimate = work @ rates
    error = float(np.sqrt(np.mean(np.log(estimate / times) ** 2)))
    return error, dict(zip(kinds, map(float, rates), strict=True))
