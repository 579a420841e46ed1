"""What the breakers of both formats have in common (tests/models/broken_onnx.py, broken_tflite.py)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]
Random = np.random.Generator


@dataclass(frozen=True)
class Break:
    """What was broken: `kind` in words, the `node` (name, or that of its first result), its op and its results."""

    kind: str
    node: str
    op: str
    results: tuple[str, ...]


def wrong_elements(array: Array, random: Random, few: bool) -> Array:
    """The array with all elements changed, or three of them by much."""
    wrong = array.copy()
    if array.dtype.kind in "iu":
        flat = wrong.reshape(-1)
        where = random.choice(flat.size, min(3, flat.size), replace=False) if few else np.arange(flat.size)
        top = np.iinfo(array.dtype)
        flat[where] = np.where(flat[where].astype(np.int64) > 0, top.min // 2 + 1, top.max // 2)
        return wrong
    if not few:
        return np.asarray(array * 1.5 + 0.1 * np.abs(array).max(initial=0.01), array.dtype)
    flat = wrong.reshape(-1)
    where = random.choice(flat.size, min(3, flat.size), replace=False)
    flat[where] += np.asarray(3 * max(float(np.abs(array).max()), 0.1), array.dtype)
    return wrong
