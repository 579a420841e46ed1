"""Near-ties: positions (ArgMax, TopK) chosen differently where the elements that they point to are nearly equal.

Which of two equal elements is chosen is part of the semantics: in ONNX the first, with select_last_index the last. So
another one is accepted only if the elements differ in one of the two models.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from onnxtfl.checking.criteria.base import Attempt, PerOutput
from onnxtfl.checking.evidence import CriterionName, Judgment, Verdict
from onnxtfl.checking.metrics.comparison import Choices, chosen_elements
from onnxtfl.checking.models.side import Side
from onnxtfl.checking.report import OutputCheck
from onnxtfl.errors import OnnxtflError
from onnxtfl.ir.data import Array
from onnxtfl.runtimes import RunOptions
from onnxtfl.tracing.parts import tensor_inside


class NearTies(PerOutput):
    """Accepts other positions of nearly equal elements."""

    name: CriterionName = "near-ties"

    def applies(self, attempt: Attempt, out: OutputCheck) -> bool:
        return not attempt.keeps_state

    def judgment(self, attempt: Attempt, k: int) -> Judgment | None:
        pair, flips = attempt.out_pairs[k], 0
        a, b = attempt.a.info.outputs[pair.a], attempt.b.info.outputs[pair.b]
        selection = attempt.a.facts.selections.get(a.name)
        if selection is None or attempt.a.slots or attempt.b.slots:
            return None
        rtol, atol = attempt.settings.tolerances(a.name)
        for number in attempt.runs:
            run = attempt.reference.runs[number]
            x, y = run.outputs[pair.a], attempt.alone[number][pair.b]
            y = y.astype(x.dtype) if b.declared == a.dtype else y
            if x.dtype != y.dtype or x.dtype.kind not in "iu" or x.shape != y.shape:
                return None
            data = _selected_from(attempt.a, selection.data, run.values, attempt.options)
            choices = None if data is None else chosen_elements(data, selection.axis, x, y)
            if choices is None:
                return None
            if not choices.are_near(rtol, atol):
                return Judgment(self.name, Verdict.INCONCLUSIVE, "positions of elements that are not nearly equal")
            tied = self._tied_in_b(attempt, k, number, x, y, choices) if choices.ties else False
            if tied is None:
                return Judgment(self.name, Verdict.INCONCLUSIVE, "equal elements, unknown in the second model")
            if tied:
                reason = f"{choices.ties} positions differ where elements are equal in both models"
                return Judgment(self.name, Verdict.REJECT, reason, {"ties": float(choices.ties)})
            flips += choices.flips
        reason = f"{flips} positions differ where elements are nearly equal"
        return Judgment(self.name, Verdict.ACCEPT, reason, {"positions": float(flips)})

    def _tied_in_b(self, attempt: Attempt, k: int, number: int, x: Array, y: Array, choices: Choices) -> bool | None:
        """Whether elements that are equal in the first model are also equal in the second, at any such position.

        None if the tensor from which the second model selects is not known.
        """
        name = attempt.b.info.outputs[attempt.out_pairs[k].b].name
        selection = attempt.b.facts.selections.get(name)
        if selection is None:
            return None
        data = _selected_from(attempt.b, selection.data, attempt.fed[number], attempt.b_options)
        other = None if data is None else chosen_elements(data, selection.axis, x, y)
        if other is None or other.tied.shape != choices.tied.shape:
            return None
        return bool(np.any(choices.tied & other.tied))


def _selected_from(side: Side, name: str, values: Sequence[object], options: RunOptions) -> Array | None:
    """The tensor that positions point to; None if its runtime cannot compute it."""
    assert side.worker is not None
    try:
        return tensor_inside(side.info.path, name, side.worker, side.hidden.given(values), options)
    except OnnxtflError:
        return None
