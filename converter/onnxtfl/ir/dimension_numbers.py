"""XLA's Gather and Scatter: windows at computed starts, described by dimension numbers, as GatherND and ScatterND.

Source: https://www.tensorflow.org/xla/operation_semantics (gather, scatter).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from onnxtfl.dataclass import dataclass
from onnxtfl.ir.budget import check_elements
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.dims import Dim, differ, exceeds, known_size
from onnxtfl.ir.formula import Term
from onnxtfl.ir.graph import Value
from onnxtfl.ir.ops.arithmetic import Add
from onnxtfl.ir.ops.concatenation import Concatenate
from onnxtfl.ir.ops.gathering import Gather, GatherND
from onnxtfl.ir.ops.slicing import slice_axes
from onnxtfl.ir.reshape import broadcast, dim_value, dim_vector, iota, reshape, transposed, unsqueezed


@dataclass(frozen=True)
class Starts:
    """Where windows start.

    `mapped`: the operand's axes that the index vectors index; others start at 0. `vector`: the axis of the vectors; if
    it is the rank of the indices, each index is a vector of its own.

    `batching`: pairs of an axis of the operand and one of the indices, along which both are at the same position.
    """

    mapped: tuple[int, ...]
    vector: int
    batching: tuple[tuple[int, int], ...] = ()

    @property
    def axes(self) -> list[int]:
        """The operand's axes that :meth:`vectors` index."""
        return [*(axis for axis, _ in self.batching), *self.mapped]

    def vectors(self, b: Builder, indices: Value) -> Value:
        """`indices` with the axis of the vectors last, and entries for the batching axes first."""
        rank = indices.rank
        if not 0 <= self.vector <= rank:
            raise ValueError(f"index_vector_dim {self.vector} for indices of rank {rank}")
        last = unsqueezed(b, indices, [rank]) if self.vector == rank else _moved_last(b, indices, self.vector)
        if differ(last.shape[-1], len(self.mapped)):
            raise ValueError(f"index vectors of {last.shape[-1]} entries for the axes {list(self.mapped)}")
        columns = [_positions(b, last, axis - (axis > self.vector)) for _, axis in self.batching]
        return b(Concatenate, *columns, last, axis=last.rank - 1) if columns else last


def _moved_last(b: Builder, x: Value, axis: int) -> Value:
    return transposed(b, x, [*(a for a in range(x.rank) if a != axis), axis])


def _positions(b: Builder, vectors: Value, axis: int) -> Value:
    """The position along `axis` of each of the vectors, as a column."""
    steps = Term(b, iota(b, dim_value(b, vectors.shape[axis], vectors))).to(vectors.dtype).value
    line = reshape(b, steps, [d if a == axis else 1 for a, d in enumerate(vectors.shape)], vectors)
    return broadcast(b, slice_axes(b, line, {vectors.rank - 1: slice(0, 1)}), (*vectors.shape[:-1], 1), vectors)


def _offsets(sizes: Sequence[int]) -> np.ndarray:
    """The positions in a window: [*sizes, len(sizes)]."""
    check_elements(math.prod(sizes), "the positions in a window")
    return np.stack(np.meshgrid(*map(np.arange, sizes), indexing="ij"), axis=-1)


def gathered(
    b: Builder,
    x: Value,
    indices: Value,
    starts: Starts,
    sizes: Sequence[int],
    collapsed: Sequence[int],
    offsets: Sequence[int],
) -> Value:
    """The windows of `sizes` at the starts, which are clamped so that the windows fit.

    `collapsed`: the axes of size 1 that windows drop (and the batching ones); `offsets`: the axes of the result for
    the others. Whole slices of one axis are a Gather; otherwise indexed axes become the leading ones, and the offsets
    in the window along them are added to each index.
    """
    mapped, gone = starts.axes, [*(axis for axis, _ in starts.batching), *collapsed]
    rest = [a for a in range(x.rank) if a not in mapped]
    if len(sizes) != x.rank or not all(_holds(have, size) for size, have in zip(sizes, x.shape, strict=True)):
        raise ValueError(f"slice_sizes {list(sizes)} of {x.shape}")
    places = _offsets([sizes[a] for a in mapped])
    found = starts.vectors(b, indices)
    room = Term(b, dim_vector(b, [x.shape[a] - sizes[a] for a in mapped], x)).to(found.dtype)
    found = Term(b, found).clamp(0, room).value
    batch = found.rank - 1
    if len(mapped) == 1 and gone == mapped and all(sizes[a] == x.shape[a] for a in rest):
        (axis,) = mapped
        rows = b(Gather, x, reshape(b, found, found.shape[:-1], found), axis=axis)
        order = [*range(axis, axis + batch), *range(axis), *range(axis + batch, rows.rank)]
        return _offsets_at(b, transposed(b, rows, order), batch, offsets)
    spread = unsqueezed(b, found, range(batch, batch + len(mapped)))
    ordered = transposed(b, x, [*mapped, *rest])
    ordered = slice_axes(b, ordered, {i: slice(0, sizes[a]) for i, a in enumerate(rest, len(mapped))})
    windows = b(GatherND, ordered, b(Add, spread, places.astype(found.dtype.numpy)))
    order = [[*mapped, *rest].index(a) + batch for a in range(x.rank) if a not in gone]
    kept = [*range(batch), *order, *(batch + [*mapped, *rest].index(a) for a in gone)]
    flat = transposed(b, windows, kept)
    flat = reshape(b, flat, flat.shape[: flat.rank - len(gone)])
    return _offsets_at(b, flat, batch, offsets)


def _holds(have: Dim, size: int) -> bool:
    """Whether an axis may have at least `size` elements."""
    return size >= 0 and not exceeds(size, have)


def _offsets_at(b: Builder, x: Value, batch: int, offsets: Sequence[int]) -> Value:
    """Move the axes after the batch axes to `offsets`."""
    if len(set(offsets)) != x.rank - batch or not all(0 <= axis < x.rank for axis in offsets):
        raise ValueError(f"offset_dims {list(offsets)} for {x.rank - batch} of {x.rank} axes")
    others = iter(range(batch))
    after = {axis: batch + i for i, axis in enumerate(offsets)}
    return transposed(b, x, [after[a] if a in after else next(others) for a in range(x.rank)])


Scatter = Callable[[Value, Value, Value], Value]
"""The operand with updates scattered to index vectors of its leading axes, as ScatterND does (its three operands)."""


def scattered_windows(
    b: Builder,
    x: Value,
    indices: Value,
    updates: Value,
    starts: Starts,
    windows: Sequence[int],
    inserted: Sequence[int],
    scatter: Scatter,
) -> Value:
    """`updates` scattered to windows of `x` at the starts, which have to be inside.

    `windows`: the axes of the updates that are axes of the window, `inserted`: those of the operand that it lacks (and
    the batching ones). Axes that a window does not cover are indexed, by the start and the offset in the window.
    """
    gone = {*inserted, *(axis for axis, _ in starts.batching)}
    inside = [a for a in range(x.rank) if a not in gone]
    if len(inside) != len(windows) or not gone.union(starts.mapped) <= set(range(x.rank)):
        raise ValueError(f"update_window_dims {list(windows)}, inserted_window_dims {sorted(gone)} of rank {x.rank}")
    sizes = dict(zip(inside, (updates.shape[w] for w in windows), strict=True))
    moved = [a for a in inside if a in starts.axes or sizes[a] != x.shape[a]]
    rest, lead = [a for a in inside if a not in moved], [*starts.axes, *(a for a in moved if a not in starts.axes)]
    lead += [a for a in sorted(gone) if a not in lead]
    scattered = [a for a in range(updates.rank) if a not in windows]
    place = dict(zip(inside, windows, strict=True))
    laid = transposed(b, updates, [*scattered, *(place[a] for a in moved), *(place[a] for a in rest)])
    rows = _rows(b, starts.vectors(b, indices), lead, moved, [known_size(sizes[a], "a window") for a in moved])
    order = [*lead, *rest]
    written = scatter(transposed(b, x, order), rows, laid)
    return transposed(b, written, [order.index(a) for a in range(x.rank)])


def _rows(b: Builder, starts: Value, lead: Sequence[int], moved: Sequence[int], sizes: Sequence[int]) -> Value:
    """The index vectors, over the axes `lead`, of the elements of windows of `sizes` along `moved`.

    `starts`: vectors over the first of `lead`; the others start at 0.
    """
    missing = len(lead) - int(starts.shape[-1])
    if missing:
        zeros = broadcast(b, b.scalar(0, starts), (*starts.shape[:-1], missing), starts)
        starts = b(Concatenate, starts, zeros, axis=starts.rank - 1)
    if all(size == 1 for size in sizes):
        return reshape(b, starts, (*starts.shape[:-1], *(1,) * len(sizes), len(lead)), starts)
    offsets = np.zeros((*sizes, len(lead)), starts.dtype.numpy)
    offsets[..., [lead.index(a) for a in moved]] = _offsets(sizes)
    batch = starts.rank - 1
    return b(Add, unsqueezed(b, starts, range(batch, batch + len(sizes))), offsets)
