"""Ops that move elements: reshape, transpose, pad, concatenate, split, broadcast, reverse; and ops on shapes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from tools.probe.case import ALL, INTEGERS, NUMBERS, Array, Case, draw, int32, sizes
from tools.probe.registry import probe

RANKS = (1, 2, 3, 4, 5, 6, 7, 8)


def vector_cases(
    op: str, name: str, types: dict[str, str], x: Array, vector: Array, y: Array, options: dict[str, Any] | None = None
) -> Iterator[Case]:
    """`vector` constant, then computed."""
    types = {**types, "I": vector.dtype.name}
    yield Case(op, types, [x, vector], [y], options or {}, constants=frozenset({1}), extra={"constant": name})
    yield Case(op, types, [x, vector], [y], options or {}, dynamic=True)


@probe("RESHAPE")
def reshape(op: str) -> Iterator[Case]:
    """To a vector and back."""
    for element in ALL:
        for rank in (1, 0, *RANKS[1:]):
            x = draw(element, sizes(rank))
            for y in (x.reshape(-1), x.reshape((1,) * (rank == 0) + x.shape[::-1])):
                for a, b in ((x, y), (y, x)):
                    if rank or a is x:
                        yield from vector_cases(
                            op, "shape", {"T": element}, a, int32(b.shape), b, {"new_shape": b.shape}
                        )


@probe("SQUEEZE")
def squeeze(op: str) -> Iterator[Case]:
    """The first axis, by positive and negative index."""
    for element in ALL:
        for rank in RANKS:
            x = draw(element, (1, *sizes(rank)[1:]))
            yield Case(op, {"T": element}, [x], [x.reshape(x.shape[1:])], {"squeeze_dims": (0,)})
            yield Case(op, {"T": element}, [x], [x.reshape(x.shape[1:])], {"squeeze_dims": (-rank,)})


@probe("EXPAND_DIMS")
def expand_dims(op: str) -> Iterator[Case]:
    """A new first, inner and last axis; both index types."""
    for element in ALL:
        for index in ("int32", "int64"):
            for rank in (1, 0, *RANKS[1:7]):
                x = draw(element, sizes(rank))
                for axis in (0, -1, rank // 2):
                    yield from vector_cases(
                        op, "axis", {"T": element}, x, np.asarray(axis, index), np.expand_dims(x, axis)
                    )


@probe("TRANSPOSE")
def transpose(op: str) -> Iterator[Case]:
    """Reversed, rotated, first two or last two axes swapped, interleaved."""
    for element in ALL:
        for rank in RANKS:
            x, axes = draw(element, sizes(rank)), list(range(rank))
            swapped = [*axes[:-2], *axes[-2:][::-1]]
            front = [*axes[:2][::-1], *axes[2:]]
            for perm in (
                axes[::-1],
                axes[1:] + axes[:1],
                axes[-1:] + axes[:-1],
                swapped,
                front,
                axes[::2] + axes[1::2],
            ):
                y = np.ascontiguousarray(x.transpose(perm))
                yield from vector_cases(op, "perm", {"T": element}, x, int32(perm), y)


@probe("PAD", "MIRROR_PAD")
def pad(op: str) -> Iterator[Case]:
    """Axes padded before, after, on both sides, and not."""
    modes: tuple[tuple[dict[str, Any], dict[str, Any]], ...] = (
        (({}, {"mode": "constant"}),)
        if op == "PAD"
        else (({"mode": "REFLECT"}, {"mode": "reflect"}), ({"mode": "SYMMETRIC"}, {"mode": "symmetric"}))
    )
    for element in (e for e in ALL if e != "string"):
        for index in ("int32", "int64"):
            for rank in RANKS:
                x = draw(element, sizes(rank))
                for options, arguments in modes:
                    for padding in _paddings(rank):
                        y = np.pad(x, padding, **arguments)
                        yield from vector_cases(
                            op, "padding", {"T": element}, x, np.asarray(padding, index), y, options
                        )


def _paddings(rank: int) -> Iterator[list[tuple[int, int]]]:
    yield [(i % 2, (i + 1) % 2) for i in range(rank)]
    yield [(0, 0)] * (rank - 1) + [(1, 1)]
    yield [(1, 1)] + [(0, 0)] * (rank - 1)
    yield [(1, 1)] * rank


@probe("PADV2")
def padv2(op: str) -> Iterator[Case]:
    """Padding and value constant and computed."""
    for element in (e for e in ALL if e != "string"):
        for index in ("int32", "int64"):
            for rank in RANKS:
                x, value = draw(element, sizes(rank)), draw(element, (), seed="v")
                for padding in _paddings(rank):
                    y = np.pad(x, padding, constant_values=value)
                    vector, types = np.asarray(padding, index), {"T": element, "I": index}
                    fixed = {"constant": "padding"}
                    yield Case(op, types, [x, vector, value], [y], constants=frozenset({1, 2}), extra=fixed)
                    yield Case(op, types, [x, vector, value], [y], constants=frozenset({1}), extra=fixed)
                    yield Case(op, types, [x, vector, value], [y], dynamic=True)


@probe("CONCATENATION")
def concatenation(op: str) -> Iterator[Case]:
    """One to five operands along each axis, one of them constant."""
    for element in ALL:
        for rank in RANKS:
            for axis in sorted({0, rank - 1, -1, rank // 2, min(1, rank - 1)}):
                for count in (2, 3, 5, 1):
                    xs = [draw(element, _enlarged(rank, axis, i), seed=str(i)) for i in range(count)]
                    options = {"axis": axis, "fused_activation_function": "NONE"}
                    for constants in ((), (count - 1,)) if count > 1 else ((),):
                        y = np.concatenate(xs, axis)
                        yield Case(op, {"T": element}, xs, [y], options, constants=frozenset(constants))


def _enlarged(rank: int, axis: int, by: int) -> tuple[int, ...]:
    shape = list(sizes(rank))
    shape[axis] += by
    return tuple(shape)


@probe("PACK")
def pack(op: str) -> Iterator[Case]:
    """One to four operands along a new axis."""
    for element in ALL:
        for rank in range(7):
            for axis in sorted({0, rank, -1, rank // 2}):
                for count in (2, 4, 1):
                    xs = [draw(element, sizes(rank), seed=str(i)) for i in range(count)]
                    options = {"values_count": count, "axis": axis}
                    yield Case(op, {"T": element}, xs, [np.stack(xs, axis)], options)


@probe("UNPACK")
def unpack(op: str) -> Iterator[Case]:
    """Along each axis."""
    for element in ALL:
        for rank in RANKS:
            x = draw(element, sizes(rank))
            for axis in sorted({0, rank - 1, -1, rank // 2, min(1, rank - 1)}):
                ys = [np.ascontiguousarray(np.take(x, i, axis)) for i in range(x.shape[axis])]
                yield Case(op, {"T": element}, [x], ys, {"num": len(ys), "axis": axis})


@probe("SPLIT")
def split(op: str) -> Iterator[Case]:
    """Equal parts; the axis constant and computed."""
    for element in ALL:
        for rank in RANKS:
            x = draw(element, tuple(4 if i in (0, rank - 1) else d for i, d in enumerate(sizes(rank))))
            for axis in sorted({0, rank - 1, -1}):
                for count in (2, 4):
                    ys = [np.ascontiguousarray(y) for y in np.split(x, count, axis)]
                    types, options = {"T": element, "I": "int32"}, {"num_splits": count}
                    fixed = {"constant": "axis"}
                    yield Case(op, types, [int32(axis), x], ys, options, constants=frozenset({0}), extra=fixed)
                    yield Case(op, types, [int32(axis), x], ys, options, dynamic=True)


@probe("SPLIT_V")
def split_v(op: str) -> Iterator[Case]:
    """Unequal parts, one of inferred size."""
    for element in ALL:
        for index in ("int32", "int64"):
            for rank in RANKS:
                x = draw(element, tuple(5 if i in (0, rank - 1) else d for i, d in enumerate(sizes(rank))))
                for axis in sorted({0, rank - 1, -1}):
                    for parts in ((2, 3), (1, -1, 2)):
                        ends = np.cumsum([p if p > 0 else 2 for p in parts])[:-1]
                        ys = [np.ascontiguousarray(y) for y in np.split(x, ends, axis)]
                        operands = [x, np.asarray(parts, index), int32(axis)]
                        types, options = {"T": element, "I": index, "J": "int32"}, {"num_splits": len(parts)}
                        fixed = {"constant": "sizes axis"}
                        yield Case(op, types, operands, ys, options, constants=frozenset({1, 2}), extra=fixed)
                        yield Case(op, types, operands, ys, options, dynamic=True)


@probe("TILE")
def tile(op: str) -> Iterator[Case]:
    """Some axes repeated, some not."""
    for element in ALL:
        for index in ("int32", "int64"):
            for rank in RANKS:
                x = draw(element, sizes(rank))
                for repeats in ([2 - i % 2 for i in range(rank)], [1] * (rank - 1) + [3], [2] + [1] * (rank - 1)):
                    y = np.tile(x, repeats)
                    yield from vector_cases(op, "multiples", {"T": element}, x, np.asarray(repeats, index), y)


@probe("BROADCAST_TO")
def broadcast_to(op: str) -> Iterator[Case]:
    """From scalars, fewer axes, and sizes of 1."""
    for element in ALL:
        for index in ("int32", "int64"):
            for rank in RANKS:
                full = sizes(rank)
                ones = tuple(1 if i % 2 else d for i, d in enumerate(full))
                for shape in ((), full[1:], ones, (*full[:-1], 1), full):
                    x = draw(element, shape)
                    y = np.ascontiguousarray(np.broadcast_to(x, full))
                    yield from vector_cases(op, "shape", {"T": element}, x, np.asarray(full, index), y)


@probe("REVERSE_V2")
def reverse_v2(op: str) -> Iterator[Case]:
    """One axis."""
    for element in ALL:
        for rank in RANKS:
            x = draw(element, sizes(rank))
            for axis in sorted({0, rank - 1, rank // 2, -1}):
                yield from vector_cases(
                    op, "axis", {"T": element}, x, int32([axis]), np.ascontiguousarray(np.flip(x, axis))
                )


@probe("REVERSE_SEQUENCE")
def reverse_sequence(op: str) -> Iterator[Case]:
    """Time first and batch first."""
    for element in ALL:
        for index in ("int32", "int64"):
            for rank in RANKS[1:]:
                for seq, batch in ((1, 0), (0, 1)):
                    shape = list(sizes(rank))
                    shape[seq], shape[batch] = 4, 3
                    x, lengths = draw(element, shape), np.asarray([4, 2, 1], index)
                    types, options = {"T": element, "I": index}, {"seq_dim": seq, "batch_dim": batch}
                    yield Case(op, types, [x, lengths], [_reversed(x, lengths, seq, batch)], options)


def _reversed(x: Array, lengths: Array, seq: int, batch: int) -> Array:
    y = np.moveaxis(x, (batch, seq), (0, 1)).copy()
    for i, n in enumerate(lengths):
        y[i, :n] = y[i, :n][::-1]
    return np.ascontiguousarray(np.moveaxis(y, (0, 1), (batch, seq)))


@probe("SHAPE")
def shape(op: str) -> Iterator[Case]:
    """Both result types."""
    for element in ALL:
        for result in ("int32", "int64"):
            for rank in (1, 0, *RANKS[1:]):
                x = draw(element, sizes(rank))
                yield Case(
                    op, {"T": element, "U": result}, [x], [np.asarray(x.shape, result)], {"out_type": result.upper()}
                )


@probe("RANK")
def rank_op(op: str) -> Iterator[Case]:
    """The result is int32."""
    for element in ALL:
        for rank in (1, 0, *RANKS[1:]):
            yield Case(op, {"T": element, "U": "int32"}, [draw(element, sizes(rank))], [int32(rank)])


@probe("FILL")
def fill(op: str) -> Iterator[Case]:
    """Both index types."""
    for element in ALL:
        for index in ("int32", "int64"):
            for rank in (1, 0, *RANKS[1:]):
                value = draw(element, ())
                dims, types = np.asarray(sizes(rank), index), {"T": element, "I": index}
                y = np.full(sizes(rank), value, value.dtype)
                yield Case(op, types, [dims, value], [y], constants=frozenset({0}), extra={"constant": "dims"})
                yield Case(op, types, [dims, value], [y], dynamic=True)


@probe("RANGE")
def arange(op: str) -> Iterator[Case]:
    """Positive and negative steps."""
    for element in NUMBERS:
        for start, limit, delta in ((1, 9, 2), (9, 1, -3), (0, 5, 1), (3, 3, 1)):
            if delta > 0 or not element.startswith("u"):
                scalars = [draw(element, ()) * 0 + draw(element, ()).dtype.type(v) for v in (start, limit, delta)]
                y = np.arange(start, limit, delta).astype(scalars[0].dtype)
                operands = [np.asarray(s) for s in scalars]
                yield Case(op, {"T": element}, operands, [y], dynamic=True)


@probe("BROADCAST_ARGS")
def broadcast_args(op: str) -> Iterator[Case]:
    """The broadcast shape of two shapes."""
    for element in INTEGERS:
        for a, b, y in (((2, 3), (3,), (2, 3)), ((2, 1, 4), (5, 1), (2, 5, 4)), ((4,), (), (4,))):
            operands = [np.asarray(v, element) for v in (a, b)]
            yield Case(op, {"T": element}, operands, [np.asarray(y, element)], dynamic=True)
