"""One iteration of a Scan, or of rerolled steps, as polynomials of the values that it reads."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Sequence

from onnxtfl.ir.dims import Dim, product
from onnxtfl.ir.graph import Value
from onnxtfl.ir.shapes import normalize_axis
from onnxtfl.passes.recognize.recurrence.layers import Layer, Steps, layer_of
from onnxtfl.passes.recognize.recurrence.matching import PART, state
from onnxtfl.passes.recognize.recurrence.polynomials import Atoms, Poly, UnfitError
from onnxtfl.passes.recognize.recurrence.reading import Columns, Reader, without_reshapes


class Rounds:
    """Iterations that read a part like `part` and states like `states`, the first of them [N, H] for H cells.

    `batch`: N. `width`: the columns of a part. UnfitError if the types cannot be those of a layer.
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
        """Return the parts of `x` along `axis` that `count` iterations read."""
        before = product(x.shape[: normalize_axis(axis, x.rank)])
        if before not in (1, self.batch):
            raise UnfitError
        return Steps(x, count, self.batch, before == 1, reverse)

    def reader(
        self, part: Value, states: Sequence[Value], others: Collection[Value] = (), position: int | None = None
    ) -> tuple[Reader, dict[Value, Columns]]:
        """Return a reader of the iteration with `part` and `states` (by role), and its leaves, which may be extended.

        `others`: parts of other iterations, which it must not read. `position`: the index of the iteration, if known.
        """
        places: dict[Value, Columns] = {}

        def leaf(value: Value) -> Columns | None:
            if value in places:
                return places[value]
            base = without_reshapes(value)
            found = places.get(base)
            if found is None:
                if base in others:
                    raise UnfitError
            elif reader.width(value) != found[0][0]:
                raise UnfitError
            return found

        reader = Reader(self.atoms, self.batch, leaf, position)
        for name, value in [(PART, part), *((state(role), v) for role, v in enumerate(states))]:
            places[without_reshapes(value)] = reader.named(value, name)
        return reader, places

    def polys(self, reader: Reader, values: Iterable[Value]) -> dict[Value, Poly]:
        """Return the polynomials of those `values` that have one column per cell."""
        found = {}
        for value in values:
            with contextlib.suppress(UnfitError):
                if reader.width(value) == self.cells:
                    found[value] = reader.poly(value)
        return found

    def layer(self, hidden: Poly, others: Sequence[Poly] | None) -> tuple[Layer, list[Poly]] | None:
        """Return the layer whose new hidden state is `hidden`, and its states (see `layer_of`)."""
        return layer_of(self.atoms, self.cells, hidden, others, self.width)
