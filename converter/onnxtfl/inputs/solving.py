"""Sizes that satisfy the constraints of a graph: equal sizes, and sizes that have to be sums of others.

Sizes are chosen one by one (`sizes.open_shapes`); here they are changed until the constraints hold. A decoder with a
cache has keys of ``past + seq`` positions, and the length of its mask, which no shape in the graph relates to them, is
one of the sums that occur::

    past = 32, seq = 32, total = 32    ->    past = 32, seq = 32, total = 64
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from onnxtfl.inputs.description import TensorInfo
from onnxtfl.inputs.sizes import Pair, ShapeFacts, Shapes
from onnxtfl.ir import dims
from onnxtfl.ir.dims import Symbol, SymDim

MOST_STEPS = 64
"""The most changes of a size until the constraints hold."""
MOST_CANDIDATES = 12
"""The most sums that are tried for sizes without a relation to others in the graph."""
LARGEST = 1 << 20
Sizes = dict[Symbol, int]


def solved_shapes(
    infos: Sequence[TensorInfo], tries: Sequence[Shapes], facts: ShapeFacts, fixed: Mapping[str, object]
) -> Iterator[Shapes]:
    """Shapes for all inputs at which sizes are equal where they have to be, then also with sums for single sizes.

    ``tries``: initial shapes. ``fixed``: inputs whose shapes do not change, nor do the sizes in ``infos``.
    """
    known = {s for name in fixed for d in facts.inputs.get(name, ()) for s in dims.symbols(d)}
    for info in infos:
        pairs = zip(facts.inputs.get(info.name, ()), info.shape or (), strict=False)
        known |= {s for dim, size in pairs if isinstance(size, int) for s in dims.symbols(dim)}
    for shapes in tries:
        sizes = _sizes_of(infos, shapes, facts)
        if sizes is None:
            continue
        for extra in ((), *_sums(infos, facts, known)):
            found = _solve(dict(sizes), [*facts.equal, *extra], known)
            if found is not None and (shaped := _shaped(infos, shapes, facts, found, known)) != shapes:
                yield shaped


def _sizes_of(infos: Sequence[TensorInfo], shapes: Shapes, facts: ShapeFacts) -> Sizes | None:
    """The sizes of the symbols of the graph; None if an input has none there."""
    found: Sizes = {}
    for info, shape in zip(infos, shapes, strict=True):
        known = facts.inputs.get(info.name)
        if known is None or len(known) != len(shape):
            return None
        for dim, size in zip(known, shape, strict=True):
            found |= {name: size for name in dims.symbols(dim) if dim == dims.symbol(name) and name not in found}
    return found


def _shaped(infos: Sequence[TensorInfo], shapes: Shapes, facts: ShapeFacts, sizes: Sizes, known: set[Symbol]) -> Shapes:
    return [
        tuple(
            size if known.issuperset(dims.symbols(dim)) else max(1, dims.evaluate(dim, sizes, size))
            for dim, size in zip(facts.inputs[info.name], shape, strict=True)
        )
        for info, shape in zip(infos, shapes, strict=True)
    ]


def _solve(sizes: Sizes, pairs: Sequence[Pair], known: set[Symbol]) -> Sizes | None:
    """Change sizes until all pairs are equal; None if impossible. Sizes in ``known`` do not change."""
    uses = [name for pair in pairs for dim in pair for name in set(dims.symbols(dim))]
    for _ in range(MOST_STEPS):
        wrong = next((pair for pair in pairs if _difference(pair, sizes) != 0), None)
        if wrong is None:
            return sizes
        names = sorted({s for dim in wrong for s in dims.symbols(dim)} - known, key=lambda s: (uses.count(s), str(s)))
        change = next((c for name in names if (c := _changed(wrong, sizes, name)) is not None), None)
        if change is None:
            return None
        sizes |= change
    return None


def _changed(pair: Pair, sizes: Sizes, name: Symbol) -> Sizes | None:
    """Return the size of a symbol that makes the pair equal, if their difference is linear in it."""
    if name not in sizes:
        return None
    here, there = (_difference(pair, sizes | {name: sizes[name] + step}) for step in (0, 1))
    slope = there - here
    size = sizes[name] - here // slope if slope in (1, -1) else 0
    fits = 1 <= size <= LARGEST and _difference(pair, sizes | {name: size}) == 0
    return {name: size} if fits else None


def _difference(pair: Pair, sizes: Sizes) -> int:
    return dims.evaluate(pair[0], sizes, 1) - dims.evaluate(pair[1], sizes, 1)


def _sums(infos: Sequence[TensorInfo], facts: ShapeFacts, known: set[Symbol]) -> Iterator[tuple[Pair, ...]]:
    """Sums of sizes that occur inside, for each symbol that no other size is related to; masks come first."""
    related = {s for pair in facts.equal for dim in pair for s in dims.symbols(dim)} | known
    order = sorted(infos, key=lambda info: "mask" not in info.name.lower())
    lone = [dim for info in order for dim in facts.inputs.get(info.name, ())[1:] if _is_lone(dim, related)]
    sums = sorted((dim for dim in facts.inner if _is_sum(dim)), key=str)
    pairs = [((dim, total),) for dim in dict.fromkeys(lone) for total in sums if not _shares(dim, total)]
    yield from pairs[:MOST_CANDIDATES]


def _is_lone(dim: dims.Dim, related: set[Symbol]) -> bool:
    names = list(dims.symbols(dim))
    return len(names) == 1 and dim == dims.symbol(names[0]) and names[0] not in related


def _is_sum(dim: SymDim) -> bool:
    """Whether a size is the sum of two symbols."""
    names = list(dims.symbols(dim))
    return len(names) == 2 and names[0] != names[1] and dim == dims.symbol(names[0]) + dims.symbol(names[1])


def _shares(a: dims.Dim, b: dims.Dim) -> bool:
    return bool(set(dims.symbols(a)) & set(dims.symbols(b)))
