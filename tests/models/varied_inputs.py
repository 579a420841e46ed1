"""Whether two models differ on any of many varied inputs: it judges damages before the check does."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from onnxtfl.checking.models.side import Side
from onnxtfl.inputs.generation import make_input
from onnxtfl.inputs.sizes import open_shapes
from tests.harness.litert import run_tflite

FACTORS = (1.0, 4.0, 0.25, 16.0, -1.0, 64.0)
RTOL, ATOL = 1e-3, 1e-4


def differ_somewhere(good: Path, broken: Path, count: int = 200, seconds: float = 20.0) -> bool:
    """Whether any of ``count`` inputs, or as many as there is time for, changes an output beyond the tolerance.

    A quantized output may be one step off, also where it is dequantized at the end of the model.
    ``good`` and ``broken``: files of one format. Inputs that ``good`` cannot run are not counted. False where two runs
    of ``good`` differ. Exceptions of a runtime propagate where ``broken`` does not run on the first input.
    """
    first, second = _runner(good), _runner(broken)
    side = Side.read(good, None)
    steps = [side.facts.steps.get(info.name, 0.0) for info in side.info.outputs]
    until, has_run = time.monotonic() + seconds, False
    for number, values in enumerate(_inputs(side, count)):
        if time.monotonic() > until:
            return False
        try:
            a = first(values)
        except Exception:
            continue
        if number == 0 and _differ(a, first(values), steps):
            return False
        try:
            b = second(values)
        except Exception:
            if has_run:
                return True
            raise
        has_run = True
        if _differ(a, b, steps):
            return True
    return False


def _runner(path: Path) -> Callable[[list[Any]], list[Any]]:
    """A function from the inputs, in the model's order, to the outputs, in the model's order."""
    if path.suffix == ".tflite":
        data = path.read_bytes()
        return lambda values: [array for _, array in run_tflite(data, values)]
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    names = [node.name for node in session.get_inputs()]
    return lambda values: list(session.run(None, dict(zip(names, values, strict=True))))


def _differ(a: list[Any], b: list[Any], steps: list[float]) -> bool:
    return any(_beyond(np.asarray(x), np.asarray(y), step) for x, y, step in zip(a, b, steps, strict=True))


def _inputs(side: Side, count: int) -> Iterator[list[Any]]:
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


def _beyond(x: np.ndarray, y: np.ndarray, step: float) -> bool:
    if x.shape != y.shape or x.dtype.kind not in "fiub":
        return x.shape != y.shape or bool(np.any(x != y))
    a, b = x.astype(np.float64), y.astype(np.float64)
    with np.errstate(invalid="ignore"):
        peak = np.abs(a[np.isfinite(a)]).max(initial=0.0)
        bytes_ = x.dtype.itemsize == 1 and x.dtype.kind in "iu"
        allowed = 1.0 if bytes_ else np.maximum(RTOL * np.abs(a) + ATOL * peak, 1.01 * step)
        return not np.array_equal(np.isnan(a), np.isnan(b)) or bool(np.any(np.abs(a - b) > allowed))
