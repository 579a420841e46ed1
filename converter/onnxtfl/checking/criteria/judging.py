"""The criteria in order, and their application to the outputs of an attempt.

An error beyond the tolerance is inconclusive: each further criterion may accept the output, or reject it by evidence
that no later criterion overrides. An output that no criterion accepts has failed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from onnxtfl.checking.criteria.base import Attempt, Criterion, Ruling
from onnxtfl.checking.localize.layers import FirstDifference
from onnxtfl.checking.report import CheckReport, OutputCheck
from onnxtfl.errors import OnnxtflError
from onnxtfl.inputs.description import TensorInfo

ADVICE = "run it on data of yours (onnxtfl check --data DATA.npz)"


@dataclass(frozen=True)
class Judged:
    """The outputs after all criteria. ``unfinished``: why some have no verdict; "" if all have one."""

    outputs: tuple[OutputCheck, ...]
    notes: tuple[str, ...] = ()
    first_difference: FirstDifference | None = None
    unfinished: str = ""

    def after(self, ruling: Ruling) -> Judged:
        """The outputs after one more criterion."""
        outputs = list(self.outputs)
        for k, judgment in ruling.judgments.items():
            outputs[k] = outputs[k].judged(judgment)
        notes = (*self.notes, *(note for note in ruling.notes if note not in self.notes))
        first = self.first_difference or ruling.first_difference
        return Judged(tuple(outputs), notes, first, self.unfinished or ruling.unfinished)


@dataclass(frozen=True)
class Judge:
    """Applies ``criteria`` in their order, if they are among ``accept`` (None: all)."""

    criteria: Sequence[Criterion]
    accept: frozenset[str] | None = None

    def concluded(self, attempt: Attempt, report: CheckReport) -> CheckReport:
        """The report on an attempt after all criteria, if outputs are beyond the tolerance or were not compared. It has
        failed if no criterion accepts one of them.
        """
        if not report.outputs or not all(spec.ok for spec in report.inputs):
            return report
        found = self.judge(attempt, report.outputs)
        notes = (*report.notes, *(note for note in found.notes if note not in report.notes))
        report = replace(report, outputs=found.outputs, notes=notes, first_difference=found.first_difference)
        wrong = [out for out in found.outputs if not out.ok]
        if wrong and found.unfinished and not any(out.rejected for out in wrong):
            return replace(report, status="not checked", reason=found.unfinished)
        if wrong:
            return replace(report, status="failed", reason=f"output {wrong[0].name!r}: {wrong[0].problem}")
        return replace(report, status="passed", reason="")

    def judge(self, attempt: Attempt, outputs: Sequence[OutputCheck]) -> Judged:
        """Judge the outputs that missed the tolerance, or were not compared."""
        found = Judged(tuple(outputs))
        for criterion in self.criteria:
            pending = [k for k in _pending(found.outputs, criterion.name) if not _only_in_sequence(attempt, found, k)]
            if not pending or (self.accept is not None and criterion.name not in self.accept):
                continue
            try:
                found = found.after(criterion.judge(attempt, found.outputs, pending))
            except OnnxtflError as error:
                found = replace(found, notes=(*found.notes, f"not judged by {criterion.name}: {error}"))
        return found


def _pending(outputs: Sequence[OutputCheck], name: str) -> list[int]:
    """The outputs that a criterion judges.

    The emulation distance is measured also for outputs that the comparison of ops accepted.
    """
    if name == "distribution":
        return [k for k, out in enumerate(outputs) if out.drawn]
    if name == "emulation-distance":
        return [
            k for k, out in enumerate(outputs) if not out.rejected and (not out.ok or out.accepted_by == "op-by-op")
        ]
    return [k for k, out in enumerate(outputs) if not out.ok and not out.rejected]


def _only_in_sequence(attempt: Attempt, found: Judged, k: int) -> bool:
    """Whether an output of stateless models differs only in a repeated run: no criterion may accept that."""
    return found.outputs[k].run is not None and not attempt.keeps_state and not attempt.differs_alone(k)


def with_uncompared(report: CheckReport, pairs: Iterable[tuple[TensorInfo, TensorInfo]]) -> CheckReport:
    """The report of models that agree; "not checked" if an output was compared on no set of inputs.

    ``pairs``: the outputs of both models. One that has no element by its type is compared by its shape.
    """
    empty = {a.name for a, b in pairs if _is_always_empty(a) or _is_always_empty(b)}
    missed = [out for out in report.outputs if not out.compared and out.name not in empty]
    if not report.ok or not missed:
        return report
    return replace(report, status="not checked", reason="; ".join(map(_why, missed)) + f": {ADVICE}")


def _is_always_empty(info: TensorInfo) -> bool:
    return info.shape is not None and 0 in info.shape


def _why(out: OutputCheck) -> str:
    if out.is_empty:
        return f"output {out.name!r} was empty on all inputs"
    return f"output {out.name!r} has {out.note or 'nothing to compare'}"
