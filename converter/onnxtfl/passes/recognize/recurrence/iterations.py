"""One iteration of a Scan, or of rerolled steps, as polynomials of the values that it reads."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Sequence

from onnxtfl.ir import ops
from onnxtfl.ir.dims import Dim, product
from onnxtfl.ir.graph import Value
from onnxtfl.ir.matching import without_reshapes
from onnxtfl.ir.shapes import normalize_axis
from onnxtfl.passes.recognize.recurrence.layers import Layer, Steps
from onnxtfl.passes.recognize.recurrence.matching import PART, patterns, state, unified
from onnxtfl.passes.recognize.recurrence.polynomials import ZERO, Atoms, Poly, UnfitError
from onnxtfl.passes.recognize.recurrence.reading import Columns, Reader


class Iterations:
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
        return Steps(x, count, self.batch, self.is_time_first(x, axis), reverse)

    def is_time_first(self, x: Value, axis: int) -> bool:
        """Whether `x` is [T, N, M] with the iterations along `axis`, not [N, T, M]; UnfitError if it is neither."""
        before = product(x.shape[: normalize_axis(axis, x.rank)])
        if before not in (1, self.batch):
            raise UnfitError
        return before == 1

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
        """Return the layer whose new hidden state is `hidden`, and its new states; None if there is none.

        `others`: candidates for the second state; None for a layer with one state.
        """
        inner, lengths = _unmasked(hidden, 0)
        for pattern in patterns(inner, 1 if others is None else 2, self.width // max(self.cells, 1)):
            wanted = pattern.states(self.atoms, self.cells)
            for bound in unified([(wanted[0], inner)], {}):
                layer = Layer(pattern, bound, lengths, self.cells)
                if others is None:
                    return layer, [hidden]
                for other in others:
                    second, same = _unmasked(other, 1)
                    if same is lengths and any(unified([(wanted[1], second)], bound)):
                        return layer, [hidden, other]
        return None

    def output(self, layer: Layer, hidden: Poly) -> Poly:
        """Return the output of an iteration: the new hidden state; with lengths, zeros after the last step."""
        atom = hidden.atom
        if layer.lengths is None or atom is None:
            return hidden
        mask, after, _ = atom.arguments
        return self.atoms.apply(ops.Select, None, [mask, after, ZERO])


def _unmasked(poly: Poly, role: int) -> tuple[Poly, Value | None]:
    """Return state `role` after a valid step, and the lengths that mask it (later steps keep the state)."""
    atom = poly.atom
    if atom is None or atom.name is not ops.Select:
        return poly, None
    mask, _, before = (argument.atom for argument in atom.arguments)
    if before is None or before.name != state(role) or before.start or mask is None or mask.name[0] != "lengths":
        return poly, None
    return atom.arguments[1], mask.name[1]
