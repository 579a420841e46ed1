"""Makes the inputs of a check: sizes to try, values for each input, other sizes and seeds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from onnxtfl.checking.inputs.user_data import asked_range
from onnxtfl.checking.models.pair import ModelPair
from onnxtfl.checking.pairing.feeding import agreeable
from onnxtfl.inputs.description import TensorInfo
from onnxtfl.inputs.generation import make_input
from onnxtfl.inputs.ranges import Range
from onnxtfl.inputs.sizes import Shapes, fits, full_lengths, open_shapes, unit_shapes
from onnxtfl.inputs.solving import solved_shapes
from onnxtfl.runtimes import RunError

MIXED = 6
"""The number of different sizes for dynamic dimensions over several input sets."""


@dataclass(frozen=True)
class InputMaker:
    """Two models, and the inputs (``infos``) with the sizes that are known.

    ``case``: the number of the set of inputs.
    """

    models: ModelPair
    infos: Sequence[TensorInfo]
    case: int

    def shapes(self, fixed: Mapping[str, Sequence[int]], failures: Sequence[RunError]) -> Iterator[Shapes]:
        """Yield sizes to try, in another order for each input set; after a failure, only sizes that satisfy
        constraints.
        """
        found = [*open_shapes(self.infos, fixed, self.models.a.facts.shapes)]
        first = self.case % min(len(found), MIXED) if self.case else 0
        found = [*found[first:], *found[:first]]
        yield found[0]
        if failures:
            yield from solved_shapes(self.infos, found[:3], self.models.a.facts.shapes, fixed)
        yield from found[1:]

    def elsewhere(
        self, tries: Iterable[Shapes], values: Sequence[Any], given: Mapping[str, Any]
    ) -> Iterator[tuple[list[Any], list[str]]]:
        """Inputs that fit the graph, with other sizes than those in ``values``, not only along the first axis."""
        for shapes in tries:
            same = all(shape[1:] == value.shape[1:] for shape, value in zip(shapes, values, strict=True))
            if not same and fits(self.infos, shapes, self.models.a.facts.shapes):
                yield self.make(shapes, given, 0)

    def units(self, shapes: Shapes, given: Mapping[str, Any]) -> Iterator[tuple[bool, list[Any], list[str]]]:
        """Return inputs with dynamic sizes of 1 that fit the graph, and whether only the batch is 1."""
        for only_batch, units in unit_shapes(self.infos, shapes, given):
            if fits(self.infos, units, self.models.a.facts.shapes):
                yield only_batch, *self.make(units, given, 0)

    def make(self, shapes: Shapes, given: Mapping[str, Any], number: int) -> tuple[list[Any], list[str]]:
        """The inputs of run ``number``, and how each was chosen."""
        values, choices = [], []
        turn = self.case + number
        seed, full = self.models.settings.seed + turn, full_lengths(self.infos, shapes)
        for k, (info, shape) in enumerate(zip(self.infos, shapes, strict=True)):
            other = self.models.b.info.inputs[self.models.inputs[k].b]
            if info.name in given:
                value, choice = given[info.name], "given"
            else:
                known = self._asked(info, other) or self.models.a.facts.ranges.get(info.name)
                known = known or self.models.b.facts.ranges.get(other.name)
                known = known or (Range("value", full[info.name], full[info.name] + 1) if info.name in full else None)
                spread = None if self._asked(info, other) else self.models.settings.spreads.get(other.name)
                if spread is not None and info.quantization is None:
                    value, choice = spread.make(info, shape, known, (seed, k))
                else:
                    value, choice = make_input(info, shape, known, (seed, k), number % 2 == 1, turn)
                value = agreeable(value, info, other)
            values.append(value)
            choices.append(choice)
        return values, choices

    def _asked(self, info: TensorInfo, other: TensorInfo) -> Range | None:
        """The user's values for an input."""
        asked = self.models.settings.input_ranges.get(info.name) or self.models.settings.input_ranges.get(other.name)
        return None if asked is None else asked_range(info, *asked)
