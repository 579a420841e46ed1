"""Rounding noise: a float output may differ by a multiple of the variation of the source's own output."""

from __future__ import annotations

from onnxtfl.checking.criteria.base import Attempt, PerOutput
from onnxtfl.checking.evidence import CriterionName, Judgment, Verdict
from onnxtfl.checking.report import OutputCheck
from onnxtfl.metrics.noise import LIMIT, unlimited


class RoundingNoise(PerOutput):
    """Accepts float outputs whose errors the noise of the source explains."""

    name: CriterionName = "rounding-noise"

    def applies(self, attempt: Attempt, out: OutputCheck) -> bool:
        if not out.is_float or any(j.criterion == "pre-activation" for j in out.judgments):
            return False
        quantized = attempt.a.facts.quantized or attempt.b.facts.quantized
        return not (attempt.keeps_state or attempt.reference.is_rough or quantized)

    def judgment(self, attempt: Attempt, k: int) -> Judgment | None:
        if not all(self._is_explicable(attempt, k, number) for number in attempt.runs):
            reason = f"beyond {LIMIT:.0f} times the tolerance, which no noise explains"
            return Judgment(self.name, Verdict.INCONCLUSIVE, reason)
        found = self._judgment(attempt, k, sums=False)
        return found if found is None or found.accepts else self._judgment(attempt, k, sums=True)

    def _is_explicable(self, attempt: Attempt, k: int, number: int) -> bool:
        """Whether some noise would explain the errors; if not, it need not be measured."""
        expected = attempt.reference.runs[number].outputs[attempt.out_pairs[k].a]
        return attempt.compare(k, number, noise=unlimited(expected.shape)).ok

    def _judgment(self, attempt: Attempt, k: int, sums: bool) -> Judgment | None:
        """Compare again, with a tolerance for the noise; ``sums``: the noise of long sums."""
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
