"""Slices, gathers, scatters and other ops with indices."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
from tools.probe.case import ALL, FLOATS, NUMBERS, Array, Case, draw, draw_small, evaluated, int32, sizes
from tools.probe.registry import probe

RANKS = (1, 2, 3, 4, 5, 6, 7, 8)


@probe("SLICE")
def slice_op(op: str) -> Iterator[Case]:
    """Begin and size constant and computed; size -1 is up to the end."""
    for element in ALL:
        for index in ("int32", "int64"):
            for rank in RANKS:
                x = draw(element, tuple(d + 1 for d in sizes(rank)))
                for begin, size in (([1] * rank, [2] * rank), ([i % 2 for i in range(rank)], [-1] * rank)):
                    cut = tuple(slice(b, None if s < 0 else b + s) for b, s in zip(begin, size, strict=True))
                    operands = [x, np.asarray(begin, index), np.asarray(size, index)]
                    yield from _constant_or_computed(
                        op, {"T": element, "I": index}, operands, np.ascontiguousarray(x[cut]), "begin size"
                    )


def _constant_or_computed(
    op: str, types: dict[str, str], operands: list[Array], y: Array, names: str, options: dict[str, Any] | None = None
) -> Iterator[Case]:
    """The operands after the first one constant, then computed."""
    rest = frozenset(range(1, len(operands)))
    yield Case(op, types, operands, [y], options or {}, constants=rest, extra={"constant": names})
    yield Case(op, types, operands, [y], options or {}, dynamic=True)


@probe("STRIDED_SLICE")
def strided_slice(op: str) -> Iterator[Case]:
    """Strides of both signs, masks, and axes that are removed."""
    for element in ALL:
        for index in ("int32", "int64"):
            for rank in RANKS:
                x = draw(element, tuple(d + 2 for d in sizes(rank)))
                for begin, end, strides, masks in _strides(rank):
                    y = _strided(x, begin, end, strides, masks)
                    operands = [x, *(np.asarray(v, index) for v in (begin, end, strides))]
                    options = {"begin_mask": 0, "end_mask": 0, "ellipsis_mask": 0, "new_axis_mask": 0}
                    options |= {"shrink_axis_mask": 0, "offset": False, **masks}
                    types = {"T": element, "I": index}
                    yield from _constant_or_computed(op, types, operands, y, "begin end strides", options)


def _strides(rank: int) -> Iterator[tuple[list[int], list[int], list[int], dict[str, int]]]:
    every = (1 << rank) - 1
    yield [1] * rank, [3] * rank, [1] * rank, {}
    yield [0] * rank, [4] * rank, [2] * rank, {"end_mask": every}
    yield [-1] * rank, [0] * rank, [-1] * rank, {"begin_mask": every, "end_mask": every}
    yield [i % 2 for i in range(rank)], [9] * rank, [1 + i % 2 for i in range(rank)], {}
    yield [1] * rank, [2] + [3] * (rank - 1), [1] * rank, {"shrink_axis_mask": 1}
    yield [1] * rank, [3] * (rank - 1) + [2], [1] * rank, {"shrink_axis_mask": 1 << (rank - 1)}
    yield [-2] * rank, [9] * rank, [1] * rank, {}


def _strided(x: Array, begin: list[int], end: list[int], strides: list[int], masks: dict[str, int]) -> Array:
    cut: list[Any] = []
    for i, (b, e, s) in enumerate(zip(begin, end, strides, strict=True)):
        if masks.get("shrink_axis_mask", 0) >> i & 1:
            cut.append(b)
            continue
        first = None if masks.get("begin_mask", 0) >> i & 1 else b
        cut.append(slice(first, None if masks.get("end_mask", 0) >> i & 1 else e, s))
    return np.array(x[tuple(cut)], x.dtype, order="C")


@probe("GATHER")
def gather(op: str) -> Iterator[Case]:
    """Along each axis, indices of rank 0 to 3, batches, constant and computed."""
    for element in ALL:
        for index in ("int32", "int64", "int16"):
            for rank in RANKS:
                x = draw(element, sizes(rank))
                for axis, rank_of_indices in itertools.product(
                    sorted({0, min(1, rank - 1), rank - 1, rank // 2}), range(4)
                ):
                    yield from _gathered(op, element, index, x, axis, rank_of_indices, 0)
                if rank > 1:
                    yield from _gathered(op, element, index, x, 1, 2, 1)
                    yield from _gathered(op, element, index, x, rank - 1, 1, 1)


def _gathered(op: str, element: str, index: str, x: Array, axis: int, rank: int, batch: int) -> Iterator[Case]:
    if x.ndim - 1 + rank - batch > 8:
        return
    shape = (*x.shape[:batch], *(2, 3, 2)[: rank - batch])
    indices = np.asarray(np.random.default_rng(rank).integers(0, x.shape[axis], shape)).astype(index)
    if batch:
        y = np.stack([np.take(a, i, axis - 1) for a, i in zip(x, indices, strict=True)])
    else:
        y = np.asarray(np.take(x, indices, axis))
    options = {"axis": axis, "batch_dims": batch}
    types = {"T": element, "I": index}
    for constants in ((), (1,), (0,)) if rank == 1 else ((),):
        if not (constants == (0,) and element == "string"):
            yield Case(op, types, [x, indices], [y], options, constants=frozenset(constants))


@probe("GATHER_ND")
def gather_nd(op: str) -> Iterator[Case]:
    """Index vectors of length 1 to the rank."""
    for element in ALL:
        for index in ("int32", "int64", "int16"):
            for rank in RANKS:
                x = draw(element, sizes(rank))
                for depth, lead in itertools.product(sorted({1, rank, (rank + 1) // 2}), ((3,), (2, 2), ())):
                    if len(lead) + rank - depth <= 8:
                        indices = _indices(x.shape[:depth], lead).astype(index)
                        y = np.asarray(x[tuple(np.moveaxis(indices.astype(np.int64), -1, 0))])
                        types = {"T": element, "I": index}
                        yield Case(op, types, [x, indices], [y])
                        yield Case(op, types, [x, indices], [y], constants=frozenset({1}))


def _indices(shape: tuple[int, ...], lead: tuple[int, ...]) -> Array:
    rng = np.random.default_rng(len(shape))
    return np.stack([np.asarray(rng.integers(0, d, lead)) for d in shape], -1)


@probe("SCATTER_ND")
def scatter_nd(op: str) -> Iterator[Case]:
    """Updates of zeros; those of equal indices are added."""
    for element in (*NUMBERS, "bool"):
        for rank in RANKS:
            full = sizes(rank)
            for depth in sorted({1, rank, (rank + 1) // 2}):
                indices = _indices(full[:depth], (3,)).astype(np.int32)
                indices[1] = indices[0] if element != "bool" else indices[1]
                updates = (
                    draw(element, (3, *full[depth:])) if element in FLOATS else draw_small(element, (3, *full[depth:]))
                )
                wide = np.zeros(full, np.float32 if element == "float16" else updates.dtype)
                np.add.at(wide, tuple(indices.T), updates.astype(wide.dtype))
                types = {"I": "int32", "T": element}
                operands, y = [indices, updates, int32(full)], wide.astype(updates.dtype)
                yield Case(op, types, operands, [y], constants=frozenset({2}), extra={"constant": "shape"})
                yield Case(op, types, operands, [y], dynamic=True)


@probe("ONE_HOT")
def one_hot(op: str) -> Iterator[Case]:
    """Along a new first, inner and last axis; indices out of range give the off value."""
    for element in ALL:
        for index in ("int32", "int64"):
            for rank in range(8):
                indices = np.asarray(np.random.default_rng(rank).integers(-1, 5, sizes(rank))).astype(index)
                on, off = draw(element, (), seed="on"), draw(element, (), seed="off")
                for axis in sorted({0, -1, rank}):
                    new = rank if axis == -1 else axis
                    hit = np.expand_dims(indices, new) == np.arange(4).reshape((4,) + (1,) * (rank - new))
                    types = {"T": element, "I": index, "J": "int32"}
                    operands, y = [indices, int32(4), on, off], np.where(hit, on, off).astype(on.dtype)
                    fixed = frozenset({1, 2, 3})
                    yield Case(op, types, operands, [y], {"axis": axis}, constants=fixed, extra={"constant": "depth"})
                    yield Case(op, types, operands, [y], {"axis": axis}, dynamic=True)


@probe("DYNAMIC_UPDATE_SLICE")
def dynamic_update_slice(op: str) -> Iterator[Case]:
    """Start indices out of range are clamped."""
    for element in ALL:
        for index in ("int32", "int64"):
            for rank in RANKS:
                x = draw(element, tuple(d + 2 for d in sizes(rank)))
                update = draw(element, sizes(rank), seed="u")
                for starts in ([1] * rank, [0] * rank, [9] * rank):
                    y = x.copy()
                    y[tuple(slice(min(s, 2), min(s, 2) + d) for s, d in zip(starts, update.shape, strict=True))] = (
                        update
                    )
                    yield Case(op, {"T": element, "I": index}, [x, update, np.asarray(starts, index)], [y])


@probe("MATRIX_DIAG")
def matrix_diag(op: str) -> Iterator[Case]:
    """One and several diagonals."""
    for element in (*NUMBERS, "bool"):
        for rank in RANKS[:7]:
            x = draw(element, sizes(rank))
            y = np.zeros((*x.shape, x.shape[-1]), x.dtype)
            diagonal = np.arange(x.shape[-1])
            y[..., diagonal, diagonal] = x
            yield Case(op, {"T": element}, [x], [y])


@probe("MATRIX_SET_DIAG")
def matrix_set_diag(op: str) -> Iterator[Case]:
    """Square matrices."""
    for element in (*NUMBERS, "bool"):
        for rank in RANKS[1:]:
            x = draw(element, (*sizes(rank)[:-2], 3, 3))
            diagonal = draw(element, x.shape[:-1], seed="d")
            y, indices = x.copy(), np.arange(3)
            y[..., indices, indices] = diagonal
            yield Case(op, {"T": element}, [x, diagonal], [y])


@probe("EMBEDDING_LOOKUP")
def embedding_lookup(op: str) -> Iterator[Case]:
    """Rows of a constant table."""
    for element in ALL[:-1]:
        for rank in RANKS[1:]:
            operands = [int32([1, 0, 1]), draw(element, sizes(rank))]
            types = {"I": "int32", "W": element, "T": element}
            fixed: dict[str, Any] = {"constants": frozenset({1}), "extra": {"constant": "value"}}
            yield evaluated(op, types, operands, _rows_of, **fixed)
            yield evaluated(op, types, operands, _rows_of)


def _rows_of(indices: Array, table: Array) -> list[Array]:
    return [table[indices]]


@probe("SPARSE_TO_DENSE")
def sparse_to_dense(op: str) -> Iterator[Case]:
    """Two elements of a tensor."""
    for element in (*NUMBERS, "bool"):
        for index in ("int32", "int64"):
            for rank in RANKS:
                full = sizes(rank)
                indices = np.asarray([[0] * rank, [d - 1 for d in full]], index)
                values, default = draw(element, (2,), seed="v"), draw(element, (), seed="d")
                y = np.full(full, default, default.dtype)
                y[tuple(indices[0])], y[tuple(indices[1])] = values
                operands = [indices, np.asarray(full, index), values, default]
                types = {"I": index, "T": element}
                yield Case(op, types, operands, [y], {"validate_indices": False}, dynamic=True)


@probe("BUCKETIZE")
def bucketize(op: str) -> Iterator[Case]:
    """Three boundaries."""
    for element in NUMBERS:
        for rank in RANKS:
            x = draw_small(element, sizes(rank))
            y = np.digitize(x.astype(np.float64), [-1.5, 0.5, 2.0]).astype(np.int32)
            yield Case(op, {"T": element, "U": "int32"}, [x], [y], {"boundaries": (-1.5, 0.5, 2.0)})
