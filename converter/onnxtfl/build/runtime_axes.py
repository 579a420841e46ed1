"""Axes, permutations and factors of sizes that are operands. If they are constant, they become attributes.

Else an axis becomes the middle one of three, so that later ops have a constant axis. The entries of a vector of factors
get symbols, so that sizes which depend on them are polynomials like all others.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from onnxtfl.build.sizes import HUGE, vector_length
from onnxtfl.dataclass import dataclass
from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.dims import Dim, differ, fresh_symbol, product
from onnxtfl.ir.formula import Term
from onnxtfl.ir.graph import Value, constant
from onnxtfl.ir.reshape import as_int64, dim_vector, iota, reshape, unsqueezed
from onnxtfl.ir.shapes import dim_array, known_dims, normalize_axes, normalize_axis, static_ints
from onnxtfl.ir.shown_sizes import shown_shape
from onnxtfl.ir.types import DType


def one_axis(axis: Value, x: Value) -> int | None:
    """Return the axis of `x` in an operand with one entry; None if dynamic."""
    known = static_ints(axis)
    if known is None:
        return 0 if x.rank == 1 else None
    return normalize_axis(known[0], x.rank)


@dataclass(frozen=True)
class MiddleAxis:
    """A tensor whose axis is known only at run time, with that axis as the middle one of three::

        %x: [d0, ..., n, ..., dk]    ->    folded: [before, n, after]

    `axis`, `size`: [1], `sizes`: [rank], all int64.
    """

    b: Builder
    x: Value
    axis: Term
    sizes: Term
    size: Value
    folded: Value

    @classmethod
    def of(cls, b: Builder, x: Value, axis: Value) -> MiddleAxis:
        """The axes of `x` before and after `axis` (one integer) merged. Negative axes count from the end."""
        place, sizes = counted_from_start(b, reshape(b, axis, [1]), x.rank), Term(b, dim_vector(b, x.shape, x))
        each = Term(b, constant(np.arange(x.rank)))
        before, after = (inside.choose(sizes, 1).reduce("prod").value for inside in (each < place, each > place))
        size = b(ops.Gather, sizes.value, place.value, axis=0)
        folded = b(ops.Reshape, x, b(ops.Concatenate, before, size, after, axis=0))
        return cls(b, x, place, sizes, size, folded)

    def without(self, y: Value) -> Value:
        """`y` [before, after] with the axes of `x`, except for `axis`."""
        each = Term(self.b, constant(np.arange(self.x.rank - 1)))
        moved = (each < self.axis).choose(each, each + 1)
        vector = self.b(ops.Gather, self.sizes.value, moved.value, axis=0)
        return _shaped(self.b, y, vector, _common(self.x.shape[:-1], self.x.shape[1:]))

    def unfolded(self, parts: Sequence[Value], sizes: Sequence[Value]) -> list[Value]:
        """`parts` [before, m, after] with the axes of `x`, one of which has the size m in `sizes` (of one entry)."""
        shapes: dict[Value, tuple[Value, list[Dim]]] = {}
        each = Term(self.b, constant(np.arange(self.x.rank)))
        for size in dict.fromkeys(sizes):
            new = known_dims(size) or [fresh_symbol()]
            vector = each.equals(self.axis).choose(Term(self.b, size), self.sizes).value
            shapes[size] = vector, _common(self.x.shape, new * self.x.rank)
        return [_shaped(self.b, part, *shapes[size]) for part, size in zip(parts, sizes, strict=True)]


def counted_from_start(b: Builder, axes: Value, rank: int) -> Term:
    """Integers in [-rank, rank) as int64 in [0, rank)."""
    given = Term(b, as_int64(b, axes))
    return (given < 0).choose(given + rank, given)


def _common(some: Sequence[Dim], others: Sequence[Dim]) -> list[Dim]:
    """Return sizes that are valid for both alternatives, dynamic where they differ."""
    return [m if m == n else fresh_symbol() for m, n in zip(some, others, strict=True)]


def _shaped(b: Builder, x: Value, vector: Value, dims: Sequence[Dim]) -> Value:
    """Reshape `x` to the sizes in `vector`, which are `dims`."""
    result = b(ops.Reshape, x, vector)
    result.type = result.tensor_type.with_shape(tuple(dims))
    return result


def transposed_by(b: Builder, x: Value, permutation: Value) -> Value:
    """`x` with its axes in the order of a vector; if that is computed at run time, by a gather with flat indices.

    ::

        coordinates[i, a] = i // strides of the result[a] % sizes of the result[a]
        result[i] = %x[sum over a: coordinates[i, a] * strides of %x[permutation[a]]]
    """
    known = (0,) * x.rank if x.rank < 2 else static_ints(permutation)
    if known is not None:
        return b(ops.Transpose, x, permutation=normalize_axes(known, x.rank))
    order = counted_from_start(b, permutation, x.rank).value
    own = dim_vector(b, x.shape, x)
    total = b(ops.Reduce, own, [0], kind="prod", keepdims=True)
    sizes, steps = (b(ops.Gather, v, order, axis=0) for v in (own, _strides(b, own, x.rank)))
    places = unsqueezed(b, iota(b, total), [1])
    divisors = b(ops.Max, sizes, b.scalar(1, sizes))
    coordinates = Term(b, b(ops.FloorDiv, places, _strides(b, divisors, x.rank))) % Term(b, divisors)
    flat = (coordinates * Term(b, steps)).reduce("sum", [1], keepdims=False)
    moved = b(ops.Gather, reshape(b, x, [product(x.shape)]), flat.value, axis=0)
    return b(ops.Reshape, moved, sizes)


def _strides(b: Builder, sizes: Value, rank: int) -> Value:
    """The strides of a tensor in C order, in elements, from its sizes."""
    later = Term(b, constant(np.arange(rank) > np.arange(rank)[:, None]))
    return later.choose(Term(b, sizes), 1).reduce("prod", [1], keepdims=False).value


def reversed_along(b: Builder, x: Value, axes: Value) -> Value:
    """`x` reversed along `axes` (a vector); if these are computed at run time, by a Slice with strides of -1 along
    them.
    """
    if (known := static_ints(axes)) is not None:
        return b(ops.Reverse, x, dimensions=normalize_axes(known, x.rank))
    rows = unsqueezed(b, counted_from_start(b, axes, x.rank).value, [1])
    backward = b(ops.BroadcastTo, b.scalar(-1, rows), dim_vector(b, axes.shape, axes))
    strides = Term(b, b(ops.ScatterND, np.ones(x.rank, np.int64), rows, backward, kind="none", unique_indices=True))
    turned = b(ops.Slice, x, strides.min(0).value, (strides * HUGE).value, strides.value)
    turned.type = turned.tensor_type.with_shape(x.shape)
    return turned


def squeeze_axes(b: Builder, x: Value, axes: Value) -> Value:
    """`x` without `axes` (a vector) of size 1. Raises ValueError if an axis is known to have another size."""
    if (known := static_ints(axes)) is not None:
        gone = normalize_axes(known, x.rank)
        if any(differ(x.shape[axis], 1) for axis in gone):
            raise ValueError(f"axes {known} of {shown_shape(x.shape)} are not all 1")
        return reshape(b, x, [d for i, d in enumerate(x.shape) if i not in gone])
    places = b(ops.NonZero, (_is_among(b, axes, x.rank).equals(0)).value)
    kept = b(ops.Reshape, places, [x.rank - vector_length(axes)])
    return b(ops.Reshape, x, b(ops.Gather, dim_vector(b, x.shape, x), kept, axis=0))


def unsqueezed_at(b: Builder, x: Value, axes: Value) -> Value:
    """`x` with axes of size 1 inserted at `axes` (a vector) of the result."""
    known = [] if axes.tensor_type.shape == (0,) else static_ints(axes)
    if known is not None:
        return unsqueezed(b, x, known)
    new = _is_among(b, axes, x.rank + vector_length(axes))
    order = (1 - new).apply(ops.CumSum, new.constant(0), exclusive=True, reverse=False)
    sizes = Term(b, dim_vector(b, [*x.shape, 1], x)).apply(ops.Gather, order, axis=0)
    return b(ops.Reshape, x, new.equals(1).choose(sizes.constant(1), sizes).value)


def _is_among(b: Builder, axes: Value, rank: int) -> Term:
    """Return 1 for each of `rank` axes that is in a vector (perhaps negative), else 0: int64 [rank]."""
    places = Term(b, axes) % rank
    each = places.apply(ops.OneHot, *(b.scalar(n, DType.INT64) for n in (rank, 1, 0)), axis=-1)
    return each.reduce("max", [0], keepdims=False)


def vector_of_rank(b: Builder, vector: Value | None, axes: Value, rank: int, default: int) -> Value:
    """Expand a vector with an entry for each of the dynamic `axes` to `rank` entries, with `default` for others."""
    blank = constant(np.full(rank, default, np.int64))
    if vector is None:
        return blank
    rows = reshape(b, counted_from_start(b, axes, rank).value, (*axes.shape, 1))
    return b(ops.ScatterND, blank, rows, as_int64(b, vector), kind="none", unique_indices=True)


def named_factors(b: Builder, vector: Value) -> tuple[Value, list[Dim]]:
    """A vector of sizes as int64, and its entries: symbols for those known only at run time.

    Raises ValueError for sizes that are no integers.
    """
    if not vector.dtype.is_integer:
        raise ValueError(f"sizes are {vector.type}")
    if (known := known_dims(vector)) is not None:
        return as_int64(b, vector), known
    factors, entries = b(ops.Convert, vector, dtype=DType.INT64), [fresh_symbol() for _ in range(vector_length(vector))]
    factors.known = dim_array(entries)
    return factors, [*entries]
