"""Run two models on the same inputs and compare the outputs."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial
from typing import Any

from onnxtfl.checking.criteria.base import Attempt, Feeds
from onnxtfl.checking.criteria.judging import Judge
from onnxtfl.checking.criteria.reference import Reference, SourceRun
from onnxtfl.checking.criteria.tolerance import Tolerance
from onnxtfl.checking.further_inputs import FurtherInputs
from onnxtfl.checking.inputs.making import InputMaker
from onnxtfl.checking.inputs.user_data import Case, by_input, combined, unknown_names
from onnxtfl.checking.localize.first_difference import PerLayer
from onnxtfl.checking.metrics.comparison import Expectation
from onnxtfl.checking.models.copies import use_copy_with_weights, use_sorted_copy
from onnxtfl.checking.models.fallbacks import fallbacks, in_words
from onnxtfl.checking.models.sequences import flattened
from onnxtfl.checking.models.side import Begun, FirstRun, Side, judged_refusal
from onnxtfl.checking.pairing.feeding import as_type, dtype_kept, joined_infos
from onnxtfl.checking.pairing.interface import Pair, Permutation, is_moved, match, shape_text
from onnxtfl.checking.report import CheckReport, InputUsed, OutputCheck, worst
from onnxtfl.checking.saving import save_run
from onnxtfl.checking.settings import Settings
from onnxtfl.checking.varied_runs import VariedRuns
from onnxtfl.checking.verdict import concluded, with_uncompared
from onnxtfl.formats import files
from onnxtfl.inputs.description import MismatchError, TensorInfo, with_fixed_sizes
from onnxtfl.inputs.generation import UnknownInputError
from onnxtfl.inputs.sizes import (
    Shapes,
    check_fixed,
    requested,
    sized_by_name,
)
from onnxtfl.runtimes import RunError, RunOptions, Workers, fit_together

PathLike = str | os.PathLike[str]
_SHARE = 0.5
"""The time to measure distances on several inputs, over that of the check until then."""
VARIED_SHARE = 0.25
"""The time for varied inputs, over that of the check until then."""
CHEAP = 0.2
SMALL = 16 << 20
"""Models without state run a second time, on other inputs, where the first run took less than so many seconds, and
neither has more bytes than this: the time of a run says little while other processes compete for the processor.
"""
SLOWER = 4.0
"""How many times longer than the first one another kernel set may take, once it takes more than the patience."""
UNSTEADY = (
    "LiteRT's default kernels compute something else in a second run of one interpreter, its builtin kernels do not: "
    "run this model without XNNPACK, or with a new interpreter for each run"
)


class Check:
    """A check of two models.

    `pairs`, `out_pairs`: inputs and outputs of both models; `done`: the run of the first model on a set of inputs,
    whose number is `case`; `keep`: both models stay loaded for the next one.
    """

    pairs: list[Pair]
    out_pairs: list[Pair]
    done: FirstRun
    case = 0
    keep = False

    def __init__(self, a: PathLike, b: PathLike, settings: Settings, workers: Workers, stack: ExitStack) -> None:
        self.started = time.perf_counter()
        self.settings, self.workers, self.stack = settings, workers, stack
        self.fallbacks_of_b: Iterator[str] | None = None
        self.options = RunOptions(settings.kernels[0], settings.time_limit)
        self.together = fit_together((a, b))
        self.chosen: list[list[Permutation]] = []
        self.judge = Judge(settings.accept)
        self.tried: list[Shapes] = []
        self.failing = settings.kernels[0]
        workers.start(files.sniff(a), files.sniff(b), os.path.getsize(b))
        if self.together:  # while the graphs are read
            workers.load_a(a, self.options)
            workers.load_b(b, self.options)
        self.a, self.b = Side.read(a, workers.a), Side.read(b, workers.b)
        for side in (self.a, self.b):
            use_sorted_copy(side, stack)
            use_copy_with_weights(side, stack)
            if settings.runtime == "micro" and side.info.format == "tflite":
                side.info = with_fixed_sizes(side.info)
        self.a.flatten(self.b.info)
        self.b.flatten(self.a.info)
        names = [{spec.name for spec in side.info.inputs} for side in (self.a, self.b)]
        self.a.hide(names[1])
        self.b.hide(names[0])
        self.tolerance = Tolerance(self.a, self.b, settings)

    def report(self, cases: Sequence[Case]) -> CheckReport:
        """The report, without the settings: of the first set of inputs on which the models do not agree, or of all."""
        unknown_names(self.settings.input_ranges, self.a.info.inputs, self.b.info.inputs)
        if self.workers.problem:
            return self._result("not checked", self.workers.problem)
        try:
            self.pairs = self._match_inputs()
            self.out_pairs = self._match(self.a.info.outputs, self.b.info.outputs, "output")
        except MismatchError as error:
            return self._result("failed", str(error))
        self.keep = len(cases) > 1
        attempts = range(max((len(pair.permutations) for pair in self.pairs), default=1))
        reports: list[CheckReport] = []
        for self.case, case in enumerate(cases):
            found = list(self._reports(case, attempts))
            report, attempt = found[-1] if found[-1][0].status != "failed" else found[0]
            report = self._on_more_inputs(report) if self.chosen and not self.case else report
            if not report.ok:
                where = f" (on {case.label})" if case.label else ""
                report = replace(report, reason=report.reason + where)
                return self._per_layer(report) if self.settings.per_layer and self.chosen else report
            attempts = range(attempt, attempt + 1)
            reports.append(report)
        outputs = [(self.a.info.outputs[pair.a], self.b.info.outputs[pair.b]) for pair in self.out_pairs]
        agreed = with_uncompared(combined(reports), outputs)
        return self._per_layer(agreed) if self.settings.per_layer else agreed

    def _reports(self, case: Case, attempts: Iterable[int]) -> Iterator[tuple[CheckReport, int]]:
        """The reports on a set of inputs: where the shapes leave the layout open, of each layout until one agrees."""
        self.chosen = []
        try:
            given = flattened(self.a.slots, self.a.info.inputs, case.arrays())
            self.done = self._run_a_somehow(by_input(given, self.a.info.inputs, self.b.info.inputs, self.pairs))
            self.reference = self._reference([(self.done.values, self.done.outputs), *self.done.later])
        except UnknownInputError as error:
            yield self._result("not checked", str(error)), 0
        except MismatchError as error:  # values of another kind than the model declares
            yield self._result("failed", str(error)), 0
        except RunError as error:
            yield self._result("not checked", f"the first model does not run: {error}{self._tried}"), 0
        else:
            for attempt in attempts:
                report = self._run_b(attempt)
                yield report, attempt
                if report.status != "failed":
                    return

    @property
    def _tried(self) -> str:
        """The sizes at which the first model did not run, and how to give others; "" for known sizes."""
        sizes, shapes = self.settings.dims, self.settings.input_shapes
        asked = [f"{name}={size}" for name, size in sizes.items()]
        asked += [f"{name}:{shape_text(shape)}" for name, shape in shapes.items()]
        if asked:
            return f"; it may not take the sizes that were asked for: {', '.join(asked)}"
        if len(self.tried) < 2:
            return ""
        names = [info.name for info in self.a.info.inputs]
        shown = ["; ".join(f"{n}:{shape_text(s)}" for n, s in zip(names, shapes, strict=True)) for shapes in self.tried]
        return f" (tried {len(shown)} times, first at {shown[0]}); give sizes that fit with --dim or --input-shape"

    def _per_layer(self, report: CheckReport) -> CheckReport:
        """The report with what the tensors inside of both models say, on the first run in which one differs."""
        found = [self._per_layer_of(report, self.done.values)]
        later = iter(self.done.later if report.status == "failed" else ())
        while found[-1].first_difference is None and (run := next(later, None)) is not None:
            found.append(self._per_layer_of(report, run[0]))
        return found[-1] if found[-1].first_difference else found[0]

    def _per_layer_of(self, report: CheckReport, values: list[Any]) -> CheckReport:
        chosen = self.chosen[0 if report.status == "failed" else -1]
        fed = values, self._inputs_of_b(chosen, values)
        names = [(self.a.info.outputs[p.a].name, self.b.info.outputs[p.b].name) for p in self.out_pairs]
        expect = Expectation(self.settings.rtol, self.tolerance.atol)
        record = self.settings.tensors
        return PerLayer(self.a, self.b, fed, names, record, self.failing, self.options, expect).extend(report)

    def _on_more_inputs(self, report: CheckReport) -> CheckReport:
        """The report after runs on other inputs, where those before say little or sizes are open."""
        chosen = self.chosen[0 if report.status == "failed" else -1]
        attempt = self._attempt(self.reference, chosen, self.settings.kernels[0])
        varied, feed = partial(self._varied_on, chosen), partial(self._inputs_of_b, chosen)
        more = FurtherInputs(self.a, self.b, self.out_pairs, self.done, attempt, self._compared_on, varied, feed)
        return more.extend(report, chosen)

    def _compared_on(
        self, values: Sequence[Any], choices: Sequence[str], chosen: list[Permutation], is_unusual: bool = False
    ) -> CheckReport:
        """Compare one run on these inputs of the first model. Raises `RunError` where that does not run."""
        outputs = self.a.run(values, self.options)
        used = tuple(map(self._used, self.pairs, chosen, values, choices))
        try:
            got = self.b.run(self._inputs_of_b(chosen, values), self.options)
        except RunError as error:
            return self._does_not_run(error, used)
        report = self._compare([outputs], [got], used)
        attempt = self._attempt(self._reference([(values, outputs)]), chosen, self.options.kernels)
        return self._judged(report, replace(attempt, is_unusual=is_unusual))

    def _varied_on(self, chosen: list[Permutation], sets: Iterable[list[Any]]) -> Iterator[tuple[list[Any], bool]]:
        """As many of several sets of inputs as there is time for, and whether the outputs miss the tolerance there."""
        until = time.perf_counter() + VARIED_SHARE * (time.perf_counter() - self.started)
        runs = VariedRuns(self.tolerance, self.out_pairs, self.options, self.done.outputs, any(map(is_moved, chosen)))
        return runs.compared(sets, partial(self._inputs_of_b, chosen), until)

    def _does_not_run(self, error: RunError, used: tuple[InputUsed, ...]) -> CheckReport:
        """The report where the second model does not run: no failure where the first one refuses these values too."""
        return self._result(*judged_refusal(self.a, error), used)

    def _match(self, a: Sequence[TensorInfo], b: Sequence[TensorInfo], what: str) -> list[Pair]:
        return match(a, b, what, self.settings.layout, self.settings.tensors)

    def _match_inputs(self) -> list[Pair]:
        """Pair the inputs; where the shapes prove that one was permuted, permuted ones come first for all others."""
        a, b = self.a.info.inputs, self.b.info.inputs
        pairs = self._match(a, b, "input")
        if self.settings.layout == "auto" and any(pair.moved for pair in pairs):
            pairs = match(a, b, "input", "channels-last")
        return pairs

    def _run_a_somehow(self, given: Mapping[str, Any]) -> FirstRun:
        """Run the first model, in another way where its runtime refuses it."""
        try:
            return self._run_a(given)
        except RunError as error:
            for _ in fallbacks(self.a, error, self.stack):
                with suppress(RunError):
                    return self._run_a(given)
            raise

    def _run_a(self, given: Mapping[str, Any]) -> FirstRun:
        """Run the first model on the first sizes that it accepts, preferably such that no output is empty."""
        infos = joined_infos(self.a.info.inputs, self.b.info.inputs, self.pairs)
        names = {self.b.info.inputs[pair.b].name: infos[pair.a].name for pair in self.pairs}
        infos = sized_by_name(requested(infos, self.settings.input_shapes, names), self.settings.dims)
        if self.a.info.format == "onnx":
            check_fixed(self.a.info.inputs, self.settings.input_shapes, names)
        fixed = {name: array.shape for name, array in given.items()}
        failures, empty = list[RunError](), list[FirstRun]()
        maker = InputMaker(self.a, self.b, self.pairs, self.settings, infos, self.case)
        tries = maker.shapes(fixed, failures)
        for shapes in tries:
            again = partial(maker.make, shapes, given)
            values, choices = again(0)
            later = [again(k)[0] for k in range(1, self._runs)]
            begun: dict[str, Begun] = {}
            try:
                keep = self.keep and not self.a.keeps_state
                first = self.a.begin([values, *later], replace(self.options, spare=self._spare, keep=keep))
                if self.together and not failures and not empty:
                    begun = self._begin_kernels(values, later)
                outputs, *others = first.result()
                rest = list(zip(later, others, strict=False))  # fewer where the first run was slow
                run = FirstRun(values, choices, outputs, again, rest, first.run.seconds, begun)
            except RunError as error:
                for unneeded in begun.values():
                    unneeded.run.cancel()
                failures.append(error)
                self.tried.append(shapes)
                if error.kind != "run":
                    break
                continue
            if all(getattr(out, "size", 1) for out in run.outputs):
                run.elsewhere = maker.elsewhere(tries, values, given)
                run.units = maker.units(shapes, given)
                return run
            empty.append(run)
        if not empty:
            raise failures[0]
        return empty[0]

    def _run_b(self, attempt: int) -> CheckReport:
        """Run the second model on the inputs of the first and compare.

        Returns the report of the main kernel set, or of the first other one that disagrees.
        """
        chosen = self._chosen(attempt)
        self.chosen.append(chosen)
        used = tuple(map(self._used, self.pairs, chosen, self.done.values, self.done.choices))
        first, *others = self._kernels
        begun, self.done.begun = self.done.begun, {}  # these are of the first attempt
        report, seconds = self._run_kernels(first, chosen, used, begun.get(first))
        report = self._judged_on(first, report, chosen)
        if not report.ok:
            return self._unlike_in_a_second_run(report, chosen, used)
        for kernels in others:
            limit = self._patience(seconds)
            other, _ = self._run_kernels(kernels, chosen, used, begun.get(kernels), limit)
            if limit is not None and other.status == "not checked" and not other.outputs:
                cut = f"{kernels} kernels not compared: {other.reason} ({first}: {seconds:.1f} s)"
                report = replace(report, notes=(*report.notes, cut))
                continue
            other = self._judged_on(kernels, other, chosen)
            if other.status == "failed":
                self.failing = kernels
                return replace(other, reason=f"with the {kernels} kernels: {other.reason}")
            if len(other.notes) > len(report.notes):
                report = replace(other, notes=tuple(f"with the {kernels} kernels: {note}" for note in other.notes))
            if not other.ok:
                report = replace(report, notes=(*report.notes, f"{kernels} kernels not checked: {other.reason}"))
        return report

    def _unlike_in_a_second_run(
        self, report: CheckReport, chosen: list[Permutation], used: tuple[InputUsed, ...]
    ) -> CheckReport:
        """The report; passed where only a delegate changes its results from run to run.

        XNNPACK of LiteRT 2.3 computes something else in the second run of some models with sizes that only a run
        knows. It is that, and no state, where every run by itself agrees, and all runs on the builtin kernels do.
        """
        wrong = [out for out in report.outputs if not out.ok]
        several = len(self._kernels) > 1 and not self.b.keeps_state and not self.a.keeps_state
        if not wrong or not several or not all(out.run is not None for out in wrong):
            return report
        values = [self.done.values, *(values for values, _ in self.done.later)]
        expected = [self.done.outputs, *(outputs for _, outputs in self.done.later)]
        try:
            alone = [self.b.run(self._inputs_of_b(chosen, one), self.options) for one in values]
        except RunError:
            return report
        by_itself = self._compare(expected, alone, used)
        builtin, _ = self._run_kernels(self._kernels[1], chosen, used, None)
        if not by_itself.ok or not builtin.ok or builtin.runs < len(values):
            return report
        return replace(by_itself, notes=(*by_itself.notes, UNSTEADY))

    @property
    def _kernels(self) -> tuple[str, ...]:
        """The kernel sets on which the second model runs."""
        several = self.b.info.format == "tflite" and self.settings.runtime != "micro"
        return self.settings.kernels if several else self.settings.kernels[:1]

    def _patience(self, seconds: float) -> float | None:
        """How many seconds another kernel set may take, where the first took ``seconds``; None: any."""
        patience = self.settings.patience
        return None if patience is None else max(patience, SLOWER * max(seconds, self.done.seconds))

    def _chosen(self, attempt: int) -> list[Permutation]:
        return [pair.permutations[min(attempt, len(pair.permutations) - 1)] for pair in self.pairs]

    def _begin_kernels(self, values: list[Any], later: list[list[Any]]) -> dict[str, Begun]:
        """Begin to run the second model on all kernel sets; nothing where that cannot begin."""
        chosen = self._chosen(0)
        fed = [self._inputs_of_b(chosen, one) for one in (values, *later)]
        try:
            return {kernels: self._begin_b(kernels, fed) for kernels in self._kernels}
        except RunError:
            return {}

    @property
    def _runs(self) -> int:
        """How often the models run, one run after the other, on other inputs each time: with state, so many times as
        the settings say, else a second time where that is cheap.
        """
        if self.a.keeps_state or self.b.keeps_state:
            return self.settings.steps
        sizes = [side.summary.size for side in (self.a, self.b) if side.summary is not None]
        return min(self.settings.steps, 2) if max(sizes, default=0) <= SMALL else 1

    @property
    def _spare(self) -> float:
        return 0.0 if self.a.keeps_state or self.b.keeps_state else CHEAP

    def _begin_b(self, kernels: str, fed: list[list[Any]]) -> Begun:
        """Begin to run the second model on the inputs of each run."""
        main, keep = kernels == self._kernels[0], self.keep and not self.b.keeps_state
        options = replace(self.options, kernels=kernels, spare=self._spare, keep=keep)
        return self.b.begin(fed, options, None if main else self.workers.other)

    def _judged_on(self, kernels: str, report: CheckReport, chosen: list[Permutation]) -> CheckReport:
        """The report on a kernel set after all criteria."""

        def feeds(number: int) -> tuple[Sequence[Any], Sequence[Any]]:
            values = self.done.again(number)[0] if number else self.done.values
            return values, self._inputs_of_b(chosen, values)

        return self._judged(report, self._attempt(self.reference, chosen, kernels, feeds))

    def _judged(self, report: CheckReport, attempt: Attempt) -> CheckReport:
        """The report after the criteria, where outputs missed the tolerance or were not compared."""
        if not report.outputs or not all(spec.ok for spec in report.inputs):
            return report
        found = self.judge.judge(attempt, report.outputs)
        return concluded(report, found)

    def _reference(self, runs: Sequence[tuple[Sequence[Any], Sequence[Any]]]) -> Reference:
        return Reference(self.a, tuple(SourceRun(*run) for run in runs), self.options)

    def _attempt(
        self, reference: Reference, chosen: list[Permutation], kernels: str, feeds: Feeds | None = None
    ) -> Attempt:
        return Attempt(
            self.a,
            self.b,
            self.out_pairs,
            reference,
            [self._inputs_of_b(chosen, run.values) for run in reference.runs],
            kernels,
            any(map(is_moved, chosen)),
            self.settings,
            self.options,
            feeds,
            _SHARE * (time.perf_counter() - self.started),
        )

    def _inputs_of_b(self, chosen: list[Permutation], values: Sequence[Any]) -> list[Any]:
        result: list[Any] = [None] * len(self.pairs)
        for pair, permutation, value in zip(self.pairs, chosen, values, strict=True):
            moved = value.transpose(permutation) if is_moved(permutation) else value
            result[pair.b] = as_type(moved, self.a.info.inputs[pair.a], self.b.info.inputs[pair.b])
        return result

    def _used(self, pair: Pair, permutation: Permutation, value: Any, choice: str) -> InputUsed:
        """How an input is fed, and whether the second model has the expected type for it."""
        a, b = self.a.info.inputs[pair.a], self.b.info.inputs[pair.b]
        notes = [f"axes {list(permutation)}"] if is_moved(permutation) else []
        notes += [f"{a.dtype} became {b.dtype}"] if a.dtype != b.dtype else []
        kept, moved = dtype_kept(a, b), is_moved(permutation)
        return InputUsed(a.name, a.dtype, tuple(value.shape), choice, ", ".join(notes), kept, moved)

    def _run_kernels(
        self,
        kernels: str,
        chosen: list[Permutation],
        used: tuple[InputUsed, ...],
        begun: Begun | None,
        time_limit: float | None = None,
    ) -> tuple[CheckReport, float]:
        """Compare the outputs of runs that have ``begun``, or begin now; returns the seconds that they took too."""
        values = [self.done.values, *(values for values, _ in self.done.later)]
        try:
            expected = self._expected(kernels, values)
            if begun is None:
                begun = self._begin_b(kernels, [self._inputs_of_b(chosen, one) for one in values])
            got = begun.result(time_limit)
        except RunError as error:
            if self._changed_b(error):
                return self._run_kernels(kernels, chosen, used, None, time_limit)
            return self._does_not_run(self.b.refused or error, used), 0.0
        except MismatchError as error:
            return self._result("failed", str(error), used), 0.0
        if self.settings.save_outputs is not None and kernels == self._kernels[0]:
            save_run(self.settings.save_outputs, self.case, (self.a, self.b), values[0], (expected[0], got[0]))
        return self._compare(expected, got, used), begun.run.seconds

    def _changed_b(self, error: RunError) -> bool:
        """Whether the second model, of which its runtime does not know something, may run in another way now."""
        if self.fallbacks_of_b is None and error.kind == "unsupported" and self.b.info.format == "onnx":
            self.fallbacks_of_b = fallbacks(self.b, error, self.stack)
        return self.fallbacks_of_b is not None and next(self.fallbacks_of_b, None) is not None

    def _expected(self, kernels: str, values: list[list[Any]]) -> list[list[Any]]:
        """The outputs of each run of the first model, on the same kernels where both are .tflite."""
        if self.a.info.format == self.b.info.format and kernels != self._kernels[0]:
            return self.a.begin(values, replace(self.options, kernels=kernels)).result()
        return [self.done.outputs, *(outputs for _, outputs in self.done.later)]

    def _compare(
        self,
        wanted: Sequence[Sequence[Any]],
        got: Sequence[Sequence[Any]],
        used: tuple[InputUsed, ...],
    ) -> CheckReport:
        """Compare the outputs of each run."""
        moved = any(spec.moved for spec in used)
        runs = list(zip(wanted, got, strict=False))  # one of the two may have left out the second run
        outputs = tuple(
            worst([self.tolerance.compare(pair, x[pair.a], y[pair.b], moved) for x, y in runs])
            for pair in self.out_pairs
        )
        wrong = [f"input {spec.name!r}: {spec.note}" for spec in used if not spec.ok]
        wrong += [f"output {out.name!r}: {out.problem}" for out in outputs if not out.ok]
        report = self._result("failed" if wrong else "passed", wrong[0] if wrong else "", used, outputs)
        return replace(report, runs=len(runs))

    def _result(
        self, status: Any, reason: str, used: tuple[InputUsed, ...] = (), outputs: tuple[OutputCheck, ...] = ()
    ) -> CheckReport:
        notes = [in_words(which, side) for which, side in (("first", self.a), ("second", self.b)) if side.way]
        return CheckReport(status, reason, used, outputs, runtimes=tuple(self.workers.runtimes), notes=tuple(notes))
