"""Arithmetic of axis permutations.

A permutation p is an axis order: physical axis i is logical axis p[i].
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from typing import Any

from onnxtfl.ir.declaration import Permutation


@functools.cache
def identity(rank: int) -> Permutation:
    """The identity permutation."""
    return tuple(range(rank))


def unless_identity(permutation: Sequence[int]) -> Permutation | None:
    """`permutation`, or None if it is the identity."""
    return None if tuple(permutation) == identity(len(permutation)) else tuple(permutation)


def inverse(permutation: Sequence[int]) -> Permutation:
    """The physical axis of each logical axis."""
    return tuple(sorted(range(len(permutation)), key=permutation.__getitem__))


def compose(outer: Sequence[int], inner: Sequence[int]) -> Permutation:
    """The transposition by `outer`, then by `inner`: result axis i is source axis outer[inner[i]]."""
    return tuple(outer[i] for i in inner)


def physical_axes(axes: Any, permutation: Sequence[int]) -> Any:
    """The physical axes of logical `axes` (one, or several; they may be negative)."""
    if isinstance(axes, int):
        return list(permutation).index(axes % len(permutation))
    return tuple(physical_axes(axis, permutation) for axis in axes)


def without_axes(permutation: Sequence[int], axes: Iterable[int]) -> Permutation:
    """`permutation` without the logical `axes`, renumbered."""
    gone = set(axes)
    kept = [p for p in permutation if p not in gone]
    order = {axis: i for i, axis in enumerate(sorted(kept))}
    return tuple(order[p] for p in kept)


def is_unit_move(shape: Sequence[object], permutation: Sequence[int]) -> bool:
    """Whether permuting the axes of `shape` moves axes of size 1 only."""
    large = [axis for axis in permutation if shape[axis] != 1]
    return large == sorted(large)
