"""Judges a run: right, wrong, refused, absent (the kernel set has no such op or op version) or abort."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from tools.probe.case import Case

Array = np.ndarray[Any, Any]
Verdict = Literal["right", "wrong", "refused", "absent", "abort"]
_ABSENT = "Didn't find op for builtin opcode"
_STEPS = {1: 1, 2: 16}
"""By how many steps a quantized result of that many bytes may be off: kernels round in several places."""
_COARSE = {"float16": 4e-3, "bfloat16": 2e-2}


def judge(case: Case, ending: str, answer: Any) -> Verdict:
    """The verdict on a run that ended so."""
    if ending == "ran":
        return "right" if _all_close(case, answer) else "wrong"
    if ending == "refused":
        return "absent" if _ABSENT in str(answer) else "refused"
    return "abort"


def _all_close(case: Case, outputs: Sequence[Array]) -> bool:
    if len(outputs) != len(case.expected):
        return False
    return all(_close(case, given, right) for given, right in zip(outputs, case.expected, strict=True))


def _close(case: Case, given: Array, right: Array) -> bool:
    if given.shape != right.shape:
        return False
    if case.tolerance == np.inf:
        return True
    if right.dtype.kind in "OSU":
        return [bytes(x) for x in given.reshape(-1)] == [bytes(x) for x in right.reshape(-1)]
    if right.dtype.kind in "biu":
        if case.quantizations and right.dtype.kind in "iu":
            steps = np.abs(given.astype(np.int64) - right.astype(np.int64))
            return bool(np.all(steps <= _STEPS.get(right.dtype.itemsize, 1)))
        return bool(np.array_equal(given, right))
    name = right.dtype.name
    if name == "bfloat16" and given.dtype != right.dtype:
        given = given.view(right.dtype)
    tolerance = max(case.tolerance, _COARSE.get(name, 0))
    wide = np.complex128 if right.dtype.kind == "c" else np.float64
    a, b = given.astype(wide), right.astype(wide)
    scale = float(np.max(np.abs(b[np.isfinite(b)]), initial=0))
    return bool(np.allclose(a, b, rtol=tolerance, atol=tolerance * 0.1 * max(scale, 1e-6), equal_nan=True))
