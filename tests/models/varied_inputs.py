"""Whether two .tflite models differ on any of many varied inputs: the judge of damages that a check does not find."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from onnxtfl.checking.inputs.generation import make_input
from onnxtfl.checking.inputs.sizes import open_shapes
from onnxtfl.checking.models.side import Side
from tests.harness.litert import run_tflite

FACTORS = (1.0, 4.0, 0.25, 16.0, -1.0, 64.0)
RTOL, ATOL = 1e-3, 1e-4


def differ_somewhere(good: Path, broken: Path, count: int = 200, seconds: float = 20.0) -> bool:
    """Whether any of ``count`` inputs, or as many as there is time for, changes an output beyond the tolerance."""
    models = good.read_bytes(), broken.read_bytes()
    until = time.monotonic() + seconds
    for values in _inputs(good, count):
        if time.monotonic() > until:
            return False
        try:
            a = run_tflite(models[0], values)
        except (RuntimeError, ValueError):
            continue
        try:
            b = run_tflite(models[1], values)
        except (RuntimeError, ValueError):
            return True
        if any(_beyond(x, y) for (_, x), (_, y) in zip(a, b, strict=True)):
            return True
    return False


def _inputs(model: Path, count: int) -> Iterator[list[Any]]:
    side = Side.read(model, None)
    infos = side.info.inputs
    shapes = next(iter(open_shapes(infos, {}, side.facts.shapes)))
    for number in range(count):
        factor = FACTORS[number % len(FACTORS)]
        values = []
        for k, (info, shape) in enumerate(zip(infos, shapes, strict=True)):
            value, _ = make_input(info, shape, side.facts.ranges.get(info.name), (number, k), number % 2 == 1)
            free = value.dtype.kind == "f" and info.name not in side.facts.ranges
            values.append(value * value.dtype.type(factor) if free else value)
        yield values


def _beyond(x: np.ndarray, y: np.ndarray) -> bool:
    if x.shape != y.shape or x.dtype.kind not in "fiub":
        return x.shape != y.shape or bool(np.any(x != y))
    a, b = x.astype(np.float64), y.astype(np.float64)
    with np.errstate(invalid="ignore"):
        peak = np.abs(a[np.isfinite(a)]).max(initial=0.0)
        allowed = 1.0 if x.dtype.itemsize == 1 and x.dtype.kind in "iu" else RTOL * np.abs(a) + ATOL * peak
        return not np.array_equal(np.isnan(a), np.isnan(b)) or bool(np.any(np.abs(a - b) > allowed))
