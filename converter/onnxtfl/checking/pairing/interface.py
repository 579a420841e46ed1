"""Pairs of corresponding inputs and outputs of two models, and their layouts."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from onnxtfl.inputs.description import Dim, MismatchError, TensorInfo
from onnxtfl.ir.dims import differ
from onnxtfl.ir.permutations import inverse
from onnxtfl.ir.record import TensorEntry

Layout = Literal["auto", "source", "channels-last", "channels-first"]
Permutation = tuple[int, ...]


@dataclass(frozen=True)
class Pair:
    """Tensor ``a`` of the first model is ``b`` of the second (positions). ``b = a.transpose(permutation)`` for the
    first of ``permutations`` that makes the models agree; the likeliest come first. ``recorded``: whether it is the
    only one, from the record of the conversion.
    """

    a: int
    b: int
    permutations: tuple[Permutation, ...]
    recorded: bool = False

    @property
    def moved(self) -> bool:
        """Whether the shapes prove that the layout changed."""
        return is_moved(self.permutations[0]) and len(self.permutations) == 1


def match(
    a: Sequence[TensorInfo],
    b: Sequence[TensorInfo],
    what: str,
    layout: Layout,
    record: Sequence[TensorEntry] = (),
) -> list[Pair]:
    """Pair the tensors of two models by name, then by position and shape; in the order of ``a``.

    ``what``: "input" or "output", for messages. ``layout``: "source" allows no other layout than the first model's.
    ``record``: what the conversion of the first model did, which leaves no choice among layouts.
    Raises `MismatchError` if one side has tensors that the other lacks, or names them in another order.
    """
    if len(a) != len(b):
        raise MismatchError(f"{len(a)} {what}s {_names(a)} became {len(b)} {_names(b)}")
    found: dict[int, int] = {}
    for key in (lambda info: info.name, _plain_name):
        _match_names(a, b, key, found)
    if [found[i] for i in sorted(found)] != sorted(found.values()):
        raise MismatchError(f"{what}s are in another order: {_names(a)} became {_names(b)}")
    rest_a = [i for i in range(len(a)) if i not in found]
    rest_b = [j for j in range(len(b)) if j not in found.values()]
    for i in rest_a:
        fitting = [j for j in rest_b if permutations(a[i].shape, b[j].shape, layout)]
        best = next((j for j in fitting if a[i].dtype == b[j].dtype), fitting[0] if fitting else rest_b[0])
        rest_b.remove(best)
        found[i] = best
    pairs = [Pair(i, found[i], _ways(a[i], b[found[i]], what, layout)) for i in range(len(a))]
    if layout not in ("channels-last", "channels-first"):
        return pairs
    return [_recorded(pair, a[pair.a].name, b[pair.b].name, record) for pair in pairs]


def _recorded(pair: Pair, a: str, b: str, record: Sequence[TensorEntry]) -> Pair:
    """``pair`` with the layout in the record, if it is one of the possible ones."""
    same = tuple(range(len(pair.permutations[0])))
    ways = {e.permutation or same for e in record if (e.source, e.target) == (a, b) and e.shape is None}
    allowed = ways.intersection(pair.permutations)
    return replace(pair, permutations=tuple(allowed), recorded=True) if len(ways) == len(allowed) == 1 else pair


def _match_names(
    a: Sequence[TensorInfo], b: Sequence[TensorInfo], key: Callable[[TensorInfo], str], found: dict[int, int]
) -> None:
    """Add pairs whose ``key`` is the same and occurs once on each side."""
    names_b = [key(info) for info in b]
    names_a = [key(info) for info in a]
    for i, name in enumerate(names_a):
        if i in found or not name or names_a.count(name) > 1 or names_b.count(name) > 1 or name not in names_b:
            continue
        if names_b.index(name) not in found.values():
            found[i] = names_b.index(name)


def _plain_name(info: TensorInfo) -> str:
    """Return a name without what exporters add to it: "serving_default_" before, ":0" after, other characters."""
    return re.sub(r"\W", "_", re.sub(r":\d+$", "", info.name.removeprefix("serving_default_"))).lower()


def _ways(a: TensorInfo, b: TensorInfo, what: str, layout: Layout) -> tuple[Permutation, ...]:
    allowed = permutations(a.shape, b.shape, layout)
    if not allowed and what == "output":  # the comparison of the outputs will show the difference
        return (tuple(range(len(a.shape or ()))),)
    if not allowed:
        raise MismatchError(f"{what} {a.name!r}: shape {shape_text(a.shape)} became {shape_text(b.shape)}")
    return tuple(allowed)


def permutations(a: tuple[Dim, ...] | None, b: tuple[Dim, ...] | None, layout: Layout) -> list[Permutation]:
    """Return the layouts in which a tensor of shape ``a`` can be one of shape ``b``.

    Candidates: the same layout, channels-last for channels-first, and the reverse. The one with more equal static sizes
    comes first; of several with as many, the same layout (with "channels-last" and "channels-first", the moved ones).
    """
    if a is None or b is None:
        return [tuple(range(len(a or b or ())))]
    if len(a) != len(b):
        return []
    rank = len(a)
    same: Permutation = tuple(range(rank))
    moved: list[Permutation] = [(0, *range(2, rank), 1), (0, rank - 1, *range(1, rank - 1))] if rank >= 3 else []
    if layout == "channels-first":
        moved.reverse()
    order = [same] if layout == "source" else [same, *moved] if layout == "auto" else [*moved, same]
    fitting = [p for p in order if not any(differ(a[axis], b[k]) for k, axis in enumerate(p))]
    known = {p: sum(isinstance(b[k], int) and a[axis] == b[k] for k, axis in enumerate(p)) for p in fitting}
    if moved and known.get(moved[0], -1) == known.get(moved[1], -2):  # converters produce channels-last
        fitting = [p for p in fitting if p in (same, moved[0])]
    return sorted(fitting, key=lambda p: -known[p])


def is_moved(permutation: Permutation) -> bool:
    """Whether a permutation moves anything."""
    return permutation != tuple(range(len(permutation)))


def in_first_order(array: Any, permutation: Permutation) -> Any:
    """An array of the second model in the axis order of the first, which is transposed by `permutation`."""
    return array.transpose(inverse(permutation)) if is_moved(permutation) else array


def shape_text(shape: Sequence[Dim] | None) -> str:
    """Return a shape as text: ``[1,3,?,w]``."""
    return "unknown" if shape is None else "[" + ",".join("?" if dim is None else str(dim) for dim in shape) + "]"


def _names(infos: Sequence[TensorInfo]) -> str:
    return "(" + ", ".join(info.name for info in infos) + ")"
