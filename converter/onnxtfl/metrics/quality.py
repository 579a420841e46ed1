"""Metrics of an output for the report, which do not affect the verdict.

Complex values are compared as pairs of real ones; quantized outputs of both models as they are stored.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from onnxtfl.ir.data import Array
from onnxtfl.metrics.errors import widened

Metric = Callable[[Array, Array], float]
"""The values of an output of the first and of the second model -> a number."""


def measured(a: Array, b: Array, metrics: Sequence[str | Metric]) -> dict[str, float]:
    """The metrics of ``b`` against ``a``, by name; that of a function is its own. Empty for arrays of different
    shapes.
    """
    if a.shape != b.shape or a.dtype.kind in "OSU" or b.dtype.kind in "OSU":
        return {}
    found = {}
    for metric in metrics:
        name, function = (metric, _METRICS[metric]) if isinstance(metric, str) else (_name(metric), metric)
        wide = (widened(a), widened(b)) if isinstance(metric, str) else (a, b)
        found[name] = float(function(*wide))
    return found


def _name(metric: Metric) -> str:
    return getattr(metric, "__name__", type(metric).__name__)


def _errors(a: Array, b: Array) -> Array:
    finite = np.isfinite(a) & np.isfinite(b)
    return np.asarray(np.abs(b[finite] - a[finite]))


def _max_abs(a: Array, b: Array) -> float:
    return float(_errors(a, b).max(initial=0.0))


def _max_rel(a: Array, b: Array) -> float:
    finite = np.isfinite(a) & np.isfinite(b)
    size = np.abs(a[finite])
    return float((_errors(a, b) / np.maximum(size, 1e-3 * size.max(initial=1e-30))).max(initial=0.0))


def _mean_abs(a: Array, b: Array) -> float:
    errors = _errors(a, b)
    return float(errors.mean()) if errors.size else 0.0


def _percentile(share: float) -> Metric:
    def metric(a: Array, b: Array) -> float:
        errors = _errors(a, b)
        return float(np.percentile(errors, share)) if errors.size else 0.0

    return metric


def _cosine(a: Array, b: Array) -> float:
    norms = float(np.linalg.norm(a)) * float(np.linalg.norm(b))
    return float(np.real(np.vdot(a, b))) / norms if norms else float(not np.any(a) and not np.any(b))


def _decibels(signal: float, noise: float) -> float:
    return math.inf if not noise else 10 * math.log10(signal / noise) if signal else -math.inf


def _snr(a: Array, b: Array) -> float:
    return _decibels(float((np.abs(a) ** 2).sum()), float((_errors(a, b) ** 2).sum()))


def _psnr(a: Array, b: Array) -> float:
    errors, peak = _errors(a, b), float(np.abs(a[np.isfinite(a)]).max(initial=0.0))
    return _decibels(peak**2, float((errors**2).mean()) if errors.size else 0.0)


def _top(count: int) -> Metric:
    """The share of rows along the last axis whose largest element in ``b`` is among the ``count`` largest in ``a``."""

    def metric(a: Array, b: Array) -> float:
        if not a.ndim or not a.size:
            return 1.0
        best = b.argmax(-1)[..., None]
        rank = (a > np.take_along_axis(a, best, -1)).sum(-1)
        return float((rank < count).mean())

    return metric


_METRICS: dict[str, Metric] = {
    "max-abs": _max_abs,
    "max-rel": _max_rel,
    "mean-abs": _mean_abs,
    "cosine": _cosine,
    "snr": _snr,
    "psnr": _psnr,
    "p50": _percentile(50),
    "p99": _percentile(99),
    "top-1": _top(1),
    "top-5": _top(5),
}
METRIC_NAMES = tuple(_METRICS)
