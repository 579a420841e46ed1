"""Axes of a result along which an op may be evaluated in parts, each from parts of the operands."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any

import numpy as np

from onnxtfl.dataclass import dataclass
from onnxtfl.ir.declaration import Attributes, SharedAxes
from onnxtfl.ir.dtypes import Array

Index = tuple[slice, ...]


@dataclass(frozen=True, slots=True)
class Part:
    """The parts of the operands (an index for each; empty: all of it) for a part of the result, and the attributes that
    change.
    """

    operands: tuple[Index, ...]
    attributes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Division:
    """An axis of the result, its size, and what the elements with `start <= index < stop` are computed from."""

    axis: int
    size: int
    part: Callable[[int, int], Part]


def at(axis: int, start: int, stop: int) -> Index:
    """The index of the elements with `start <= index < stop` along `axis`."""
    return (slice(None),) * axis + (slice(start, stop),)


def along(axis: int, size: int, places: Sequence[int | None]) -> Division:
    """A division along `axis` of the result, which is axis `places[i]` of operand i (None: all of it is read)."""

    def part(start: int, stop: int) -> Part:
        return Part(tuple(() if place is None else at(place, start, stop) for place in places))

    return Division(axis, size, part)


def of_shared_axes(shared: SharedAxes, attributes: Attributes, operands: Sequence[Array | None]) -> Iterator[Division]:
    """The axes of the result that the operands share and no attribute names."""
    together = range(len(operands))[: shared.operands]
    shapes = {x.shape for x in operands[: shared.operands] if x is not None}
    if not shared.independent or shared.vectors or shared.axes or len({len(shape) for shape in shapes}) != 1:
        return
    rank = len(next(iter(shapes)))
    named = {int(axis) % rank for name in shared.attributes for axis in np.ravel(attributes[name])} if rank else set()
    for axis in set(range(rank)) - named:
        if len({shape[axis] for shape in shapes}) == 1:
            places = [axis if i in together and x is not None else None for i, x in enumerate(operands)]
            yield along(axis, next(iter(shapes))[axis], places)


def broadcast(operands: Sequence[Array | None]) -> Iterator[Division]:
    """All axes of the result of an elementwise op, whose operands broadcast."""
    shape = np.broadcast_shapes(*(x.shape for x in operands if x is not None))
    for axis, size in enumerate(shape):
        places = [None if x is None else axis - len(shape) + x.ndim for x in operands]
        yield along(axis, size, [_divided(x, place) for x, place in zip(operands, places, strict=True)])


def _divided(x: Array | None, place: int | None) -> int | None:
    return place if x is not None and place is not None and place >= 0 and x.shape[place] != 1 else None


def of_reduction(operands: Sequence[Array | None], axes: Sequence[int], keepdims: bool) -> Iterator[Division]:
    """The axes of the first operand that are not reduced."""
    x, *others = operands
    assert x is not None
    for place in range(x.ndim):
        if place not in axes:
            axis = place if keepdims else place - sum(a < place for a in axes)
            yield along(axis, x.shape[place], [place, *(None for _ in others)])
