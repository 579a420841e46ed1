"""The tensors inside of both models in a run, and which correspond."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from onnxtfl.checking.localize.steps import least_error
from onnxtfl.checking.metrics.comparison import Expectation
from onnxtfl.ir.record import TensorEntry
from onnxtfl.tracing.matches import Match
from onnxtfl.tracing.record import known_matches
from onnxtfl.tracing.trace import InnerModel


@dataclass(frozen=True)
class Inside:
    """Two models in a run, read once for all comparisons of their inner tensors.

    ``entries``: the record of the conversion of `a` to `b`, empty to look for one. ``expect``: the tolerance;
    ``sigmoids``: tensors of the first model (see `Facts`).
    """

    a: InnerModel
    b: InnerModel
    entries: Sequence[TensorEntry]
    expect: Expectation
    sigmoids: Collection[str] = ()

    @cached_property
    def matches(self) -> dict[int, Match]:
        """The corresponding tensors, by the number of the second model's."""
        return {match.b: match for match in known_matches(self.a, self.b, self.entries)[0]}

    def expected_of(self, match: Match) -> Expectation:
        """The tolerance for a tensor of real values."""
        return replace(self.expect, least=least_error(self.a.values[match.a], self.sigmoids))
