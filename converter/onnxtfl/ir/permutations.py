"""Small arithmetic of axis permutations, shared by the ops' relabel rules.

A permutation p says how a tensor lies in memory: physical axis i is logical axis p[i].
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from onnxtfl.ir.graph import Node
from onnxtfl.ir.op import Permutation, Relabeled
from onnxtfl.ir.types import TensorType, Type


def identity(rank: int) -> Permutation:
    """Nothing moves."""
    return tuple(range(rank))


def inverse(permutation: Sequence[int]) -> Permutation:
    """Where each logical axis lies."""
    result = [0] * len(permutation)
    for physical, logical in enumerate(permutation):
        result[logical] = physical
    return tuple(result)


def compose(outer: Sequence[int], inner: Sequence[int]) -> Permutation:
    """First transpose by `outer`, then by `inner`: axis i of the end is axis outer[inner[i]] of the start."""
    return tuple(outer[i] for i in inner)


def moved(axis: int, permutation: Sequence[int]) -> int:
    """The physical axis that holds logical `axis` (which may be counted from the end)."""
    return list(permutation).index(axis % len(permutation))


def moved_all(axes: Iterable[int], permutation: Sequence[int]) -> Permutation:
    """The physical axes that hold logical `axes`, in that order."""
    return tuple(moved(axis, permutation) for axis in axes)


def dropping(permutation: Sequence[int], axes: Iterable[int]) -> Permutation:
    """What is left of `permutation` when the logical `axes` are gone, renumbered."""
    gone = set(axes)
    kept = [p for p in permutation if p not in gone]
    order = {axis: i for i, axis in enumerate(sorted(kept))}
    return tuple(order[p] for p in kept)


def rank_of(value_type: Type | None) -> int | None:
    """The rank where this is the type of a tensor of known rank."""
    return value_type.rank if isinstance(value_type, TensorType) else None


def everywhere(node: Node, permutation: Permutation, **attributes: object) -> Relabeled | None:
    """All operands and results of `node` lie with `permutation`; None unless they all have its rank.

    Absent operands stay absent.
    """
    operands: list[Permutation | None] = []
    for value in node.operands:
        if value is not None and rank_of(value.type) != len(permutation):
            return None
        operands.append(None if value is None else permutation)
    if any(rank_of(result.type) != len(permutation) for result in node.results):
        return None
    return Relabeled(tuple(operands), (permutation,) * len(node.results), attributes)


def with_vectors(permutation: Permutation, *vectors: int, operands: int) -> Relabeled:
    """Operand 0 and the result lie with `permutation`, operands `vectors` have an entry an axis."""
    absent: tuple[Permutation | None, ...] = (None,) * (operands - 1)
    return Relabeled((permutation, *absent), (permutation,), {}, dict.fromkeys(vectors, permutation))
