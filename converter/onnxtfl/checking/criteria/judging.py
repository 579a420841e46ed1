"""The criteria in their order, and what they make of the outputs of an attempt.

A missed tolerance is inconclusive: each further criterion may accept the output, or have evidence of a fault, which no
later one overrides. What no criterion accepts has failed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from onnxtfl.checking.criteria.base import Attempt, Criterion, Ruling
from onnxtfl.checking.criteria.distribution import Distribution
from onnxtfl.checking.criteria.emulation_distance import EmulationDistance
from onnxtfl.checking.criteria.float32_reference import Float32Reference
from onnxtfl.checking.criteria.near_ties import NearTies
from onnxtfl.checking.criteria.op_by_op import OpByOp
from onnxtfl.checking.criteria.pre_activation import PreActivation
from onnxtfl.checking.criteria.rounding_noise import RoundingNoise
from onnxtfl.checking.localize.layers import FirstDifference
from onnxtfl.checking.report import OutputCheck
from onnxtfl.errors import OnnxtflError


def criteria() -> tuple[Criterion, ...]:
    """The criteria that judge outputs beyond the tolerance, in their order."""
    further = NearTies(), Float32Reference(), PreActivation(), RoundingNoise(), OpByOp(), EmulationDistance()
    return (Distribution(), *further)


@dataclass(frozen=True)
class Judged:
    """The outputs after all criteria. ``unfinished``: why there is no verdict on those left, "" where there is one."""

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


@dataclass
class Judge:
    """Applies the criteria that a check allows (``accept``; None: all)."""

    accept: frozenset[str] | None = None
    criteria: Sequence[Criterion] = field(default_factory=criteria)

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

    The distance from the emulation is evidence beside the ops too: it is measured wherever these were compared.
    """
    if name == "distribution":
        return [k for k, out in enumerate(outputs) if out.drawn]
    if name == "emulation-distance":
        return [
            k for k, out in enumerate(outputs) if not out.rejected and (not out.ok or out.accepted_by == "op-by-op")
        ]
    return [k for k, out in enumerate(outputs) if not out.ok and not out.rejected]


def _only_in_sequence(attempt: Attempt, found: Judged, k: int) -> bool:
    """Whether an output of models without state differs only in a run after another one: no criterion explains that."""
    return found.outputs[k].run is not None and not attempt.keeps_state and not attempt.differs_alone(k)
