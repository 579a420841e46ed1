"""The further looks at models whose outputs differ, each of which may find that they agree."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from onnxtfl.checking.criteria.op_by_op import OpLook
from onnxtfl.checking.criteria.quantized import SecondLook
from onnxtfl.checking.criteria.rounding import RoundingLook
from onnxtfl.checking.metrics.comparison import Expectation
from onnxtfl.checking.outputs import Outputs
from onnxtfl.checking.pairing.interface import Pair
from onnxtfl.checking.report import CheckReport

Feeds = Callable[[int], tuple[Sequence[Any], Sequence[Any]]]
"""Number of a run -> the inputs of either model."""


@dataclass
class Looks:
    """How the outputs of two models are paired and compared. ``seconds``: for distances on several inputs.

    ``spent``: seconds that the longest look at each op took until now.
    """

    out_pairs: Sequence[Pair]
    outputs: Outputs
    seconds: Callable[[], float]
    spent: float = 0.0

    def judge(
        self, report: CheckReport, kernels: str, rounding: RoundingLook, moved: bool, feeds: Feeds | None = None
    ) -> CheckReport:
        """The report after the look at quantized models, that at rounding, and that at each op.

        ``feeds``: of further runs; without it quantized models are not looked at. ``moved``: whether inputs have their
        axes in another order.
        """
        sides, settings = (self.outputs.a, self.outputs.b), self.outputs.settings
        expect, options = Expectation(settings.rtol, self.outputs.atol), self.outputs.options
        if feeds is not None:
            quantized = SecondLook(
                *sides, self.out_pairs, feeds, settings.tensors, kernels, options, expect, self.seconds
            )
            report = quantized.judge(report)
        report = rounding.judge(report, kernels)
        if settings.levels is not None:  # a quantized model and a float one: no op agrees within rounding
            return report
        each = OpLook(
            *sides,
            self.out_pairs,
            rounding,
            self.outputs,
            moved,
            settings.tensors,
            options,
            expect,
            settings.patience,
        )
        started = time.perf_counter()
        report = each.judge(report, kernels, self.spent)
        self.spent = max(self.spent, time.perf_counter() - started)
        return report
