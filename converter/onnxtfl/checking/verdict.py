"""The verdict of a check on one set of inputs, from what the criteria found of each output."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from onnxtfl.checking.criteria.judging import Judged
from onnxtfl.checking.report import CheckReport, OutputCheck
from onnxtfl.inputs.description import TensorInfo

ADVICE = "run it on data of yours (onnxtfl check --data DATA.npz)"


def concluded(report: CheckReport, found: Judged) -> CheckReport:
    """The report after all criteria: failed by an output that none accepts."""
    notes = (*report.notes, *(note for note in found.notes if note not in report.notes))
    report = replace(report, outputs=found.outputs, notes=notes, first_difference=found.first_difference)
    wrong = [out for out in found.outputs if not out.ok]
    if wrong and found.unfinished and not any(out.rejected for out in wrong):
        return replace(report, status="not checked", reason=found.unfinished)
    if wrong:
        return replace(report, status="failed", reason=f"output {wrong[0].name!r}: {wrong[0].problem}")
    return replace(report, status="passed", reason="")


def with_uncompared(report: CheckReport, pairs: Iterable[tuple[TensorInfo, TensorInfo]]) -> CheckReport:
    """The report of models that agree; not checked where an output was compared on no set of inputs.

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
