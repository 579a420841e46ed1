"""Compare two models on the same inputs: prepare them, run both, judge the outputs, localize differences."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from onnxtfl.checking.criteria.base import Criterion
from onnxtfl.checking.criteria.distribution import Distribution
from onnxtfl.checking.criteria.emulation_distance import EmulationDistance
from onnxtfl.checking.criteria.float32_reference import Float32Reference
from onnxtfl.checking.criteria.judging import Judge, with_uncompared
from onnxtfl.checking.criteria.near_ties import NearTies
from onnxtfl.checking.criteria.op_by_op import OpByOp
from onnxtfl.checking.criteria.pre_activation import PreActivation
from onnxtfl.checking.criteria.rounding_noise import RoundingNoise
from onnxtfl.checking.first_run import Tried, run_somehow
from onnxtfl.checking.float16 import with_float16
from onnxtfl.checking.further_inputs import FurtherInputs
from onnxtfl.checking.inputs.user_data import Case, Inputs, by_input, cases_of, combined, split_cases, unknown_names
from onnxtfl.checking.localize.first_difference import PerLayer
from onnxtfl.checking.localize.third_opinion import with_third_opinion
from onnxtfl.checking.models.pair import Chosen, ModelPair
from onnxtfl.checking.models.sequences import flattened
from onnxtfl.checking.models.side import FirstRun
from onnxtfl.checking.pairing.interface import is_moved
from onnxtfl.checking.profiling import with_models
from onnxtfl.checking.quantized import SIMILAR, compared_by_cosine, for_quantized, least_cosine, with_advice
from onnxtfl.checking.report import CheckReport, with_notes
from onnxtfl.checking.second_run import Compared, SecondRun
from onnxtfl.checking.settings import Settings
from onnxtfl.checking.varied_runs import VariedRun, VariedRuns
from onnxtfl.errors import UnsupportedError, UsageError
from onnxtfl.formats import files
from onnxtfl.inputs.description import MismatchError
from onnxtfl.inputs.generation import UnknownInputError
from onnxtfl.ir.data import PathLike
from onnxtfl.runtimes import GPU, RunError, Workers, shortage
from onnxtfl.tracing.real_source import real_source

VARIED_SHARE = 0.25
"""The time for varied inputs, relative to that of the check until then."""


def check_models(
    a: PathLike,
    b: PathLike,
    settings: Settings | None = None,
    inputs: Inputs = None,
    workers: Workers | None = None,
) -> CheckReport:
    """Compare the .onnx or .tflite model ``b`` with ``a``, the reference.

    ``inputs``: arrays by name, for some or all inputs (the rest are generated), several such sets, or the path of a
    file or directory that has them. ``workers``: processes that were started before, and stay open. Returns a report
    whenever both files can be read; raises `InvalidModelError`, and `UsageError` for an unknown input name.
    """
    started = time.perf_counter()
    settings = settings or Settings()
    if settings.runtime is not None and "tflite" not in map(files.sniff, (a, b)):
        raise UsageError("`runtime` selects the runtime of a .tflite model, but both models are .onnx")
    cases = cases_of(inputs, settings.random, settings.seed)
    if missing := shortage((a, b)):
        return CheckReport("not checked", missing, rtol=settings.rtol, atol=settings.atol, seed=settings.seed)
    with ExitStack() as stack:
        stack.enter_context(np.errstate(all="ignore"))  # values of models, and errors of them, may be infinite
        try:
            workers = workers or stack.enter_context(Workers(settings.runtime))
            real = _real_reference(a, settings, inputs, stack)
            a = a if real is None else real[0]
            settings = for_quantized(settings, a, b)
            models = ModelPair.read(a, b, settings, workers, stack)
            cases = cases if inputs is None else split_cases(cases, models.a.info.inputs, models.b.info.inputs)
            report = Session(models, Judge(criteria(), settings.accept), started, stack).report(cases)
            report = with_models(report, (models.a, models.b), settings)
            report = with_advice(report, settings) if inputs is None else report
            report = report if real is None else with_notes(report, real[1])
        except UnsupportedError as error:  # a kind of value, or an op, that the readers do not know
            report = CheckReport("not checked", str(error))
    seconds = time.perf_counter() - started
    return replace(report, rtol=settings.rtol, atol=settings.atol, seed=settings.seed, seconds=seconds)


def _real_reference(a: PathLike, settings: Settings, inputs: Inputs, stack: ExitStack) -> tuple[Path, str] | None:
    """The source in float32 and a note, if the second model computes on real values of quantized tensors.

    The copy is written by a conversion of this package, so it is used only if its outputs are similar to the source's.
    """
    if not (settings.in_float32 or settings.runtime == GPU.name):
        return None
    if (real := real_source(Path(a), stack)) is None:
        return None
    cosine = least_cosine(check_models(real, a, compared_by_cosine(settings), inputs))
    note = f"compared with the source in float32, as the target computes (cosine {cosine:.3f} to the quantized source)"
    return (real, note) if cosine >= SIMILAR else None


def criteria() -> tuple[Criterion, ...]:
    """The criteria that judge outputs beyond the tolerance, in their order."""
    further = NearTies(), Float32Reference(), PreActivation(), RoundingNoise(), OpByOp(), EmulationDistance()
    return (Distribution(), *further)


@dataclass(frozen=True)
class Outcome:
    """A report on a set of inputs, and the runs; no runs if the models did not run."""

    report: CheckReport
    run: SecondRun | None = None
    compared: Compared | None = None


@dataclass(frozen=True)
class Session:
    """Two models, and when the check of them ``started``."""

    models: ModelPair
    judge: Judge
    started: float
    stack: ExitStack

    def report(self, cases: Sequence[Case]) -> CheckReport:
        """The report, without the settings: of the first set of inputs on which the models differ, or of all sets."""
        models = self.models
        unknown_names(models.settings.input_ranges, models.a.info.inputs, models.b.info.inputs)
        if models.workers.problem:
            return models.result("not checked", models.workers.problem)
        try:
            matched = models.matched(keep=len(cases) > 1)
            return _where_defined(replace(self, models=matched)._on_cases(cases), matched)
        except MismatchError as error:
            return models.result("failed", str(error))

    def _on_cases(self, cases: Sequence[Case]) -> CheckReport:
        models, reports = self.models, list[CheckReport]()
        for number, case in enumerate(cases):
            found = list(self._outcomes(models, number, case))
            outcome = found[-1] if found[-1].report.status != "failed" else found[0]
            report = outcome.report if number else self._on_more_inputs(outcome)
            if not report.ok:
                report = self._in_float16(self._with_opinion(report, outcome), outcome)
                where = f" (on {case.label})" if case.label else ""
                return self._by_layers(replace(report, reason=report.reason + where), outcome)
            models = models if outcome.compared is None else models.with_orders(outcome.compared.chosen)
            reports.append(report)
        infos = self.models.a.info.outputs, self.models.b.info.outputs
        agreed = with_uncompared(combined(reports), [(infos[0][p.a], infos[1][p.b]) for p in self.models.outputs])
        return self._by_layers(self._in_float16(agreed, outcome), outcome)

    def _with_opinion(self, report: CheckReport, outcome: Outcome) -> CheckReport:
        """The report with the opinion of the neutral ops, if the runtimes disagree."""
        run, compared = outcome.run, outcome.compared
        if report.status != "failed" or not report.outputs or run is None or compared is None:
            return report
        return with_third_opinion(report, run.models, run.done, compared.chosen)

    def _in_float16(self, report: CheckReport, outcome: Outcome) -> CheckReport:
        """The report with both models simulated in float16 on the last set of inputs, if requested."""
        run, compared = outcome.run, outcome.compared
        settings = self.models.settings
        wanted = settings.precision is not None or settings.runtime == "gpu"  # which computes in float16 by default
        if not wanted or run is None or compared is None:
            return report
        return with_float16(report, run.models, run.done.values, run.done.outputs, compared.chosen)

    def _outcomes(self, models: ModelPair, number: int, case: Case) -> Iterator[Outcome]:
        """Yield the outcomes on an input set, for each compatible layout until one agrees."""
        tried = Tried()
        a, b = models.a.info.inputs, models.b.info.inputs
        try:
            given = by_input(flattened(models.a.slots, a, case.arrays()), a, b, models.inputs)
            done = run_somehow(models, given, number, tried, self.stack)
        except UnknownInputError as error:
            yield Outcome(models.result("not checked", str(error)))
        except MismatchError as error:  # values of another kind than the model declares
            yield Outcome(models.result("failed", str(error)))
        except RunError as error:
            reason = f"the first model does not run: {error}{tried.in_words(a, models.settings)}"
            yield Outcome(models.result("not checked", reason))
        else:
            run = SecondRun(models, done, self.judge, self.started, self.stack, number)
            for attempt in models.attempts:
                compared = run.compared(attempt)
                yield Outcome(compared.report, run, compared)
                if compared.report.status != "failed":
                    return

    def _on_more_inputs(self, outcome: Outcome) -> CheckReport:
        """Return the report after runs on further inputs, if results are uninformative or sizes are dynamic."""
        run, compared, models = outcome.run, outcome.compared, self.models
        if run is None or compared is None:
            return outcome.report
        chosen, kernels = compared.chosen, models.settings.kernels[0]
        varied, feed = partial(self._varied_on, run.done, chosen), partial(models.fed_to_b, chosen)
        known = run.done, run.attempt(chosen, kernels), partial(run.compared_on, chosen)
        return FurtherInputs(*known, varied, feed).extend(outcome.report)

    def _varied_on(self, done: FirstRun, chosen: Chosen, sets: Iterable[list[Any]]) -> Iterator[VariedRun]:
        """Runs on as many of several sets of inputs as there is time for."""
        until = time.perf_counter() + VARIED_SHARE * (time.perf_counter() - self.started)
        models, moved = self.models, any(map(is_moved, chosen))
        runs = VariedRuns(models.tolerance, models.outputs, models.options, done.outputs, moved)
        return runs.compared(sets, partial(models.fed_to_b, chosen), until)

    def _by_layers(self, report: CheckReport, outcome: Outcome) -> CheckReport:
        """Return the report with the comparison of inner tensors, on the first run that differs."""
        run, compared = outcome.run, outcome.compared
        if not self.models.settings.per_layer or run is None or compared is None:
            return report
        layers = partial(self._by_layers_of, report, compared)
        found = [layers(run.done.values)]
        later = iter(run.done.later if report.status == "failed" else ())
        while found[-1].first_difference is None and (next_ := next(later, None)) is not None:
            found.append(layers(next_[0]))
        return found[-1] if found[-1].first_difference else found[0]

    def _by_layers_of(self, report: CheckReport, compared: Compared, values: list[Any]) -> CheckReport:
        fed = self.models.fed_to_b(compared.chosen, values)
        return PerLayer(self.models, values, fed, compared.kernels).extend(report)


def _where_defined(report: CheckReport, models: ModelPair) -> CheckReport:
    """The report; "not checked" instead of "failed" if a variable is read that only another entry point writes.

    LiteRT's READ_VARIABLE returns the memory of such a variable, whatever is in it.
    """
    names = [*models.a.hidden.unwritten, *models.b.hidden.unwritten]
    if report.status != "failed" or not names:
        return report
    reason = f"the variable {names[0]!r} has no value until another entry point writes one; {report.reason}"
    return replace(report, status="not checked", reason=reason)
