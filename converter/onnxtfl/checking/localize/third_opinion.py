"""The third opinion: if two models disagree, which runtime deviates from the semantics of the neutral ops."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from onnxtfl.checking.models.pair import Chosen, ModelPair
from onnxtfl.checking.models.side import FirstRun, Side
from onnxtfl.checking.report import CheckReport, with_notes
from onnxtfl.errors import OnnxtflError
from onnxtfl.inputs.description import MismatchError
from onnxtfl.runtimes import RunError

MOST_BYTES = 16 << 20
"""Bytes of the largest model that is evaluated."""
SECONDS = 10.0
"""The most seconds for the evaluation of a model."""
ROUNDED = 0.01
"""The share of elements of a quantized model that rounding may change by more than the tolerance."""
_RUNTIMES = {"onnx": "ONNX Runtime", "tflite": "the TFLite runtime", "ir": "the evaluator"}


def with_third_opinion(report: CheckReport, models: ModelPair, done: FirstRun, chosen: Chosen) -> CheckReport:
    """Add a note to the report of models that disagree: which runtime deviates from the meaning of its model's ops.

    No note for models with state or random numbers, or of more than `MOST_BYTES`, and where an evaluation fails or
    takes `SECONDS`.
    """
    is_drawn = models.a.facts.drawn or models.b.facts.drawn
    if models.keeps_state or is_drawn or models.size > MOST_BYTES:
        return report
    try:
        words = _Opinion(models, done, chosen).in_words()
        return with_notes(report, words) if words else report
    except (RunError, MismatchError, OnnxtflError, TimeoutError, MemoryError):
        return report


@dataclass(frozen=True)
class _Opinion:
    models: ModelPair
    done: FirstRun
    chosen: Chosen

    def in_words(self) -> str:
        """Which of the two runtimes deviates; "" if neither does and the models mean the same."""
        a, b = self.models.a, self.models.b
        fed = self.models.fed_to_b(self.chosen, self.done.values)
        meant = a.evaluated(self.done.values, SECONDS), b.evaluated(fed, SECONDS)
        deviates = [
            not self._agrees(a, self.done.outputs, meant[0]),
            not self._agrees(b, b.run(fed, self.models.options), meant[1]),
        ]
        sides = zip(deviates, (("first", a), ("second", b)), strict=True)
        wrong = [f"{_RUNTIMES[side.info.format]} on the {which} model" for is_wrong, (which, side) in sides if is_wrong]
        if wrong:
            verb = "deviates" if len(wrong) == 1 else "deviate"
            return f"{' and '.join(wrong)} {verb} from the meaning of the ops (neutral ops, in NumPy)"
        if self.models.compare([meant[0]], [meant[1]], ()).ok:
            return ""
        return "by the meaning of their ops (neutral ops, in NumPy) the models differ: both runtimes compute it"

    def _agrees(self, side: Side, found: Sequence[Any], meant: Sequence[Any]) -> bool:
        """Whether outputs agree with the semantics of the ops; in quantized models, a share `ROUNDED` may differ."""
        most = ROUNDED if side.facts.quantized or side.facts.rounds else 0.0
        return all(self._share_beyond(x, y) <= most for x, y in zip(found, meant, strict=True))

    def _share_beyond(self, found: Any, meant: Any) -> float:
        """The share of elements that are not within the tolerance of the check; integers may be a step off."""
        x, y = np.asarray(found), np.asarray(meant)
        if x.shape != y.shape:
            return 1.0
        if not x.size:
            return 0.0
        if x.dtype.kind not in "fiub":
            return float(np.any(x != y))
        largest = float(np.max(np.abs(y.astype(np.float64)), initial=0, where=np.isfinite(y)))
        rtol, atol = self.models.settings.rtol, self.models.settings.atol * largest + (x.dtype.kind in "iu")
        return float(np.mean(~np.isclose(x.astype(np.float64), y.astype(np.float64), rtol, atol, equal_nan=True)))
