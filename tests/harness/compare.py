"""Compare the outputs of a model with the expected ones."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.harness.litert import Array, narrow

RELATIVE = 1e-3
OF_LARGEST = 1e-4


def difference(actual: Array, expected: Array, rtol: float, atol: float) -> str:
    """Return how ``actual`` differs from ``expected``, in one line; "" where it does not.

    dtype (float64 narrowed to float32) and shape must be equal, integers, bools and strings too; floats within
    ``atol + rtol * |expected|``, NaN equal to NaN and infinities to themselves.
    """
    if actual.dtype != expected.dtype:
        expected = narrow(expected)
    if actual.dtype != expected.dtype:
        return f"wrong dtype: {actual.dtype} instead of {expected.dtype}"
    if actual.shape != expected.shape:
        return f"wrong shape: {list(actual.shape)} instead of {list(expected.shape)}"
    if not is_float(expected.dtype):
        wrong = int(np.count_nonzero(actual != expected))
        return f"wrong values: {wrong} of {expected.size} elements differ" if wrong else ""
    return _float_difference(wide(actual), wide(expected), rtol, atol)


def largest_error(actual: Array, expected: Array) -> float:
    """The largest error relative to the tolerance of the corpus, 1e-3 |b| + 1e-4 max|b|: at most 1 passes.

    Infinite where dtypes or shapes differ, or where integers or bools are not equal.
    """
    expected = narrow(expected)
    if actual.shape != expected.shape or actual.dtype != expected.dtype:
        return float("inf")
    if not is_float(expected.dtype):
        return 0.0 if np.array_equal(actual, expected) else float("inf")
    a, b = wide(actual), wide(expected)
    finite = np.abs(b[np.isfinite(b)])
    allowed = RELATIVE * np.abs(b) + OF_LARGEST * finite.max(initial=0.0) + 1e-30
    with np.errstate(invalid="ignore"):
        error = np.where(_same(a, b), 0.0, np.abs(a - b) / np.where(np.isfinite(b), allowed, 1.0))
    return float(np.nan_to_num(error, nan=np.inf, posinf=np.inf).max(initial=0.0))


def is_float(dtype: np.dtype[Any]) -> bool:
    """Whether this is a float type, those of ml_dtypes included."""
    return dtype.kind == "f" or dtype.name.startswith(("bfloat16", "float"))


def wide(array: Array) -> Array:
    """``array`` as float64 (NumPy cannot compute with all ml_dtypes)."""
    return array.astype(np.float32).astype(np.float64) if array.dtype.kind != "f" else array.astype(np.float64)


def _same(a: Array, b: Array) -> Array:
    same: Array = (a == b) | (np.isnan(a) & np.isnan(b))
    return same


def _float_difference(a: Array, b: Array, rtol: float, atol: float) -> str:
    with np.errstate(invalid="ignore"):
        close = _same(a, b) | (np.isfinite(b) & (np.abs(a - b) <= atol + rtol * np.abs(b)))
    if close.all():
        return ""
    with np.errstate(invalid="ignore"):
        worst = float(np.nanmax(np.where(close, 0.0, np.abs(a - b))))
    return f"wrong values: {int((~close).sum())} of {b.size} elements differ, by up to {worst:.3g}"
