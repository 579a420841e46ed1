"""Whether outputs depend on the inputs; larger, smaller and negated inputs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

DULL = 1e-3
"""An output that changes by no more than this part of its largest value hardly depends on the inputs."""
_SCALES = ((1, 0), (4, 0), (-1, 0), (16, 0), (0.25, 0), (64, 0), (-8, 0), (1024, 0))
_SHIFTS = ((1, 64), (-1, -64), (1, 4), (4, -16))
VARIED = (*_SCALES[:4], *_SHIFTS, *_SCALES[4:])
"""Factors and offsets of varied inputs, in turn."""
KEPT = ("range", "value", "integers")
"""Prefixes of the descriptions of inputs that do not change in other sets of inputs."""
SCALABLE = ("normal", "smooth", "quiet")
"""Prefixes of the descriptions of inputs whose values may be larger or smaller."""


def hardly_changes(first: Any, second: Any) -> bool:
    """Whether two values of an output, for different inputs, are nearly equal."""
    arrays = isinstance(first, np.ndarray) and isinstance(second, np.ndarray)
    if not arrays or first.shape != second.shape or first.dtype.kind not in "fiub" or not first.size:
        return False
    x, y = first.astype(np.float64), second.astype(np.float64)
    finite = np.isfinite(x) & np.isfinite(y)
    x, y = x[finite], y[finite]
    peak = max(np.abs(x).max(initial=0.0), np.abs(y).max(initial=0.0))
    return bool(np.abs(x - y).max(initial=0.0) <= DULL * peak)


def varied(
    make: Callable[[int], tuple[list[Any], list[str]]], values: Sequence[Any], first: int, count: int
) -> Iterator[list[Any]]:
    """``count`` sets of inputs of other seeds and magnitudes; ``make``: makes the set of a number, from ``first`` on.

    Integers that are sizes, bounds or modes (not indices and masks) keep their values in ``values``: values computed
    from them may be an assumption that the report of a conversion names.
    """
    for number in range(first, first + count):
        made, choices = make(number)
        moved = _moved(made, scalable(made, choices), *VARIED[number % len(VARIED)])
        kept = [one.startswith(KEPT) for one in choices]
        found = [old if keep else new for old, new, keep in zip(values, moved, kept, strict=True)]
        if all(new is old for new, old in zip(found, values, strict=True)):
            return  # all inputs are the user's, or may not change
        yield found


def scalable(values: Sequence[Any], choices: Sequence[str]) -> list[bool]:
    """The inputs that may have any magnitude."""
    return [
        choice.startswith(SCALABLE) and isinstance(value, np.ndarray) and value.dtype.kind == "f"
        for value, choice in zip(values, choices, strict=True)
    ]


def _moved(values: Sequence[Any], may: Sequence[bool], factor: float, shift: float) -> list[Any]:
    """Inputs times `factor` plus `shift`, in units of their largest value where that is less than 1: sound of small
    values would be lost beside a large offset.
    """
    units = [min(1.0, float(np.abs(v).max(initial=0.0))) if yes else 0.0 for v, yes in zip(values, may, strict=True)]
    moves = zip(values, may, units, strict=True)
    return [(v * factor + shift * unit).astype(v.dtype) if yes else v for v, yes, unit in moves]
