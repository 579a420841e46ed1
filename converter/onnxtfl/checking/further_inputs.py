"""Compare on other inputs too: where outputs say little, and at other sizes where dimensions are open."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from onnxtfl.checking.criteria.base import Attempt
from onnxtfl.checking.criteria.pre_activation import PreActivation, is_saturated
from onnxtfl.checking.evidence import Verdict
from onnxtfl.checking.inputs.scaling import hardly_changes, scaled
from onnxtfl.checking.models.side import FirstRun, Side
from onnxtfl.checking.pairing.interface import Pair, Permutation, shape_text
from onnxtfl.checking.report import CheckReport, InputUsed
from onnxtfl.errors import OnnxtflError
from onnxtfl.runtimes import RunError

SIZES = 2
"""How many other sizes are tried until the first model runs."""
Compared = Callable[[Sequence[Any], Sequence[str], list[Permutation]], CheckReport]
"""Inputs, how they were chosen, layout -> report of one run."""


@dataclass(frozen=True)
class FurtherInputs:
    """Both models and what they were compared on. ``compared``: compares on other inputs."""

    a: Side
    b: Side
    out_pairs: Sequence[Pair]
    done: FirstRun
    attempt: Attempt
    compared: Compared

    def extend(self, report: CheckReport, chosen: list[Permutation]) -> CheckReport:
        """The report, failed where the models differ on other inputs. Slow models are left out; of those with state,
        and of quantized ones, only outputs are named that say little.
        """
        if report.status == "failed" and report.outputs:
            return self._say_where(report, chosen)
        if not report.ok or not self.done.later:
            return report
        if self.a.keeps_state or self.b.keeps_state or (self.a.facts.quantized and self.b.facts.quantized):
            return self._varied(report, chosen, further=False)
        report = self._before_sigmoids(report)
        report = self._varied(report, chosen) if report.ok else report
        report = self._at_another_size(report, chosen) if report.ok else report
        return self._at_sizes_of_1(report, chosen) if report.ok else report

    def _before_sigmoids(self, report: CheckReport) -> CheckReport:
        """Compare what Sigmoids read that are saturated, unless that was done."""
        outputs = [self.done.outputs, *(outputs for _, outputs in self.done.later)]
        checks, criterion = list(report.outputs), PreActivation()
        for k, (pair, check) in enumerate(zip(self.out_pairs, report.outputs, strict=True)):
            if check.was_accepted_by(criterion.name) or not all(is_saturated(one[pair.a]) for one in outputs):
                continue
            try:
                found = criterion.judgment(self.attempt, k)
            except OnnxtflError:
                continue
            if found is not None and found.verdict is Verdict.INCONCLUSIVE:  # the tolerance says nothing here
                found = replace(found, verdict=Verdict.REJECT)
            checks[k] = check if found is None else check.judged(found)
        wrong = [f"output {check.name!r}: {check.message}" for check in checks if not check.ok]
        report = replace(report, outputs=tuple(checks))
        return replace(report, status="failed", reason=wrong[0]) if wrong else report

    def _varied(self, report: CheckReport, chosen: list[Permutation], further: bool = True) -> CheckReport:
        """Compare on larger and smaller inputs where outputs hardly depend on them."""
        values, outputs = self.done.later[0]
        same = all(a is b for a, b in zip(self.done.values, values, strict=True))
        dull = [] if same else [p for p in self.out_pairs if hardly_changes(self.done.outputs[p.a], outputs[p.a])]
        done = {
            check.name for check in report.outputs if check.was_accepted_by(PreActivation.name)
        } | self.a.facts.drawn
        dull = [pair for pair in dull if self.a.info.outputs[pair.a].name not in done]
        names = ", ".join(repr(self.a.info.outputs[pair.a].name) for pair in dull)
        for factor, more in scaled(values, self.done.choices) if dull and further else ():
            try:
                other = self.compared(more, self.done.choices, chosen)
            except OnnxtflError:
                continue
            if other.status == "failed":
                return replace(other, reason=f"for inputs of {factor:g} times the size: {other.reason}")
        note = f"{names}: hardly depend{'s' if len(dull) == 1 else ''} on the inputs, so an error may not show"
        return replace(report, notes=(*report.notes, note)) if dull else report

    def _at_another_size(self, report: CheckReport, chosen: list[Permutation]) -> CheckReport:
        found = self._elsewhere(chosen)
        if found is None:
            return report
        if found.status == "failed":
            return replace(found, reason=f"{_sizes(found.inputs)}: {found.reason}")
        return replace(report, notes=(*report.notes, f"also compared {_sizes(found.inputs)}")) if found.ok else report

    def _at_sizes_of_1(self, report: CheckReport, chosen: list[Permutation]) -> CheckReport:
        """Compare at batches of 1, and where all open sizes are 1, at which few models are used: a difference there is
        a note.
        """
        for only_batch, values, choices in self.done.units:
            try:
                found = self.compared(values, choices, chosen)
            except RunError:
                continue
            where = f"{_sizes(found.inputs)}: {found.reason}"
            if found.status == "failed" and only_batch:
                return replace(found, reason=where)
            if found.status == "failed":
                report = replace(report, notes=(*report.notes, f"the models differ {where}"))
        return report

    def _elsewhere(self, chosen: list[Permutation]) -> CheckReport | None:
        """The comparison at the next size that the first model accepts; None without one."""
        for values, choices in islice(self.done.elsewhere, SIZES):
            try:
                return self.compared(values, choices, chosen)
            except RunError:
                continue
        return None

    def _say_where(self, report: CheckReport, chosen: list[Permutation]) -> CheckReport:
        """Say at which sizes the models differ, and whether they do so at others, where sizes are open."""
        try:
            found = self._elsewhere(chosen)
        except OnnxtflError:
            return report
        if found is None or found.status == "not checked":
            return report
        verdict = "they agree" if found.ok else "they differ too"
        note = f"the models differ {_sizes(report.inputs)}; {_sizes(found.inputs)} {verdict}"
        return replace(report, notes=(*report.notes, note))


def _sizes(inputs: Sequence[InputUsed]) -> str:
    return "at " + ", ".join(f"{spec.name}:{shape_text(spec.shape)}" for spec in inputs)
