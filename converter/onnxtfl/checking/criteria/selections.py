"""Whether two models select differently because of near-ties: what one op selects decides what later ops compute.

A difference within the tolerance changes the order of nearly equal scores, and with it whole rows of the outputs::

    %i = TOPK_V2(%s)               %s and %s' agree, %i and %i' do not
    %y = GATHER(%boxes, %i)   ->   %y = GATHER(%boxes, %i')        s', i': values of the first model

So the second model runs with the integers and bools of the first one in place of its own that differ. Its outputs have
to agree then, as well as the real values from which its own were selected. That each op selects correctly is not
examined here, but op by op (see `op_by_op`).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from onnxtfl.checking.criteria.base import Attempt
from onnxtfl.checking.metrics.comparison import compare
from onnxtfl.checking.models.facts import SIGMOID_ERROR
from onnxtfl.ir.data import Array
from onnxtfl.ir.types import TensorType
from onnxtfl.tracing.matches import Converter, Match, Way
from onnxtfl.tracing.parts import temporary_directory
from onnxtfl.tracing.record import known_matches
from onnxtfl.tracing.trace import InnerModel


def agrees_with_selections(attempt: Attempt, number: int, positions: Sequence[int]) -> bool:
    """Whether outputs of run `number` agree within the tolerance if the second model selects as the first one does.

    ``positions``: the outputs that differ. Raises `OnnxtflError` if a model cannot be read.
    """
    if attempt.a.slots or attempt.b.slots:
        return False
    with ExitStack() as stack:
        folder, values = temporary_directory(stack), attempt.reference.runs[number].values
        a = attempt.a.traced(values, attempt.options, folder)
        b = attempt.b.traced(attempt.fed[number], attempt.b_options, folder)
        found = _Selections(attempt, a, b)
        return bool(found.differ) and found.agree(number, positions)


@dataclass
class _Selections:
    """The integers and bools in which two models differ, from their real inputs on."""

    attempt: Attempt
    a: InnerModel
    b: InnerModel

    @cached_property
    def matches(self) -> dict[int, Match]:
        """The corresponding tensors, by the number of the second model's."""
        return {m.b: m for m in known_matches(self.a, self.b, self.attempt.settings.tensors)[0]}

    @cached_property
    def differ(self) -> dict[int, Array]:
        """The values of the first model of integer and bool tensors that the second computes otherwise."""
        exact = {j: m for j, m in self.matches.items() if _is_exact(self.b, j)}
        expected = self.a.fetch({m.a for m in exact.values()})
        got = self.b.fetch([j for j, m in exact.items() if m.a in expected])
        made = {j: self._made(exact[j], expected[exact[j].a], array) for j, array in got.items()}
        return {j: array for j, array in made.items() if array is not None and not np.array_equal(array, got[j])}

    def _made(self, match: Match, array: Array, like: Array) -> Array | None:
        """The values of the first model for a tensor of the second, also if the number of selected elements differs."""
        converter = Converter(self.a, self.b)
        if match.way is None and array.ndim == like.ndim and array.size != like.size:
            match = replace(match, way=Way())
        resolved = converter.resolved(match, array, like)
        return None if resolved is None else converter.made(resolved, array, like)

    def agree(self, number: int, positions: Sequence[int]) -> bool:
        """Whether outputs agree if the second model reads the selections of the first, and the real values from which
        its own were selected, up to the first other selection.
        """
        ends, read = self._ends(positions), self._operands()
        expected = self.a.fetch({m.a for m in read})
        got = self.b.isolated(self.differ, {*ends, *(m.b for m in read)} - {-1})
        outputs = all(
            j in got and self.attempt.compare(k, number, got=got[j]).ok for k, j in zip(positions, ends, strict=True)
        )
        return outputs and all(
            m.a in expected and m.b in got and self._is_near(m, expected[m.a], got[m.b]) for m in read
        )

    def _ends(self, positions: Sequence[int]) -> list[int]:
        """The number of the second model's tensor for each output, -1 if it has none."""
        values = dict(zip(self.b.graph.output_names, self.b.graph.outputs, strict=False))
        names = [self.attempt.b.info.outputs[self.attempt.out_pairs[k].b].name for k in positions]
        return [self.b.number.get(values[name], -1) if name in values else -1 for name in names]

    def _operands(self) -> list[Match]:
        """The real tensors that the second model reads to select."""
        read = {i for j in self.differ for i in self.b.between(j, self.matches)[1] if i in self.matches}
        return [self.matches[i] for i in sorted(read) if not _is_exact(self.b, i)]

    def _is_near(self, match: Match, array: Array, got: Array) -> bool:
        expected = self._made(match, array, got)
        least = SIGMOID_ERROR if self.a.values[match.a].name in self.attempt.a.facts.sigmoids else 0.0
        return expected is not None and compare("", expected, got, replace(self.attempt.expect, least=least)).ok


def _is_exact(model: InnerModel, number: int) -> bool:
    """Whether a tensor has integers or bools; quantized tensors have real values."""
    type_ = model.type_of(number)
    return isinstance(type_, TensorType) and not type_.dtype.is_float
