"""Float32 reference: a source in float16, or with rounded operands of products, is evaluated in float32."""

from __future__ import annotations

from typing import Any

import numpy as np

from onnxtfl.checking.criteria.base import Attempt, PerOutput
from onnxtfl.checking.evidence import CriterionName, Judgment, Verdict
from onnxtfl.checking.report import OutputCheck

COARSE = 0.05
"""The largest difference between a source in float16 and in float32, relative to the largest value. Beyond it, the
source is no reference.
"""


class Float32Reference(PerOutput):
    """Accepts outputs that agree with the source evaluated in float32, if that is near the source's own outputs."""

    name: CriterionName = "float32-reference"

    def applies(self, attempt: Attempt, out: OutputCheck) -> bool:
        return out.is_float and not attempt.keeps_state and attempt.reference.is_rough

    def judgment(self, attempt: Attempt, k: int) -> Judgment:
        pair, largest = attempt.out_pairs[k], 0.0
        for number in attempt.runs:
            expected = attempt.reference.runs[number].outputs[pair.a]
            wide = attempt.reference.widened[number][pair.a]
            if expected.shape != wide.shape or not _near(expected.astype(np.float64), wide.astype(np.float64)):
                return Judgment(self.name, Verdict.INCONCLUSIVE, "in float32 the source computes something else")
            check = attempt.compare(k, number, expected=wide.astype(expected.dtype))
            largest = max(largest, check.max_abs or 0.0)
            if not check.ok:
                reason = f"against the source in float32: {check.message}"
                return Judgment(self.name, Verdict.INCONCLUSIVE, reason, {"max_abs": largest})
        return Judgment(self.name, Verdict.ACCEPT, "", {"max_abs": largest})


def _near(a: Any, b: Any) -> bool:
    """Whether two computations of an output differ by little, and overflow at the same places."""
    finite = np.isfinite(a)
    if (finite != np.isfinite(b)).any():
        return False
    peak = np.abs(b[finite]).max(initial=0.0)
    return bool((np.abs(a[finite] - b[finite]) <= COARSE * peak).all())
