"""Comparison on further inputs: if outputs are uninformative, and at other sizes if dimensions are dynamic."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, Protocol

from onnxtfl.checking.criteria.base import Attempt
from onnxtfl.checking.criteria.pre_activation import PreActivation, is_saturated
from onnxtfl.checking.evidence import Verdict
from onnxtfl.checking.inputs.coverage import in_words, unreached
from onnxtfl.checking.models.side import FirstRun
from onnxtfl.checking.pairing.interface import shape_text
from onnxtfl.checking.report import BY_VALUE, CheckReport, InputUsed, with_notes
from onnxtfl.checking.varied_runs import VariedRun
from onnxtfl.errors import OnnxtflError
from onnxtfl.formats import files
from onnxtfl.inputs.goals import Goal, of_second_only
from onnxtfl.inputs.scaling import hardly_changes, scalable, varied
from onnxtfl.inputs.search import search
from onnxtfl.metrics.changes import Changes
from onnxtfl.pipeline import lifted_where_possible
from onnxtfl.runtimes import RunError
from onnxtfl.temporary import Folder

ComparedSets = Callable[[Iterable[list[Any]]], Iterator[VariedRun]]
"""Sets of inputs -> the runs whose outputs were compared."""
FIRST_VARIED, MOST_VARIED, JUDGED = 2, 64, 2
"""The number of the first varied set of inputs, the count of sets, and the most sets beyond the tolerance that are
judged.
"""
REACHING = 10
"""The most compared input sets whose coverage is examined."""
SEARCH_SHARE = 0.5
"""The time for the search for inputs, relative to that for measurements."""
LEAST = 1.0
"""The least time in seconds for the measurement of coverage, and for the search for inputs."""
MOST_BYTES = 4 << 20
"""The size of the largest model whose graph is evaluated to find inputs."""
MADE = "on inputs made to reach more of the model"
Goals = tuple[Sequence[Goal], Sequence[Goal]]
SIZES = 2
"""The most other sizes that are tried until the first model runs."""


class Compared(Protocol):
    """Compares the models on one run."""

    def __call__(self, values: Sequence[Any], choices: Sequence[str], is_unusual: bool = False) -> CheckReport:
        """The report for inputs, and how they were chosen; ``is_unusual``: see `Attempt`."""
        ...


@dataclass(frozen=True)
class FurtherInputs:
    """The runs of the first model, and their comparison. ``compared``: judges a run on other inputs; ``varied_sets``:
    compares many sets by the tolerance alone; ``feed``: inputs of the second model for those of the first. ``ran``:
    the first of the other sets on which the outputs were compared; ``changes``: of each output in all runs.
    """

    done: FirstRun
    attempt: Attempt
    compared: Compared
    varied_sets: ComparedSets
    feed: Callable[[Sequence[Any]], list[Any]]
    ran: list[list[Any]] = field(default_factory=list)
    changes: Mapping[int, Changes] = field(default_factory=lambda: defaultdict(Changes))

    def extend(self, report: CheckReport) -> CheckReport:
        """The report, failed if the models differ on other inputs. Slow models are not run again. For models with
        state, only uninformative outputs are added to the report; for two quantized models, no other sizes are tried.
        """
        if report.status == "failed" and report.outputs:
            return self._with_sizes(report)
        if not report.ok or not self.done.later:
            return report
        report = self._with_dull(report)
        if self.attempt.keeps_state:
            return report
        steps: list[Callable[[CheckReport], CheckReport]] = [self._on_varied]
        if not (self.attempt.a.facts.quantized and self.attempt.b.facts.quantized):
            steps = [self._before_sigmoids, self._on_varied, self._at_another_size, self._at_sizes_of_1]
        for step in steps:
            report = step(report) if report.ok else report
        has_goals = bool(self.attempt.a.goals or self.attempt.b.goals)
        report = self._with_unreached(report) if report.ok and has_goals else report
        return self._with_unchanged(report) if report.ok else report

    def _with_unreached(self, report: CheckReport) -> CheckReport:
        """Return the report on inputs generated for coverage, with the goals that no input reaches."""
        sets = [*self.done.all_values, *self.ran]
        first, second = self.attempt.a.goals, self.attempt.b.goals
        goals = self._unreached((first, of_second_only(first, second)), sets)
        self.ran.clear()
        if any(goals) and self._tolerance_tells(report):
            report = self._judged_on(list(self._made_for(goals, sets)), report, MADE)
            goals = self._unreached(goals, self.ran) if self.ran else goals
        left = (*goals[0], *goals[1])
        if not left or not report.ok:
            return report
        return with_notes(replace(report, unreached=left), in_words(left))

    def _unreached(self, goals: Goals, sets: Sequence[list[Any]]) -> Goals:
        """Return the goals of both models that these inputs do not reach; none if unknown."""
        found, limit = list[list[Goal]](), max(LEAST, SEARCH_SHARE * self.attempt.seconds)
        a, b = (self.attempt.a, goals[0], sets), (self.attempt.b, goals[1], [*map(self.feed, sets)])
        for side, wanted, fed in (a, b):
            try:
                with Folder() as folder:
                    found.append(unreached(side, wanted, fed, self.attempt.options, folder, limit) if wanted else [])
            except OnnxtflError:
                found.append([])
        return found[0], found[1]

    def _made_for(self, goals: Goals, sets: Sequence[list[Any]]) -> Iterator[list[Any]]:
        """Inputs that reach some of the goals, by the semantics of the model's graph; none of large models."""
        until = time.perf_counter() + max(LEAST, SEARCH_SHARE * self.attempt.seconds)
        may = scalable(self.done.values, self.done.choices)
        for side, wanted, feed in ((self.attempt.a, goals[0], list), (self.attempt.b, goals[1], self.feed)):
            large = side.summary.size > MOST_BYTES or side.slots is not None
            if wanted and any(may) and not large and time.perf_counter() < until:
                graph = lifted_where_possible(files.read(side.info.path))
                if len(graph.inputs) == len(side.info.inputs):
                    yield from search(graph, wanted, sets, may, feed, until)

    def _tolerance_tells(self, report: CheckReport) -> bool:
        rounding = any(side.info.hybrid or side.facts.rounds for side in (self.attempt.a, self.attempt.b))
        return not rounding and all(out.accepted_by in BY_VALUE for out in report.outputs)

    def _on_varied(self, report: CheckReport) -> CheckReport:
        """Compare on inputs of other seeds and magnitudes, as many as time allows."""
        if not self._tolerance_tells(report):
            return report
        sets = varied(self.done.again, self.done.values, FIRST_VARIED, MOST_VARIED)
        return self._judged_on(sets, report, "on inputs of another magnitude")

    def _judged_on(self, sets: Iterable[list[Any]], report: CheckReport, where: str) -> CheckReport:
        """The report, failed if the models differ on one of several sets of inputs.

        A set that misses the tolerance is judged by all criteria; a few such sets are enough.
        """
        judged = 0
        for values, outputs, is_missed in self.varied_sets(sets):
            self._note_changes(outputs)
            if len(self.ran) < REACHING:
                self.ran.append(values)
            if not is_missed:
                continue
            try:
                other = self.compared(values, self.done.choices, True)
            except OnnxtflError:
                continue
            judged += 1
            if other.status == "failed":
                return replace(other, reason=f"{where}: {other.reason}", runs=report.runs)
            if judged == JUDGED:
                break
        return report

    def _before_sigmoids(self, report: CheckReport) -> CheckReport:
        """Compare the operands of saturated Sigmoids, unless that was done."""
        outputs = self.done.all_outputs
        checks, criterion = list(report.outputs), PreActivation()
        for k, (pair, check) in enumerate(zip(self.attempt.out_pairs, report.outputs, strict=True)):
            if check.was_accepted_by(criterion.name) or not all(is_saturated(one[pair.a]) for one in outputs):
                continue
            try:
                found = criterion.judgment(self.attempt, k)
            except OnnxtflError:
                continue
            if found is not None and found.verdict is Verdict.INCONCLUSIVE:  # the tolerance does not apply here
                found = replace(found, verdict=Verdict.REJECT)
            checks[k] = check if found is None else check.judged(found)
        wrong = [f"output {check.name!r}: {check.message}" for check in checks if not check.ok]
        report = replace(report, outputs=tuple(checks))
        return replace(report, status="failed", reason=wrong[0]) if wrong else report

    def _with_dull(self, report: CheckReport) -> CheckReport:
        """The report, with a note that names the outputs that hardly depend on the inputs."""
        outputs = self.done.later[0][1]
        pairs = [] if self._is_one_set() else self.attempt.out_pairs
        dull = [p for p in pairs if hardly_changes(self.done.outputs[p.a], outputs[p.a])]
        done = {check.name for check in report.outputs if check.drawn or check.was_accepted_by(PreActivation.name)}
        names = [name for pair in dull if (name := self.attempt.a.info.outputs[pair.a].name) not in done]
        said = f"{', '.join(map(repr, names))}: hardly depend{'s' if len(names) == 1 else ''} on the inputs"
        return with_notes(report, f"{said}, so an error may not show") if names else report

    def _note_changes(self, outputs: Sequence[Any]) -> None:
        for pair in self.attempt.out_pairs:
            self.changes[pair.a].add(outputs[pair.a])

    def _with_unchanged(self, report: CheckReport) -> CheckReport:
        """The report, with a note that names channels of outputs that no inputs changed."""
        if self._is_one_set():
            return report
        for outputs in self.done.all_outputs:
            self._note_changes(outputs)
        names = {pair.a: self.attempt.a.info.outputs[pair.a].name for pair in self.attempt.out_pairs}
        said = [f"{found} of {names[k]!r}" for k, seen in self.changes.items() if (found := seen.constant())]
        if not said:
            return report
        runs = max(seen.runs for seen in self.changes.values())
        return with_notes(report, f"never changed in {runs} runs: {'; '.join(said)}")

    def _is_one_set(self) -> bool:
        """Whether all ordinary runs are on the same inputs, the user's."""
        return all(a is b for a, b in zip(self.done.values, self.done.later[0][0], strict=True))

    def _at_another_size(self, report: CheckReport) -> CheckReport:
        found = self._elsewhere()
        if found is None:
            return report
        if found.status == "failed":
            return replace(found, reason=f"{_sizes(found.inputs)}: {found.reason}")
        return with_notes(report, f"also compared {_sizes(found.inputs)}") if found.ok else report

    def _at_sizes_of_1(self, report: CheckReport) -> CheckReport:
        """Compare at batch 1, and with all dynamic sizes 1. Few models are used at such sizes: a difference there
        excludes these sizes from the verdict.
        """
        for only_batch, values, choices in self.done.units:
            try:
                found = self.compared(values, choices)
            except RunError:
                continue
            where = f"{_sizes(found.inputs)}: {found.reason}"
            if found.status == "failed" and only_batch:
                return replace(found, reason=where)
            if found.status == "failed":
                note = f"excluded from the verdict: the models differ {where}"
                report = with_notes(replace(report, excluded=_sizes(found.inputs)), note)
        return report

    def _elsewhere(self) -> CheckReport | None:
        """The comparison at the next size that the first model accepts; None without one."""
        for values, choices in islice(self.done.elsewhere, SIZES):
            try:
                return self.compared(values, choices)
            except RunError:
                continue
        return None

    def _with_sizes(self, report: CheckReport) -> CheckReport:
        """Add the dynamic sizes at which the models differ to the report."""
        try:
            found = self._elsewhere()
        except OnnxtflError:
            return report
        if found is None or found.status == "not checked":
            return report
        verdict = "they agree" if found.ok else "they differ too"
        note = f"the models differ {_sizes(report.inputs)}; {_sizes(found.inputs)} {verdict}"
        return with_notes(report, note)


def _sizes(inputs: Sequence[InputUsed]) -> str:
    return "at " + ", ".join(f"{spec.name}:{shape_text(spec.shape)}" for spec in inputs)
