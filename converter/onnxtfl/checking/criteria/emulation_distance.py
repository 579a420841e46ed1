"""Emulation distance: how far quantized outputs are from ONNX Runtime's float emulation of quantization.

ONNX Runtime's integer kernels have such a distance too. A conversion with at most that distance is accepted if ops
compared; one that is several times further is wrong, whatever its ops say.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from onnxtfl.checking.criteria.base import Attempt, Ruling
from onnxtfl.checking.evidence import CriterionName, Judgment, Verdict
from onnxtfl.checking.models.side import Side
from onnxtfl.checking.pairing.interface import Pair, permutations
from onnxtfl.checking.report import OutputCheck
from onnxtfl.ir.quantization import Quantization
from onnxtfl.metrics.distances import Distances, Run, Three, measure


class EmulationDistance:
    """Judges the outputs of two quantized models of different formats by their distances."""

    name: CriterionName = "emulation-distance"

    def judge(self, attempt: Attempt, outputs: Sequence[OutputCheck], pending: Sequence[int]) -> Ruling:
        models = _Models.of(attempt)
        if models is None or not all(out.max_abs is not None for out in outputs):
            return Ruling()
        found = models.measured()
        notes = tuple(str(distances) for distances in found)
        judged = dict(enumerate(found)) if any(d.is_far for d in found) else {k: found[k] for k in pending if found}
        return Ruling({k: self._judgment(distances) for k, distances in judged.items()}, notes)

    def _judgment(self, found: Distances) -> Judgment:
        agreement = {} if found.agreement is None else {"top_1_agreement": found.agreement}
        evidence = agreement | {"distance": found.tflite.mean, "distance_of_integer_kernels": found.integer.mean}
        if found.is_far:
            reason = (
                f"{found.tflite.mean:.2g} of the largest value from ONNX Runtime's float emulation on average, its own "
                f"integer kernels {found.integer.mean:.2g}"
            )
            return Judgment(self.name, Verdict.REJECT, reason, evidence)
        reason = "no further from ONNX Runtime's float emulation than its integer kernels" if found.ok else ""
        return Judgment(self.name, Verdict.ACCEPT if found.ok else Verdict.INCONCLUSIVE, reason, evidence)


@dataclass(frozen=True)
class _Models:
    """The ONNX model and the TFLite model of an attempt, both quantized."""

    attempt: Attempt
    onnx: Side
    tflite: Side

    @classmethod
    def of(cls, attempt: Attempt) -> _Models | None:
        a, b = attempt.a, attempt.b
        quantized = a.facts.quantized and b.facts.quantized
        if not quantized or a.info.format == b.info.format or attempt.feeds is None:
            return None
        onnx, tflite = (a, b) if a.info.format == "onnx" else (b, a)
        real = all(info.dtype.startswith("float") or info.quantization for info in tflite.info.outputs)
        return cls(attempt, onnx, tflite) if real else None

    def measured(self) -> list[Distances]:
        """The distances of each output, in the order of the first model."""
        names = [self.attempt.a.info.outputs[pair.a].name for pair in self.attempt.out_pairs]
        return measure(names, self._run, self.attempt.seconds)

    def _run(self, number: int) -> Run:
        attempt = self.attempt
        assert attempt.feeds is not None
        fed = dict(zip((id(attempt.a), id(attempt.b)), attempt.feeds(number), strict=True))
        runs = ((self.onnx, "builtin"), (self.onnx, "default"), (self.tflite, attempt.kernels))
        outputs = [side.run(fed[id(side)], replace(attempt.options, kernels=kernels)) for side, kernels in runs]
        return self._aligned(outputs)

    def _aligned(self, runs: Sequence[Sequence[Any]]) -> Run:
        """The outputs of emulation, integer kernels and TFLite, in the order of the first model."""
        found: Run = []
        for pair in self.attempt.out_pairs:
            i, j = (pair.a, pair.b) if self.onnx is self.attempt.a else (pair.b, pair.a)
            emulated, integer, other = runs[0][i], runs[1][i], runs[2][j]
            q = self.tflite.info.outputs[j].quantization if other.dtype.kind in "iu" else None
            ways = permutations(tuple(other.shape), tuple(emulated.shape), "auto")
            found.append(Three(emulated, integer, other, q, self._step(pair, q)).aligned(ways))
        return found

    def _step(self, pair: Pair, q: Quantization | None) -> float | None:
        """The step of an output, if the values of one of the models are multiples of it."""
        if q is not None:
            return max(q.scales)
        a, b = self.attempt.a, self.attempt.b
        return a.facts.steps.get(a.info.outputs[pair.a].name) or b.facts.steps.get(b.info.outputs[pair.b].name)
