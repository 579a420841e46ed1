"""Decision trees as tables: nodes of several trees, numbered so that the two children of a node are adjacent.

Each test is an interval, ``low <= x <= high``. Other tests become intervals by other bounds, or with swapped children:

::

    x < t     [-inf, the float below t]         x == t    [t, t]
    x > t     [the float above t, inf]          x != t    [t, t], swapped

A NaN that counts as true is -inf, or inf, in a copy of the features that such a node reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from onnxtfl.errors import InvalidModelError, UnsupportedError
from onnxtfl.ir.data import Array

MODES = ("LEQ", "LT", "GTE", "GT", "EQ", "NEQ", "MEMBER")
"""The tests of inner nodes, in the order of their numbers in TreeEnsemble-5."""
LEAF = len(MODES)
DEEPEST = 500
"""The most nodes on the way to a leaf."""
_PLAIN, _LOWEST, _HIGHEST = 0, 1, 2


@dataclass(frozen=True)
class Nodes:
    """The nodes of trees as a file has them: arrays with one element for each node.

    `mode`: a number of :data:`MODES`, or LEAF. `on_true`, `on_false`: numbers of nodes. `nan_is_true`: bools.
    `sets`: the members of MEMBER nodes, by node. `roots`: the first node of each tree.
    """

    mode: Array
    feature: Array
    threshold: Array
    on_true: Array
    on_false: Array
    nan_is_true: Array
    roots: Array
    sets: dict[int, Array]

    def checked(self, features: int | None) -> Nodes:
        """These nodes. Raises InvalidModelError for children, features or roots that are none."""
        count, inner = len(self.mode), self.mode != LEAF
        if not len(self.roots):
            raise InvalidModelError("an ensemble without trees", code="E-FILE-009")
        for what, found in (("child", self.on_true[inner]), ("child", self.on_false[inner]), ("root", self.roots)):
            if ((found < 0) | (found >= count)).any():
                raise InvalidModelError(f"a {what} that is no node", code="E-FILE-009")
        used = self.feature[inner]
        if used.size and (used.min() < 0 or (features is not None and used.max() >= features)):
            raise InvalidModelError(f"feature {max(used.max(), -used.min())} of {features}", code="E-FILE-009")
        return self


def with_simple_tests(nodes: Nodes) -> Nodes:
    """The nodes with each MEMBER as a chain of EQ, and a separate node for the NaN of an EQ that counts as true."""
    chained = np.flatnonzero((nodes.mode == MODES.index("MEMBER")) | ((nodes.mode == _EQ) & nodes.nan_is_true))
    if not chained.size:
        return nodes
    mode, feature, threshold = nodes.mode.copy(), nodes.feature, nodes.threshold.copy()
    on_true, on_false = nodes.on_true.copy(), nodes.on_false.copy()
    added: list[tuple[int, int, float, int, int]] = []
    for node in chained.tolist():
        tests = [(_EQ, float(t)) for t in nodes.sets.get(node, threshold[node : node + 1])]
        tests += [(_NAN, 0.0)] if nodes.nan_is_true[node] else []
        tests = tests or [(_NEVER, 0.0)]
        yes, no = int(on_true[node]), int(on_false[node])
        following = [len(mode) + len(added) + i for i in range(len(tests) - 1)] + [no]
        mode[node], threshold[node], on_false[node] = *tests[0], following[0]
        rest = zip(tests[1:], following[1:], strict=True)
        added += [(test, int(feature[node]), value, yes, other) for (test, value), other in rest]
    nan = np.r_[nodes.nan_is_true, np.zeros(len(added), bool)]
    nan[chained] = False
    old = (mode, feature, threshold, on_true, on_false)
    new = list(zip(*added, strict=True)) or [()] * len(old)
    joined = (np.r_[a, np.asarray(more, a.dtype)] for a, more in zip(old, new, strict=True))
    mode, feature, threshold, on_true, on_false = joined
    return Nodes(mode, feature, threshold, on_true, on_false, nan, nodes.roots, {})


_EQ = MODES.index("EQ")
_NAN, _NEVER = LEAF + 1, LEAF + 2


@dataclass(frozen=True)
class Forest:
    """Trees as tables over their nodes, parents before children: node i has the children ``child[i]`` if its test
    fails, and ``child[i]``, the other one ``child[i] + 1``; a leaf is its own child, and its test always fails.

    `copy`: which copy of the features a node reads (plain, NaN as -inf, NaN as inf). `source`: the number of each node
    in the file. `depth`: the most tests on the way to a leaf. `strict`: the test of all nodes is ``x < high``.
    """

    feature: Array
    copy: Array
    low: Array
    high: Array
    child: Array
    source: Array
    roots: Array
    depth: int
    is_leaf: Array
    strict: bool = False

    @property
    def has_low(self) -> bool:
        """Whether a test has a lower bound."""
        return bool((self.low[~self.is_leaf] > -np.inf).any()) or bool(np.isnan(self.low[~self.is_leaf]).any())

    @property
    def is_shared(self) -> bool:
        """Whether nodes have several parents."""
        inner = self.child[~self.is_leaf]
        return len(np.unique(inner)) < len(inner)


def forest_of(nodes: Nodes) -> Forest:
    """The trees with their nodes numbered level by level. Raises InvalidModelError for a cycle."""
    nodes = with_simple_tests(nodes)
    low, high, swapped = _intervals(nodes)
    leaf = nodes.mode == LEAF
    strict = bool(((nodes.mode == MODES.index("LT")) | leaf).all()) and bool(np.isfinite(nodes.threshold[~leaf]).all())
    if strict:
        high = nodes.threshold.astype(np.float32)
    source, child, depth = _numbered(nodes, swapped)
    is_leaf = leaf[source]
    high = np.where(is_leaf, np.float32(np.nan), high[source]).astype(np.float32)
    return Forest(
        np.where(is_leaf, 0, nodes.feature[source]).astype(np.int32),
        _copies(nodes)[source],
        low[source].astype(np.float32),
        high,
        child.astype(np.int32),
        source,
        np.arange(len(nodes.roots), dtype=np.int32),
        depth,
        is_leaf,
        strict,
    )


def _copies(nodes: Nodes) -> Array:
    """The copy of the features that each node reads."""
    upward = np.isin(nodes.mode, [MODES.index("GTE"), MODES.index("GT")])
    marked = nodes.nan_is_true & (nodes.mode < _EQ) & ~_never(nodes)
    return np.where(marked, np.where(upward, _HIGHEST, _LOWEST), _PLAIN)


def _never(nodes: Nodes) -> Array:
    """The tests that no number passes: less than -inf, more than inf, comparisons with NaN."""
    less, more = (nodes.mode == MODES.index(name) for name in ("LT", "GT"))
    t = nodes.threshold
    return np.asarray((less & (t == -np.inf)) | (more & (t == np.inf)) | (np.isnan(t) & (nodes.mode <= _EQ)))


def _intervals(nodes: Nodes) -> tuple[Array, Array, Array]:
    """The bounds of each test, and whether its children are swapped."""
    t, mode = nodes.threshold.astype(np.float32), nodes.mode
    nan, inf = np.float32(np.nan), np.float32(np.inf)
    below, above = np.nextafter(t, -inf), np.nextafter(t, inf)
    names = dict(zip(MODES, range(LEAF), strict=True))
    every = mode == _NAN
    low = np.select([mode == names["GTE"], mode == names["GT"], mode >= _EQ], [t, above, t], -inf)
    high = np.select(
        [mode == names["LEQ"], mode == names["LT"], (mode == _EQ) | (mode == names["NEQ"])], [t, below, t], inf
    )
    low, high = np.where(every, -inf, low), np.where(every, inf, high)
    never = _never(nodes) | (mode == _NEVER)
    nan_only = never & nodes.nan_is_true  # what is not in [-inf, inf]
    low, high = np.where(never, nan, low), np.where(never, nan, high)
    low, high = np.where(nan_only, -inf, low), np.where(nan_only, inf, high)
    return low, high, (mode == names["NEQ"]) | every | nan_only


def _numbered(nodes: Nodes, swapped: Array) -> tuple[Array, Array, int]:
    """The nodes in a new order: the source of each place, the place of its first child, and the depth.

    The children of a node with several parents are numbered once.
    """
    yes, no = (np.where(swapped, a, b) for a, b in ((nodes.on_false, nodes.on_true), (nodes.on_true, nodes.on_false)))
    first = np.full(len(nodes.mode), -1, np.int64)  # the place of the children of each source node
    levels, count, depth = [np.asarray(nodes.roots, np.int64)], len(nodes.roots), 0
    while levels[-1].size:
        level = levels[-1]
        fresh = np.unique(level[(nodes.mode[level] != LEAF) & (first[level] < 0)])
        first[fresh] = count + 2 * np.arange(len(fresh))
        count += 2 * len(fresh)
        levels.append(np.stack([no[fresh], yes[fresh]], axis=1).reshape(-1))
    source = np.concatenate(levels)
    child = np.where(nodes.mode[source] == LEAF, np.arange(len(source)), first[source])
    depth = _depth(child, len(nodes.roots))
    return source, child, depth


def _depth(child: Array, roots: int) -> int:
    """The most steps from a root to a leaf. Raises InvalidModelError for more than nodes, UnsupportedError for too
    many."""
    places = np.arange(roots)
    for depth in range(DEEPEST + 1):
        inner = places[child[places] != places]
        if not inner.size:
            return depth
        places = np.unique(np.concatenate([child[inner], child[inner] + 1]))
    if len(child) <= DEEPEST:
        raise InvalidModelError("a tree whose nodes form a circle", code="E-FILE-009")
    raise UnsupportedError(f"a tree of more than {DEEPEST} levels")


def places_of(trees: Array, nodes: Array, what: str, asked_trees: Array, asked: Array) -> Array:
    """The positions among all nodes of nodes given by tree and number. Raises InvalidModelError for a missing node.
    none."""
    if not asked.size:
        return asked.astype(np.int64)
    if not trees.size:
        raise InvalidModelError("an ensemble without nodes", code="E-FILE-009")
    span = int(max(nodes.max(), asked.max(), 0)) + 1
    if min(nodes.min(), trees.min()) < 0 or span > 1 << 31 or trees.max() > 1 << 31:
        raise InvalidModelError("numbers of trees or nodes that are none", code="E-FILE-009")
    keys, wanted = trees * span + nodes, asked_trees * span + asked
    order = np.argsort(keys, kind="stable")
    found = np.minimum(np.searchsorted(keys, wanted, sorter=order), len(keys) - 1)
    places = order[found]
    if (keys[places] != wanted).any() or (asked < 0).any():
        raise InvalidModelError(f"a {what} that is no node", code="E-FILE-009")
    return np.asarray(places)


def equal_lengths(arrays: Sequence[Array], names: Sequence[str]) -> None:
    """Raise InvalidModelError if arrays for the same nodes differ in length."""
    if len({len(a) for a in arrays}) > 1:
        shown = ", ".join(f"{name} {len(a)}" for name, a in zip(names, arrays, strict=True))
        raise InvalidModelError(f"attributes of different lengths: {shown}", code="E-FILE-009")
