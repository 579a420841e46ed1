"""One round of a Scan, or of steps that are rolled up to one, as polynomials of what it takes."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Sequence

from onnxtfl.ir.dims import Dim, product
from onnxtfl.ir.graph import Value
from onnxtfl.ir.shapes import normalize_axis
from onnxtfl.passes.recognize.recurrence.layers import Layer, Steps, layer_of
from onnxtfl.passes.recognize.recurrence.matching import PART, state
from onnxtfl.passes.recognize.recurrence.polynomials import Atoms, Poly, UnfitError
from onnxtfl.passes.recognize.recurrence.reading import Columns, Reader, peeled


class Rounds:
    """Rounds that take a part like `part` and states like `states`, the first of them [N, H] for H cells.

    `batch`: N. `width`: the columns of a part. UnfitError where these are no part and states of a layer.
    """

    def __init__(self, part: Value, states: Sequence[Value]) -> None:
        if any(not isinstance(v.tensor_type.shape, tuple) or not v.dtype.is_float for v in states):
            raise UnfitError
        hidden = states[0]
        if hidden.rank < 2 or not isinstance(hidden.shape[-1], int):
            raise UnfitError
        self.batch, self.cells = product(hidden.shape[:-1]), hidden.shape[-1]
        self.atoms = Atoms()
        self.width = Reader(self.atoms, self.batch, lambda _: None).width(part)

    def steps(self, x: Value, axis: int, count: Dim, reverse: bool) -> Steps:
        """What `count` rounds take of `x`, along `axis`."""
        before = product(x.shape[: normalize_axis(axis, x.rank)])
        if before not in (1, self.batch):
            raise UnfitError
        return Steps(x, count, self.batch, before == 1, reverse)

    def reader(
        self, part: Value, states: Sequence[Value], others: Collection[Value] = (), position: int | None = None
    ) -> tuple[Reader, dict[Value, Columns]]:
        """A reader of the round that takes `part`, and `states` by role; and its leaves, to which others may be added.

        `others`: parts of other rounds, which this one may not take. `position`: the number of the round, if known.
        """
        places: dict[Value, Columns] = {}

        def leaf(value: Value) -> Columns | None:
            if value in places:
                return places[value]
            base = peeled(value)
            found = places.get(base)
            if found is None:
                if base in others:
                    raise UnfitError
            elif reader.width(value) != found[0][0]:
                raise UnfitError
            return found

        reader = Reader(self.atoms, self.batch, leaf, position)
        for name, value in [(PART, part), *((state(role), v) for role, v in enumerate(states))]:
            places[peeled(value)] = reader.named(value, name)
        return reader, places

    def polys(self, reader: Reader, values: Iterable[Value]) -> dict[Value, Poly]:
        """Those of `values` that have as many columns as there are cells."""
        found = {}
        for value in values:
            with contextlib.suppress(UnfitError):
                if reader.width(value) == self.cells:
                    found[value] = reader.poly(value)
        return found

    def layer(self, hidden: Poly, others: Sequence[Poly] | None) -> tuple[Layer, list[Poly]] | None:
        """The layer whose hidden state after a round is `hidden`, and its states (see `layer_of`)."""
        return layer_of(self.atoms, self.cells, hidden, others, self.width)
