"""Small arithmetic of axis permutations, shared by the ops' permuted rules.

A permutation p is an axis order: physical axis i is logical axis p[i].
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from onnxtfl.ir.graph import Node
from onnxtfl.ir.op import Permutation, Permuted
from onnxtfl.ir.types import TensorType, Type


def identity(rank: int) -> Permutation:
    """The identity permutation."""
    return tuple(range(rank))


def inverse(permutation: Sequence[int]) -> Permutation:
    """The physical axis of each logical axis."""
    result = [0] * len(permutation)
    for physical, logical in enumerate(permutation):
        result[logical] = physical
    return tuple(result)


def compose(outer: Sequence[int], inner: Sequence[int]) -> Permutation:
    """The transposition by `outer`, then by `inner`: result axis i is source axis outer[inner[i]]."""
    return tuple(outer[i] for i in inner)


def moved(axis: int, permutation: Sequence[int]) -> int:
    """The physical axis of logical `axis` (which may be negative)."""
    return list(permutation).index(axis % len(permutation))


def moved_all(axes: Iterable[int], permutation: Sequence[int]) -> Permutation:
    """The physical axes of logical `axes`, in that order."""
    return tuple(moved(axis, permutation) for axis in axes)


def dropping(permutation: Sequence[int], axes: Iterable[int]) -> Permutation:
    """`permutation` without the logical `axes`, renumbered."""
    gone = set(axes)
    kept = [p for p in permutation if p not in gone]
    order = {axis: i for i, axis in enumerate(sorted(kept))}
    return tuple(order[p] for p in kept)


def is_unit_move(shape: Sequence[object], permutation: Sequence[int]) -> bool:
    """Whether permuting the axes of `shape` moves axes of size 1 only."""
    large = [axis for axis in permutation if shape[axis] != 1]
    return large == sorted(large)


def rank_of(value_type: Type | None) -> int | None:
    """The rank of a tensor type; None if it is unknown or not a tensor type."""
    return value_type.rank if isinstance(value_type, TensorType) else None


def everywhere(node: Node, permutation: Permutation, **attributes: object) -> Permuted | None:
    """The op with `permutation` for all operands and results; None unless they all have its rank.

    Absent operands stay absent.
    """
    operands: list[Permutation | None] = []
    for value in node.operands:
        if value is not None and rank_of(value.type) != len(permutation):
            return None
        operands.append(None if value is None else permutation)
    if any(rank_of(result.type) != len(permutation) for result in node.results):
        return None
    return Permuted(tuple(operands), (permutation,) * len(node.results), attributes)


def with_vectors(permutation: Permutation, *vectors: int, operands: int) -> Permuted:
    """The op with `permutation` for operand 0 and the result; operands `vectors` have one entry per axis."""
    absent: tuple[Permutation | None, ...] = (None,) * (operands - 1)
    return Permuted((permutation, *absent), (permutation,), {}, dict.fromkeys(vectors, permutation))
