"""Rounding noise: a float output may differ by a multiple of what the source's own output differs by from itself."""

from __future__ import annotations

from collections.abc import Sequence

from onnxtfl.checking.criteria.base import Attempt, Ruling
from onnxtfl.checking.criteria.float32_reference import is_float
from onnxtfl.checking.evidence import CriterionName, Judgment, Verdict
from onnxtfl.checking.report import OutputCheck


class RoundingNoise:
    """Accepts float outputs whose errors the noise of the source explains."""

    name: CriterionName = "rounding-noise"

    def judge(self, attempt: Attempt, outputs: Sequence[OutputCheck], pending: Sequence[int]) -> Ruling:
        quantized = attempt.a.facts.quantized or attempt.b.facts.quantized
        if attempt.keeps_state or attempt.reference.is_rough or quantized:
            return Ruling()
        found: dict[int, Judgment] = {}
        for k in pending:
            if is_float(outputs[k]) and not any(j.criterion == "pre-activation" for j in outputs[k].judgments):
                judgment = self._judgment(attempt, k, sums=False)
                judgment = judgment if judgment is None or judgment.accepts else self._judgment(attempt, k, sums=True)
                found |= {} if judgment is None else {k: judgment}
        return Ruling(found)

    def _judgment(self, attempt: Attempt, k: int, sums: bool) -> Judgment | None:
        """Compare again, with an error allowed that the noise explains; ``sums``: that of long sums."""
        position, noises, checks = attempt.out_pairs[k].a, list[float](), list[OutputCheck]()
        for number in attempt.runs:
            noise = attempt.reference.noise_in(number, sums)[position]
            if noise is None:
                return None
            noises.append(float(noise.elements.max(initial=0.0)))
            checks.append(attempt.compare(k, number, noise=noise))
        evidence = {"noise": max(noises, default=0.0), "max_abs": max(check.max_abs or 0.0 for check in checks)}
        if all(check.ok for check in checks):
            return Judgment(self.name, Verdict.ACCEPT, "agrees within the source's own noise", evidence)
        reason = f"noise of the source {evidence['noise']:.3g}"
        return Judgment(self.name, Verdict.INCONCLUSIVE, reason, evidence)
