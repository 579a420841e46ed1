"""Pre-activation: compares the operand of a final Sigmoid, which is informative where its result saturates."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from onnxtfl.checking.criteria.base import Attempt, PerOutput
from onnxtfl.checking.evidence import CriterionName, Judgment, Verdict
from onnxtfl.checking.metrics.comparison import compare
from onnxtfl.checking.pairing.interface import in_first_order, permutations
from onnxtfl.checking.report import OutputCheck
from onnxtfl.tracing.parts import tensor_inside

SATURATED = 1e-3
"""A Sigmoid is saturated if all its values are at most this far from 0 or 1."""


class PreActivation(PerOutput):
    """Accepts outputs of Sigmoids whose operands agree."""

    name: CriterionName = "pre-activation"

    def applies(self, attempt: Attempt, out: OutputCheck) -> bool:
        return out.is_float and not attempt.keeps_state and not attempt.reference.is_rough

    def judgment(self, attempt: Attempt, k: int) -> Judgment | None:
        """Compare the operands of the Sigmoid that computes an output; None for other outputs."""
        names = _operands(attempt, k)
        if names is None or attempt.a.worker is None or attempt.b.worker is None:
            return None
        largest, expect = 0.0, attempt.tolerance.expect
        for number in attempt.runs:
            values = attempt.a.hidden.given(attempt.reference.runs[number].values)
            a = tensor_inside(attempt.a.info.path, names[0], attempt.a.worker, values, attempt.options)
            fed = attempt.b.hidden.given(attempt.fed[number])
            b = tensor_inside(attempt.b.info.path, names[1], attempt.b.worker, fed, attempt.b_options)
            ways = permutations(tuple(a.shape), tuple(b.shape), "auto") or [tuple(range(a.ndim))]
            moved = [in_first_order(b, way) if b.ndim == a.ndim else b for way in ways]
            checks = [compare("", a, one, replace(expect)) for one in moved]
            check = next((check for check in checks if check.ok), checks[0])
            largest = max(largest, check.max_abs or 0.0)
            if not check.ok:
                reason = f"before its Sigmoid: {check.message}"
                return Judgment(self.name, Verdict.INCONCLUSIVE, reason, {"max_abs": largest})
        return Judgment(self.name, Verdict.ACCEPT, "compared before its Sigmoid", {"max_abs": largest})


def _operands(attempt: Attempt, k: int) -> tuple[str, str] | None:
    """The operands of the Sigmoids that compute this output in both models."""
    pair = attempt.out_pairs[k]
    sides = ((attempt.a, pair.a), (attempt.b, pair.b))
    a, b = (side.facts.logits.get(side.info.outputs[i].name) for side, i in sides)
    return None if a is None or b is None or attempt.a.slots or attempt.b.slots else (a, b)


def is_saturated(output: object) -> bool:
    """Whether all values of a Sigmoid are nearly 0 or 1."""
    if not isinstance(output, np.ndarray) or output.dtype.kind != "f" or not output.size:
        return False
    return bool((np.minimum(np.abs(output), np.abs(1 - output)) <= SATURATED).all())
