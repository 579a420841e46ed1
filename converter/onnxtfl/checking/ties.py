"""Positions that an ArgMax or TopK chose may differ where two elements are nearly equal: compare what they select."""

from __future__ import annotations

from typing import Any

import numpy as np

from onnxtfl.checking.facts import Selection

Array = np.ndarray[Any, np.dtype[Any]]


def flips(data: Array, selection: Selection, a: Array, b: Array, rtol: float, atol: float) -> int | None:
    """Return how many positions differ between ``a`` and ``b``, None where one of them is more than a near-tie.

    ``data``: what both select from, as the first model computes it. Two elements are nearly equal where they differ
    by at most twice what is allowed between the two models, since both may be off.
    """
    axis = selection.axis % data.ndim if data.ndim else 0
    rest = data.size // data.shape[axis] if data.size else 0
    if not rest or a.size % rest or a.shape != b.shape or data.dtype.kind not in "fiu":
        return None
    shape = (*data.shape[:axis], a.size // rest, *data.shape[axis + 1 :])
    if min(a.min(), b.min()) < 0 or max(a.max(), b.max()) >= data.shape[axis]:
        return None
    wide = data.astype(np.float64)
    x, y = (np.take_along_axis(wide, np.asarray(p, np.int64).reshape(shape), axis) for p in (a, b))
    peak = float(np.abs(wide[np.isfinite(wide)]).max(initial=0.0))
    near = np.abs(x - y) <= 2 * (rtol * np.abs(x) + atol * peak)
    return int(np.sum(a != b)) if bool(np.all(near | (x == y))) else None
