"""Whether two models select differently because of near-ties: what one op selects decides what later ops compute.

A difference within the tolerance changes the order of nearly equal scores, and with it whole rows of the outputs::

    %i = TOPK_V2(%s)               %s and %s' agree, %i and %i' do not
    %y = GATHER(%boxes, %i)   ->   %y = GATHER(%boxes, %i')        s', i': values of the first model

So the second model runs with the integers and bools of the first one in place of its own that differ. Its outputs have
to agree then, as well as the real values from which its own were selected. That each op selects correctly is not
examined here, but op by op (see `op_by_op`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from onnxtfl.checking.localize.inside import Inside
from onnxtfl.checking.metrics.comparison import compare
from onnxtfl.ir.data import Array
from onnxtfl.ir.types import TensorType
from onnxtfl.tracing.matches import Converter, Match, Way
from onnxtfl.tracing.trace import InnerModel

Outputs = Mapping[int, tuple[Array, Array]]
"""Position of an output -> its values in either model."""


def with_equal_selections(inside: Inside, ends: Mapping[int, Match]) -> Outputs | None:
    """The outputs ``ends`` of a run if the second model selects as the first one does.

    None if the models select the same, or from real values that do not agree within the tolerance, or a tensor cannot
    be computed.
    """
    found = _Selections(inside, ends)
    return found.outputs() if found.differ else None


@dataclass(frozen=True)
class _Selections:
    """The integers and bools that differ in both models. ``ends``: the outputs."""

    inside: Inside
    ends: Mapping[int, Match]

    @property
    def a(self) -> InnerModel:
        return self.inside.a

    @property
    def b(self) -> InnerModel:
        return self.inside.b

    @cached_property
    def operands(self) -> dict[int, list[Match]]:
        """For each integer or bool tensor the real ones from which it is selected, up to the first other selection."""
        matches = self.inside.matches
        read = {j: self.b.between(j, matches)[1] for j in matches if _is_exact(self.b, j)}
        return {
            j: [matches[i] for i in found if i in matches and not _is_exact(self.b, i)] for j, found in read.items()
        }

    @cached_property
    def expected(self) -> dict[int, Array]:
        """The tensors of the first model."""
        real = (match for matches in self.operands.values() for match in matches)
        exact = (self.inside.matches[j] for j in self.operands)
        return self.a.fetch({match.a for match in (*exact, *real, *self.ends.values())})

    @cached_property
    def differ(self) -> dict[int, Array]:
        """The values of the first model of integer and bool tensors that the second computes otherwise."""
        exact = {j: self.inside.matches[j] for j in self.operands if self.inside.matches[j].a in self.expected}
        got = self.b.fetch(list(exact))
        made = {j: self._made(exact[j], self.expected[exact[j].a], array) for j, array in got.items()}
        return {j: array for j, array in made.items() if array is not None and not np.array_equal(array, got[j])}

    def _made(self, match: Match, array: Array, like: Array) -> Array | None:
        """The values of the first model for a tensor of the second, also if the number of selected elements differs."""
        converter = Converter(self.a, self.b)
        if match.way is None and array.ndim == like.ndim and array.size != like.size:
            match = replace(match, way=Way())
        resolved = converter.resolved(match, array, like)
        return None if resolved is None else converter.made(resolved, array, like)

    def outputs(self) -> Outputs | None:
        """See `with_equal_selections`."""
        read = {match for j in self.differ for match in self.operands[j]}
        wanted = [*self.ends.values(), *read]
        expected, got = self.expected, self.b.isolated(self.differ, {m.b for m in wanted})
        if any(m.a not in expected or m.b not in got for m in wanted):
            return None
        if not all(self._is_near(m, expected[m.a], got[m.b]) for m in read):
            return None
        return {k: (expected[m.a], got[m.b]) for k, m in self.ends.items()}

    def _is_near(self, match: Match, array: Array, got: Array) -> bool:
        expected = self._made(match, array, got)
        return expected is not None and compare("", expected, got, self.inside.expected_of(match)).ok


def _is_exact(model: InnerModel, number: int) -> bool:
    """Whether a tensor has integers or bools; quantized tensors have real values."""
    type_ = model.type_of(number)
    return isinstance(type_, TensorType) and not type_.dtype.is_float
