"""Reshapes: which axes of one shape become which axes of the other, and the common factors of both shapes."""

from __future__ import annotations

from collections.abc import Sequence

from onnxtfl.dataclass import dataclass
from onnxtfl.ir.dims import Dim, Shape, differ, exceeds
from onnxtfl.ir.op import Permutation

Group = tuple[tuple[int, ...], tuple[int, ...]]


def factor_groups(before: Shape, after: Shape) -> list[Group] | None:
    """Split both shapes into pairs of runs of axes with equal products, as short as possible, which cover all axes.

    Unit axes at the same place form a pair; a remaining one joins the run before it (or forms a pair with an empty
    run). None if a size is 0 or no such pairs exist.
    """
    if 0 in before or 0 in after:
        return None
    cores = _core_groups(before, after)
    return None if cores is None else _with_units(cores, before, after)


def _core_groups(before: Shape, after: Shape) -> list[Group] | None:
    """The groups of the axes whose size is not 1."""
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
    """Whether `a` may be a factor of `b`: for ints, whether it is smaller; else, whether it certainly divides `b`."""
    return exceeds(b, a) or (not differ(a, b) and _is_factor(a, b))


def _is_factor(a: Dim, b: Dim) -> bool:
    """Whether `a` certainly divides `b`."""
    return b % a == 0


def _with_units(cores: Sequence[Group], before: Shape, after: Shape) -> list[Group]:
    """Add the unit axes between the groups: in pairs one by one; remaining ones join the group before them."""
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


def permuted_groups(groups: Sequence[Group], shape: Shape, permutation: Permutation) -> Permutation | None:
    """The permutation of the second shape of `groups` if the first (`shape`) has the axis order `permutation`.

    None if the axes of a group, except unit axes, do not stay adjacent and in order.
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
    """The groups sorted by the position of their first axis that is not 1, else of any; empty ones keep their place."""
    places: list[float] = []
    for near, _ in groups:
        solid = [position[axis] for axis in near if shape[axis] != 1] or [position[axis] for axis in near]
        places.append(min(solid) if solid else (places[-1] + 0.5 if places else -1.0))
    return sorted(range(len(groups)), key=places.__getitem__)


@dataclass(frozen=True)
class Factors:
    """The coarsest sizes from which two shapes result by merging adjacent axes.

    `before[i]` and `after[i]`: the indices in `sizes` of the factors of axis i of each shape; empty for a unit axis
    that the other shape does not have.
    """

    sizes: Shape
    before: tuple[tuple[int, ...], ...]
    after: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, before: Shape, after: Shape) -> Factors | None:
        """Return the common factors of the two shapes; None if there are none, as for 6x4 and 4x6."""
        groups = factor_groups(before, after)
        sizes: list[Dim] = []
        places: tuple[list[list[int]], ...] = [[] for _ in before], [[] for _ in after]
        for near, far in groups or ():
            parts = _common_parts([before[a] for a in near], [after[a] for a in far])
            if parts is None:
                return None
            for size, i, j in parts:
                places[0][near[i]].append(len(sizes))
                places[1][far[j]].append(len(sizes))
                sizes.append(size)
        return None if groups is None else cls(tuple(sizes), *(tuple(map(tuple, side)) for side in places))


def _common_parts(left: Sequence[Dim], right: Sequence[Dim]) -> list[tuple[Dim, int, int]] | None:
    """Return the common factors of two groups of axes with equal products: (size, left axis, right axis)."""
    if len(left) == len(right) == 1:
        return [(left[0], 0, 0)]
    rest = [[(d, i) for i, d in enumerate(run) if d != 1] for run in (left, right)]
    parts: list[tuple[Dim, int, int]] = []
    while all(rest):
        (a, i), (b, j) = (run.pop(0) for run in rest)
        part = next((x for x, y in ((a, b), (b, a)) if _is_factor(x, y)), None)
        if part is None:
            return None
        parts.append((part, i, j))
        for run, size, axis in ((rest[0], a, i), (rest[1], b, j)):
            if size != part:
                run.insert(0, (size // part, axis))
    return parts
