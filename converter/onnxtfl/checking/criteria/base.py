"""The input of criteria (an attempt to compare two models) and their judgments of outputs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Protocol

from onnxtfl.checking.criteria.reference import Reference
from onnxtfl.checking.criteria.tolerance import Tolerance
from onnxtfl.checking.evidence import CriterionName, Judgment
from onnxtfl.checking.localize.layers import FirstDifference
from onnxtfl.checking.models.side import Side
from onnxtfl.checking.pairing.interface import Pair, Permutation
from onnxtfl.checking.report import OutputCheck
from onnxtfl.checking.settings import Settings
from onnxtfl.runtimes import RunOptions

Feeds = Callable[[int], tuple[Sequence[Any], Sequence[Any]]]
"""Number of a run -> the inputs of either model."""


@dataclass(frozen=True)
class Attempt:
    """The comparison of two models on some runs, on one kernel set and in one layout.

    ``reference``: the runs of the first model. ``fed``: the inputs of the second model in each of them. ``moved``:
    whether inputs have their axes in another order. ``feeds``: the inputs of further runs, None where there are none.
    ``seconds``: the time for measurements on several inputs. ``is_unusual``: whether the inputs have magnitudes for
    which the model was not made, so that rounding may be amplified.
    """

    tolerance: Tolerance
    out_pairs: Sequence[Pair]
    reference: Reference
    fed: Sequence[Sequence[Any]]
    kernels: str
    moved: bool
    options: RunOptions
    feeds: Feeds | None
    seconds: float
    is_unusual: bool = False

    @property
    def a(self) -> Side:
        return self.tolerance.a

    @property
    def b(self) -> Side:
        return self.tolerance.b

    @property
    def settings(self) -> Settings:
        return self.tolerance.settings

    @property
    def keeps_state(self) -> bool:
        """Whether runs depend on those before."""
        return self.a.keeps_state or self.b.keeps_state

    @property
    def b_options(self) -> RunOptions:
        return replace(self.options, kernels=self.kernels)

    @cached_property
    def alone(self) -> list[list[Any]]:
        """The outputs of the second model, a new session for each run."""
        return [self.b.run(fed, self.b_options) for fed in self.fed]

    def differs_alone(self, k: int) -> bool:
        """Whether an output differs where each run of the second model has a session of its own."""
        return not all(self.compare(k, number).ok for number in self.runs)

    @property
    def runs(self) -> range:
        return range(len(self.fed))

    def compare(self, k: int, run: int, got: Any = None, expected: Any = None, **allowed: Any) -> OutputCheck:
        """Compare output ``k`` in a run of each model, or other values if given."""
        pair, case = self.out_pairs[k], self.reference.runs[run]
        expected = case.outputs[pair.a] if expected is None else expected
        got = self.alone[run][pair.b] if got is None else got
        return self.tolerance.compare(pair, expected, got, self.moved, **allowed)

    def ways(self, k: int, expected: Any, got: Any) -> list[Permutation]:
        """The axis orders in which output ``k`` may be that of the first model (`Tolerance.ways`)."""
        return self.tolerance.ways(self.out_pairs[k], expected, got, self.moved)


@dataclass(frozen=True)
class Ruling:
    """The result of a criterion.

    ``judgments``: of outputs, by position. ``notes``: for the report. ``first_difference``: the first op that differs.
    ``unfinished``: why the outputs left cannot be judged: the check has no verdict then.
    """

    judgments: Mapping[int, Judgment] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    first_difference: FirstDifference | None = None
    unfinished: str = ""


class PerOutput(ABC):
    """A criterion that judges each output separately."""

    name: CriterionName

    def judge(self, attempt: Attempt, outputs: Sequence[OutputCheck], pending: Sequence[int]) -> Ruling:
        """See `Criterion`."""
        found = {k: self.judgment(attempt, k) for k in pending if self.applies(attempt, outputs[k])}
        return Ruling({k: judgment for k, judgment in found.items() if judgment is not None})

    @abstractmethod
    def applies(self, attempt: Attempt, out: OutputCheck) -> bool:
        """Whether the criterion applies to an output."""

    @abstractmethod
    def judgment(self, attempt: Attempt, k: int) -> Judgment | None:
        """Judge output ``k``; None if the criterion does not apply."""


class Criterion(Protocol):
    """Judges outputs that missed the tolerance."""

    name: CriterionName

    def judge(self, attempt: Attempt, outputs: Sequence[OutputCheck], pending: Sequence[int]) -> Ruling:
        """Judge the outputs at the positions ``pending``, which no criterion before it accepted or rejected.

        Raises `OnnxtflError` if a model that it needs does not run.
        """
        ...
