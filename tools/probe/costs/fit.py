"""Fit cost rows to measured times: nanoseconds for each unit of work, with as few kinds of work as possible."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from onnxtfl.targets.work import Amounts

KINDS = ("call", "read", "written", "rows", "pieces", "blocks", "parts")
PRODUCT = ("call", "read", "written", "macs", "tiles", "wide")
RANGES: Mapping[str, tuple[str, tuple[int, ...]]] = {
    "BATCH_MATMUL": ("lines", (2, 4)),
    "CONCATENATION": ("parts", (6,)),
    "CONV_2D": ("taps", (2,)),
    "DEPTHWISE_CONV_2D": ("taps", (26,)),
    "FULLY_CONNECTED": ("lines", (2, 4)),
    "SPLIT": ("parts", (5,)),
}
"""Amounts by which an op has rows of its own, from these on: XNNPACK has kernels for one row and for several, for up to
25 taps, and takes operands and results of up to so many parts.
"""
OPTIONS = {"BATCH_MATMUL": ("adj_x",)}
"""Options by which an op has rows of its own: XNNPACK transposes that operand."""
_IMPROVEMENT = 0.95
"""A further kind of work has to reduce the error to at most this fraction."""
_MIN_TIMINGS = 6
"""The minimum number of timings for a row."""
_ITERATIONS = 8
_RESOLUTION = 50.0
"""The smallest measurable time in nanoseconds."""
Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Timing:
    """One form of one node: names of constant operands, options that matter, whether it works along the last axis,
    amounts of work, nanoseconds.
    """

    op: str
    weights: frozenset[str]
    options: Mapping[str, bool]
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
    groups: defaultdict[tuple[frozenset[str], tuple[tuple[str, bool], ...]], list[Timing]] = defaultdict(list)
    for timing in timings:
        groups[timing.weights, tuple(timing.options.items())].append(timing)
    shared = frozenset.intersection(*(weights for weights, _ in groups))
    ordered = sorted(groups, key=lambda key: (-len(key[0]), sorted(key[0]), key[1]))
    made: list[Row] = []
    for weights, options in ordered:
        constant = {"constant": " ".join(sorted(weights - shared))} if weights - shared else {}
        for within, part in _in_ranges(groups[weights, options]):
            made += _rows({**constant, **dict(options), **within}, part)
    return made


def _in_ranges(timings: Sequence[Timing]) -> Iterator[tuple[Row, list[Timing]]]:
    """The timings in each range of amounts; one with few timings is part of the next."""
    amount, starts = RANGES.get(timings[0].op, ("", ()))
    low, part, rest = 0, list[Timing](), list(timings)
    for start in (*starts, None):
        part += [t for t in rest if start is None or t.amounts[amount] < start]
        rest = [t for t in rest if t not in part]
        if len(part) >= _MIN_TIMINGS or start is None:
            within = f"{low}-" if start is None else f"{low}-{start - 1}"
            yield {amount: within} if within != "0-" else {}, part
            low, part = start or 0, []


def _rows(conditions: Row, timings: Sequence[Timing]) -> Iterator[Row]:
    """One row, or, if they fit better, two: for work along the last axis, and for other axes."""
    if not timings:
        return
    parts = {last: [t for t in timings if t.last == last] for last in (True, False)}
    single = best_fit(timings)
    split = {last: best_fit(part) for last, part in parts.items() if len(part) >= _MIN_TIMINGS}
    if len(split) == 2 and _error(split, parts) < single[0] * _IMPROVEMENT:
        for last, (_, rates) in split.items():
            yield _row({**conditions, "last": last}, rates)
    else:
        yield _row(conditions, single[1])


def _error(fits: Mapping[bool, Fit], parts: Mapping[bool, Sequence[Timing]]) -> float:
    """The combined error of two fits."""
    squares = sum(error**2 * len(parts[last]) for last, (error, _) in fits.items())
    return float(np.sqrt(squares / sum(map(len, parts.values()))))


def _row(conditions: Row, rates: Mapping[str, float]) -> Row:
    """A row; rates have two significant digits, the precision of the measurement."""
    return {**conditions, **{kind: float(f"{rate:.1e}") for kind, rate in rates.items()}}


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
