"""The verdict on a run: correct, wrong, refused, absent (the kernel set lacks this op or version) or abort (crash)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from tools.probe.case import Case

from onnxtfl.ir.quantization import Quantization

Array = np.ndarray[Any, Any]
Verdict = Literal["correct", "wrong", "refused", "absent", "abort"]
_ABSENT = ("Didn't find op for builtin opcode", "TFLite Micro has no op")
_STEPS = {1: 1, 2: 16}
"""The maximum error of a quantized result in steps, by element size in bytes: kernels round several times."""
_FLOAT32 = 1e-5
_HALF = 0.51
"""The maximum error in steps of an exact element: slightly more than 0.5, since float arithmetic rounds, too."""
_COARSE = {"float16": 4e-3, "bfloat16": 2e-2}


def judge(case: Case, status: str, answer: Any) -> Verdict:
    """The verdict on a run; `answer`: the outputs ("ran") or a message. "placed": on an NPU, which runs nothing."""
    if status == "ran":
        return "correct" if _all_close(case, answer) else "wrong"
    if status == "placed":
        return "correct"
    if status == "refused":
        return "absent" if any(text in str(answer) for text in _ABSENT) else "refused"
    return "abort"


def steps_off(case: Case, outputs: Sequence[Array]) -> int:
    """The largest error of quantized results in steps, rounded up; 0 if each element is rounded to nearest.

    In a tie, either neighbor is exact.
    """
    quantizations = (case.quantizations.get(("results", i)) for i in range(len(outputs)))
    found = zip(outputs, case.real, quantizations, strict=False)
    return max((_steps_off(*each) for each in found if each[2] is not None), default=0)


def _steps_off(actual: Array, real: Array, quantization: Quantization) -> int:
    bounds = np.iinfo(quantization.storage)
    positions = real.astype(np.float64) / quantization.scales[0] + quantization.zero_points[0]
    error = np.abs(actual - np.clip(positions, bounds.min, bounds.max))
    return max(0, int(np.ceil(np.max(error[np.isfinite(error)], initial=0) - _HALF)))


def _all_close(case: Case, outputs: Sequence[Array]) -> bool:
    if len(outputs) != len(case.expected):
        return False
    if case.bounds:
        return all(_within(*each) for each in zip(outputs, case.expected, case.bounds, strict=True))
    return all(_close(case, *pair) for pair in zip(outputs, case.expected, strict=True))


def _within(actual: Array, expected: Array, bound: Array) -> bool:
    """Whether the error of each element is within its bound, up to float32 rounding."""
    if actual.shape != expected.shape:
        return False
    rounding = _FLOAT32 * float(np.max(np.abs(expected), initial=0))
    return bool(np.all(np.abs(actual.astype(np.float64) - expected) <= bound + rounding))


def _close(case: Case, actual: Array, expected: Array) -> bool:
    if actual.shape != expected.shape:
        return False
    if case.tolerance == np.inf:
        return True
    if expected.dtype.kind in "OSU":
        return [bytes(x) for x in actual.reshape(-1)] == [bytes(x) for x in expected.reshape(-1)]
    if expected.dtype.kind in "biu":
        if case.quantizations and expected.dtype.kind in "iu":
            steps = np.abs(actual.astype(np.int64) - expected.astype(np.int64))
            return bool(np.all(steps <= _STEPS.get(expected.dtype.itemsize, 1)))
        return bool(np.array_equal(actual, expected))
    name = expected.dtype.name
    if name == "bfloat16" and actual.dtype != expected.dtype:
        actual = actual.view(expected.dtype)
    tolerance = max(case.tolerance, _COARSE.get(name, 0))
    wide = np.complex128 if expected.dtype.kind == "c" else np.float64
    a, b = actual.astype(wide), expected.astype(wide)
    scale = float(np.max(np.abs(b[np.isfinite(b)]), initial=0))
    return bool(np.allclose(a, b, rtol=tolerance, atol=tolerance * 0.1 * max(scale, 1e-6), equal_nan=True))
