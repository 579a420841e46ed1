"""Whether outputs depend on the inputs, and larger and smaller inputs for those that hardly do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

DULL = 1e-3
"""An output that changes by no more than this part of its largest value hardly depends on the inputs."""
FACTORS = (4.0, 16.0, 0.25)
"""What inputs are multiplied by where the outputs hardly depend on them."""
SCALABLE = ("normal", "smooth", "quiet")
"""How the choice of an input begins whose values may as well be larger or smaller."""


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


def scaled(values: Sequence[Any], choices: Sequence[str]) -> Iterator[tuple[float, list[Any]]]:
    """Inputs multiplied by each of `FACTORS`, those of which any size makes sense; nothing where there are none."""
    may = [
        choice.startswith(SCALABLE) and isinstance(value, np.ndarray) and value.dtype.kind == "f"
        for value, choice in zip(values, choices, strict=True)
    ]
    for factor in FACTORS if any(may) else ():
        yield factor, [v * v.dtype.type(factor) if yes else v for v, yes in zip(values, may, strict=True)]
