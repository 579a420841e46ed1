"""Run the second model on the inputs of the first, on each kernel set, and judge its outputs."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any

from onnxtfl.checking.criteria.base import Attempt, Feeds
from onnxtfl.checking.criteria.judging import Judge
from onnxtfl.checking.criteria.reference import Reference, SourceRun
from onnxtfl.checking.models.fallbacks import fallbacks
from onnxtfl.checking.models.pair import Chosen, ModelPair
from onnxtfl.checking.models.side import Begun, FirstRun
from onnxtfl.checking.pairing.interface import is_moved
from onnxtfl.checking.report import CheckReport, InputUsed, with_notes
from onnxtfl.checking.saving import save_run
from onnxtfl.inputs.description import MismatchError
from onnxtfl.runtimes import RunError

SHARE = 0.5
"""The time to measure distances on several inputs, relative to that of the check until then."""
SLOWER = 4.0
"""If another kernel set takes more than the patience, it may take at most this many times as long as the first."""
UNSTEADY = (
    "LiteRT's default kernels compute other results in a second run of one interpreter, its builtin kernels do not: "
    "run this model without XNNPACK, or create a new interpreter for each run"
)


@dataclass(frozen=True)
class Compared:
    """The report of an attempt; ``chosen``: the axis orders of the inputs, ``kernels``: the set that determined it."""

    report: CheckReport
    chosen: Chosen
    kernels: str


@dataclass
class SecondRun:
    """Both models, a run of the first one (``done``, on set ``case`` of inputs) and when the check ``started``."""

    models: ModelPair
    done: FirstRun
    judge: Judge
    started: float
    stack: ExitStack
    case: int = 0
    _ways: Iterator[str] | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.reference = self._reference(zip(self.done.all_values, self.done.all_outputs, strict=True))

    def compared(self, attempt: int) -> Compared:
        """Run and compare in the layout of an attempt: the report of the main kernel set, or of the first other set
        that disagrees.
        """
        chosen = self.models.chosen(attempt)
        used = self.models.used(chosen, self.done.values, self.done.choices)
        first, *others = self.models.kernels
        begun = {} if attempt else self.done.begun
        report, seconds = self._run(first, chosen, used, begun.get(first))
        report = self._judged_on(first, report, chosen)
        if not report.ok:
            return Compared(self._unlike_in_a_second_run(report, chosen, used), chosen, first)
        for kernels in others:
            limit = self._patience(seconds)
            other, _ = self._run(kernels, chosen, used, begun.get(kernels), limit)
            if limit is not None and other.status == "not checked" and not other.outputs:
                cut = f"{kernels} kernels not compared: {other.reason} ({first}: {seconds:.1f} s)"
                report = with_notes(report, cut)
                continue
            other = self._judged_on(kernels, other, chosen)
            if other.status == "failed":
                return Compared(replace(other, reason=f"with the {kernels} kernels: {other.reason}"), chosen, kernels)
            report = _with_kernels(report, kernels, other)
        return Compared(report, chosen, first)

    def compared_on(
        self, chosen: Chosen, values: Sequence[Any], choices: Sequence[str], is_unusual: bool = False
    ) -> CheckReport:
        """Compare one run on other inputs of the first model. Raises `RunError` if that does not run."""
        outputs = self.models.a.run(values, self.models.options)
        used = self.models.used(chosen, values, choices)
        try:
            got = self.models.b.run(self.models.fed_to_b(chosen, values), self.models.options)
        except RunError as error:
            return self.models.does_not_run(error, used)
        report = self.models.compare([outputs], [got], used)
        attempt = self.attempt(chosen, self.models.options.kernels, reference=self._reference([(values, outputs)]))
        return self.judge.concluded(replace(attempt, is_unusual=is_unusual), report)

    def attempt(
        self, chosen: Chosen, kernels: str, feeds: Feeds | None = None, reference: Reference | None = None
    ) -> Attempt:
        """Return the attempt for the criteria: the runs of ``reference``, by default those of `done`."""
        reference, seconds = reference or self.reference, SHARE * (time.perf_counter() - self.started)
        models, moved = self.models, any(map(is_moved, chosen))
        fed = [models.fed_to_b(chosen, run.values) for run in reference.runs]
        known = models.tolerance, models.outputs, reference, fed, kernels, moved, models.options
        return Attempt(*known, feeds, seconds)

    def _reference(self, runs: Iterable[tuple[Sequence[Any], Sequence[Any]]]) -> Reference:
        return Reference(self.models.a, tuple(SourceRun(*run) for run in runs), self.models.options)

    def _judged_on(self, kernels: str, report: CheckReport, chosen: Chosen) -> CheckReport:
        """The report on a kernel set after all criteria."""

        def feeds(number: int) -> tuple[Sequence[Any], Sequence[Any]]:
            values = self.done.again(number)[0] if number else self.done.values
            return values, self.models.fed_to_b(chosen, values)

        return self.judge.concluded(self.attempt(chosen, kernels, feeds), report)

    def _unlike_in_a_second_run(self, report: CheckReport, chosen: Chosen, used: tuple[InputUsed, ...]) -> CheckReport:
        """The report; passed if only a delegate changes its results from run to run.

        XNNPACK of LiteRT 2.3 computes other results in the second run of some models with dynamic sizes. That is the
        cause, not a state, if each run agrees separately, and all runs agree on the builtin kernels.
        """
        models, wrong = self.models, [out for out in report.outputs if not out.ok]
        several = len(models.kernels) > 1 and not models.keeps_state
        if not wrong or not several or not all(out.run is not None for out in wrong):
            return report
        try:
            alone = [models.b.run(models.fed_to_b(chosen, one), models.options) for one in self.done.all_values]
        except RunError:
            return report
        by_itself = models.compare(self.done.all_outputs, alone, used)
        builtin, _ = self._run(models.kernels[1], chosen, used, None)
        if not by_itself.ok or not builtin.ok or builtin.runs < len(alone):
            return report
        return with_notes(by_itself, UNSTEADY)

    def _patience(self, seconds: float) -> float | None:
        """Return the time limit in seconds for another kernel set if the first took ``seconds``; None: unlimited."""
        patience = self.models.settings.patience
        return None if patience is None else max(patience, SLOWER * max(seconds, self.done.seconds))

    def _run(
        self,
        kernels: str,
        chosen: Chosen,
        used: tuple[InputUsed, ...],
        begun: Begun | None,
        time_limit: float | None = None,
    ) -> tuple[CheckReport, float]:
        """Compare the outputs of runs that have ``begun``, or begin now; returns the seconds that they took too."""
        models, settings, values = self.models, self.models.settings, self.done.all_values
        try:
            expected = self._expected(kernels, values)
            if begun is None:
                begun = models.begin_b(kernels, [models.fed_to_b(chosen, one) for one in values])
            got = begun.result(time_limit)
        except RunError as error:
            if self._changed_b(error):
                return self._run(kernels, chosen, used, None, time_limit)
            return models.does_not_run(models.b.refused or error, used), 0.0
        except MismatchError as error:
            return models.result("failed", str(error), used), 0.0
        if settings.save_outputs is not None and kernels == models.kernels[0]:
            save_run(settings.save_outputs, self.case, (models.a, models.b), values[0], (expected[0], got[0]))
        return models.compare(expected, got, used), begun.run.seconds

    def _changed_b(self, error: RunError) -> bool:
        """Whether a fallback is left for the second model, which its runtime refuses."""
        b = self.models.b
        if self._ways is None and error.kind == "unsupported" and b.info.format == "onnx":
            self._ways = fallbacks(b, error, self.stack)
        return self._ways is not None and next(self._ways, None) is not None

    def _expected(self, kernels: str, values: list[list[Any]]) -> list[list[Any]]:
        """The outputs of each run of the first model, on the same kernels if both are .tflite."""
        a, b = self.models.a, self.models.b
        if a.info.format == b.info.format and kernels != self.models.kernels[0]:
            return a.begin(values, replace(self.models.options, kernels=kernels)).result()
        return self.done.all_outputs


def _with_kernels(report: CheckReport, kernels: str, other: CheckReport) -> CheckReport:
    """Return the report with the notes about another kernel set that agrees."""
    if len(other.notes) > len(report.notes):
        report = replace(other, notes=tuple(f"with the {kernels} kernels: {note}" for note in other.notes))
    if not other.ok:
        report = with_notes(report, f"{kernels} kernels not checked: {other.reason}")
    return report
