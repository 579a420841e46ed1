"""Which axes of a reshape's operand became which axes of its result."""

from __future__ import annotations

from collections.abc import Sequence

from onnxtfl.ir.dims import Dim, FloorDiv, Shape
from onnxtfl.ir.op import Permutation

Group = tuple[tuple[int, ...], tuple[int, ...]]


def factor_groups(before: Shape, after: Shape) -> list[Group] | None:
    """Pairs of runs of axes with equal products, as small as they can be; in order, every axis in one pair.

    Unit axes that face each other are a pair of their own, left-over ones join the run in front of them (or are a
    pair with an empty side). None where a size is 0 or the products do not come out.
    """
    if 0 in before or 0 in after:
        return None
    cores = _core_groups(before, after)
    return None if cores is None else _with_units(cores, before, after)


def _core_groups(before: Shape, after: Shape) -> list[Group] | None:
    """The groups of the axes that are not 1."""
    left = [i for i, d in enumerate(before) if d != 1]
    right = [i for i, d in enumerate(after) if d != 1]
    groups: list[Group] = []
    i = j = 0
    while i < len(left) and j < len(right):
        start = i, j
        a, b = before[left[i]], after[right[j]]
        while a != b:
            if j + 1 < len(right) and (i + 1 == len(left) or _divides(b, a)):
                j += 1
                b = b * after[right[j]]
            elif i + 1 < len(left):
                i += 1
                a = a * before[left[i]]
            else:
                return None
        i, j = i + 1, j + 1
        groups.append((tuple(left[start[0] : i]), tuple(right[start[1] : j])))
    return groups if i == len(left) and j == len(right) else None


def _divides(a: Dim, b: Dim) -> bool:
    """Whether `a` goes into `b` as far as one can tell; of two ints the smaller one is taken to."""
    if isinstance(a, int) and isinstance(b, int):
        return a < b
    quotient = b // a
    if isinstance(quotient, int):
        return True
    return not any(isinstance(atom, FloorDiv) for monomial, _ in quotient.terms for atom, _ in monomial)


def _with_units(cores: Sequence[Group], before: Shape, after: Shape) -> list[Group]:
    """Unit axes between the groups paired up one by one; what is left over joins its neighbour."""
    result: list[Group] = []
    a = b = 0
    for left, right in [*cores, ((len(before),), (len(after),))]:
        gap_a, gap_b = list(range(a, left[0])), list(range(b, right[0]))
        paired = min(len(gap_a), len(gap_b))
        rest: Group = (tuple(gap_a[paired:]), tuple(gap_b[paired:]))
        pairs: list[Group] = [((x,), (y,)) for x, y in zip(gap_a, gap_b, strict=False)]
        result += pairs
        if any(rest) and result:
            last = result.pop()
            rest = (last[0] + rest[0], last[1] + rest[1])
        if any(rest):
            result.append(rest)
        if left[0] < len(before) or right[0] < len(after):
            a, b = left[-1] + 1, right[-1] + 1
            result.append((tuple(range(left[0], a)), tuple(range(right[0], b))))
    return result


def follow_groups(groups: Sequence[Group], shape: Shape, permutation: Permutation) -> Permutation | None:
    """The far side's permutation when the near side (of `shape`) lies with `permutation`.

    None where that tears a group apart: its axes have to lie side by side in order, unit axes aside.
    """
    owner = {axis: g for g, (near, _) in enumerate(groups) for axis in near}
    position = {axis: i for i, axis in enumerate(permutation)}
    seen = [axis for axis in permutation if shape[axis] != 1]
    runs = [owner[axis] for k, axis in enumerate(seen) if k == 0 or owner[axis] != owner[seen[k - 1]]]
    if len(set(runs)) != len(runs):
        return None
    for g in runs:
        near = [axis for axis in groups[g][0] if shape[axis] != 1]
        if near != sorted(near, key=position.__getitem__):
            return None
    return tuple(axis for g in _in_order(groups, shape, position) for axis in groups[g][1])


def _in_order(groups: Sequence[Group], shape: Shape, position: dict[int, int]) -> list[int]:
    """The groups by where they lie: by the first axis that is not 1, else the first; empty ones behind a neighbour."""
    places: list[float] = []
    for near, _ in groups:
        solid = [position[axis] for axis in near if shape[axis] != 1] or [position[axis] for axis in near]
        places.append(min(solid) if solid else (places[-1] + 0.5 if places else -1.0))
    return sorted(range(len(groups)), key=places.__getitem__)
