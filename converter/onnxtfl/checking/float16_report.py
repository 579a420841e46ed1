"""The float16 section of a check's report: errors of both models simulated in it, values that leave its range."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from onnxtfl.ir.half import Excess

SHOWN = 5
"""The most values beyond float16's range that are listed."""
_SUMS = {"float16": "float32", "float16-sums": "float16"}


@dataclass(frozen=True)
class SimulatedOutput:
    """An output of both models, simulated, against the reference: the first model's as its runtime computes it.

    ``error``, ``source_error``: the largest absolute error of the second and of the first model, relative to the
    largest value of the reference, elements that are not finite excluded; None if not compared. ``overflows``,
    ``source_overflows``: whether more elements are infinite or NaN than in the reference.
    """

    name: str
    error: float | None
    source_error: float | None
    overflows: bool
    source_overflows: bool | None


@dataclass(frozen=True)
class SimulatedRun:
    """Both models in a simulated arithmetic (`onnxtfl.evaluation.Precision`).

    ``beyond``, ``source_beyond``: the values of the second and of the first model that leave the range of float16.
    ``note``: why one of them was not simulated.
    """

    precision: str
    outputs: tuple[SimulatedOutput, ...] = ()
    beyond: tuple[Excess, ...] = ()
    source_beyond: tuple[Excess, ...] = ()
    note: str = ""

    @property
    def title(self) -> str:
        """How it was computed."""
        return f"simulated float16, sums in {_SUMS[self.precision]}"

    @property
    def overflow(self) -> str:
        """Why the check fails: an output that overflows in the second model only; "" for none."""
        name = next((out.name for out in self.outputs if out.overflows and out.source_overflows is False), None)
        if name is None:
            return ""
        cause = f": {self.beyond[0]}" if self.beyond else ""
        return f"output {name!r} overflows in {self.title}, that of the source does not{cause}"

    @property
    def in_words(self) -> str:
        """One line: the largest errors, and which outputs overflow."""
        parts = [self.note] if self.note else []
        mine, source = (_largest(getattr(out, of) for out in self.outputs) for of in ("error", "source_error"))
        if mine is not None:
            of_source = "" if source is None else f" (the source: {source:.2g})"
            parts.append(f"largest error {mine:.2g} of the largest value{of_source}")
        over = [out for out in self.outputs if out.overflows]
        parts += [f"{out.name!r} overflows{', in the source too' if out.source_overflows else ''}" for out in over]
        return f"{self.title}: {', '.join(parts) or 'no output to compare'}"


def _largest(errors: Iterable[float | None]) -> float | None:
    return max((error for error in errors if error is not None), default=None)


def notes(runs: Sequence[SimulatedRun]) -> list[str]:
    """The lines of the report: the errors in each arithmetic, and the values of the second model beyond the range."""
    beyond = list(dict.fromkeys(str(excess) for run in runs for excess in run.beyond))
    more = [f"and {len(beyond) - SHOWN} more values beyond float16's range"] if len(beyond) > SHOWN else []
    return [*(run.in_words for run in runs), *beyond[:SHOWN], *more]
