"""Decision trees as tables over the nodes of all trees; nodes are numbered so that the children of a node are adjacent.

Each test is an interval, ``low <= x <= high``. Other tests are rewritten to intervals, some with swapped children:

::

    x < t     [-inf, the float below t]         x == t    [t, t]
    x > t     [the float above t, inf]          x != t    [t, t], swapped

If a NaN passes the test of a node, the node reads a copy of the features in which NaN is replaced by -inf or inf.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from onnxtfl.dataclass import dataclass
from onnxtfl.errors import UnsupportedError
from onnxtfl.ir.data import Array

MODES = ("LEQ", "LT", "GTE", "GT", "EQ", "NEQ", "MEMBER")
"""The tests of inner nodes; their indices are the values of `nodes_modes` in TreeEnsemble-5."""
LEAF = len(MODES)
MAX_DEPTH = 500
"""The maximum number of nodes on the path to a leaf."""
_PLAIN, _LOWEST, _HIGHEST = 0, 1, 2
"""The copies of the features: unchanged, NaN as -inf, NaN as inf."""


@dataclass(frozen=True)
class Nodes:
    """The nodes of all trees in the order of the file, as arrays with one element for each node.

    `mode`: an index into :data:`MODES`, or LEAF. `on_true`, `on_false`: node indices of the children. `nan_is_true`:
    whether a NaN passes the test. `sets`: the members of MEMBER nodes, by node index. `roots`: the root of each tree.
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
        """Return self. Raises ValueError for indices of children, roots or features that are out of range."""
        count, inner = len(self.mode), self.mode != LEAF
        if not len(self.roots):
            raise ValueError("the ensemble has no trees")
        for role, indices in (("child", self.on_true[inner]), ("child", self.on_false[inner]), ("root", self.roots)):
            if ((indices < 0) | (indices >= count)).any():
                raise ValueError(f"a {role} is a node that does not exist")
        used = self.feature[inner]
        if used.size and (used.min() < 0 or (features is not None and used.max() >= features)):
            raise ValueError(f"a node reads feature {max(used.max(), -used.min())} of {features}")
        return self


def with_interval_tests(nodes: Nodes) -> Nodes:
    """Rewrite MEMBER nodes to chains of EQ nodes; if NaN passes an EQ or MEMBER, add a node for NaN to the chain.

    ::

        x in {a, b}        x == a ? yes : (x == b ? yes : no)
    """
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
"""Tests that are not in the file: x is NaN; always false."""


@dataclass(frozen=True)
class Forest:
    """Trees as tables over their nodes, parents before children.

    After node i comes node ``child[i]`` if the test of i fails, ``child[i] + 1`` if it passes. A leaf is its own child,
    and its test always fails.

    `copy`: which copy of the features a node reads (unchanged, NaN as -inf, NaN as inf). `source`: the index of each
    node in the file. `depth`: the maximum number of tests on the path to a leaf. `strict`: all tests are ``x < high``.
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
        """Whether some test has a lower bound."""
        return bool((self.low[~self.is_leaf] > -np.inf).any()) or bool(np.isnan(self.low[~self.is_leaf]).any())

    @property
    def is_shared(self) -> bool:
        """Whether some node has several parents."""
        inner = self.child[~self.is_leaf]
        return len(np.unique(inner)) < len(inner)


def build_forest(nodes: Nodes) -> Forest:
    """The trees as tables, with the nodes numbered level by level. Raises ValueError for a cycle."""
    nodes = with_interval_tests(nodes)
    low, high, swapped = _intervals(nodes)
    leaf = nodes.mode == LEAF
    strict = bool(((nodes.mode == MODES.index("LT")) | leaf).all()) and bool(np.isfinite(nodes.threshold[~leaf]).all())
    if strict:
        high = nodes.threshold.astype(np.float32)
    source, child, depth = _renumbered(nodes, swapped)
    is_leaf = leaf[source]
    high = np.where(is_leaf, np.float32(np.nan), high[source]).astype(np.float32)
    return Forest(
        np.where(is_leaf, 0, nodes.feature[source]).astype(np.int32),
        _feature_copies(nodes)[source],
        low[source].astype(np.float32),
        high,
        child.astype(np.int32),
        source,
        np.arange(len(nodes.roots), dtype=np.int32),
        depth,
        is_leaf,
        strict,
    )


def _feature_copies(nodes: Nodes) -> Array:
    """The copy of the features that each node reads."""
    upward = np.isin(nodes.mode, [MODES.index("GTE"), MODES.index("GT")])
    needs_copy = nodes.nan_is_true & (nodes.mode < _EQ) & ~_is_never_true(nodes)
    return np.where(needs_copy, np.where(upward, _HIGHEST, _LOWEST), _PLAIN)


def _is_never_true(nodes: Nodes) -> Array:
    """The tests that are false for all x other than NaN: x < -inf, x > inf, comparisons with NaN."""
    less, more = (nodes.mode == MODES.index(name) for name in ("LT", "GT"))
    t = nodes.threshold
    return np.asarray((less & (t == -np.inf)) | (more & (t == np.inf)) | (np.isnan(t) & (nodes.mode <= _EQ)))


def _intervals(nodes: Nodes) -> tuple[Array, Array, Array]:
    """The lower and upper bound of each test, and whether its children are swapped."""
    t, mode = nodes.threshold.astype(np.float32), nodes.mode
    nan, inf = np.float32(np.nan), np.float32(np.inf)
    below, above = np.nextafter(t, -inf), np.nextafter(t, inf)
    mode_numbers = dict(zip(MODES, range(LEAF), strict=True))
    is_nan_test = mode == _NAN
    low = np.select([mode == mode_numbers["GTE"], mode == mode_numbers["GT"], mode >= _EQ], [t, above, t], -inf)
    high = np.select(
        [mode == mode_numbers["LEQ"], mode == mode_numbers["LT"], (mode == _EQ) | (mode == mode_numbers["NEQ"])],
        [t, below, t],
        inf,
    )
    low, high = np.where(is_nan_test, -inf, low), np.where(is_nan_test, inf, high)
    is_never = _is_never_true(nodes) | (mode == _NEVER)
    nan_only = is_never & nodes.nan_is_true  # x is NaN: not -inf <= x <= inf
    low, high = np.where(is_never, nan, low), np.where(is_never, nan, high)
    low, high = np.where(nan_only, -inf, low), np.where(nan_only, inf, high)
    return low, high, (mode == mode_numbers["NEQ"]) | is_nan_test | nan_only


def _renumbered(nodes: Nodes, swapped: Array) -> tuple[Array, Array, int]:
    """The new numbering: the source index of each node, the new index of its first child, and the depth.

    The children of a node with several parents are numbered once.
    """
    yes, no = (np.where(swapped, a, b) for a, b in ((nodes.on_false, nodes.on_true), (nodes.on_true, nodes.on_false)))
    first = np.full(len(nodes.mode), -1, np.int64)  # the new index of the first child of each source node
    levels, count, depth = [np.asarray(nodes.roots, np.int64)], len(nodes.roots), 0
    while levels[-1].size:
        level = levels[-1]
        unnumbered = np.unique(level[(nodes.mode[level] != LEAF) & (first[level] < 0)])
        first[unnumbered] = count + 2 * np.arange(len(unnumbered))
        count += 2 * len(unnumbered)
        levels.append(np.stack([no[unnumbered], yes[unnumbered]], axis=1).reshape(-1))
    source = np.concatenate(levels)
    child = np.where(nodes.mode[source] == LEAF, np.arange(len(source)), first[source])
    depth = _depth(child, len(nodes.roots))
    return source, child, depth


def _depth(child: Array, roots: int) -> int:
    """The maximum number of steps from a root to a leaf.

    Raises ValueError for a cycle, and UnsupportedError for more than MAX_DEPTH steps.
    """
    indices = np.arange(roots)
    for depth in range(MAX_DEPTH + 1):
        inner = indices[child[indices] != indices]
        if not inner.size:
            return depth
        indices = np.unique(np.concatenate([child[inner], child[inner] + 1]))
    if len(child) <= MAX_DEPTH:
        raise ValueError("the nodes of a tree form a cycle")
    raise UnsupportedError(f"a tree of more than {MAX_DEPTH} levels is not supported")


def indices_of_ids(trees: Array, nodes: Array, role: str, tree_ids: Array, ids: Array) -> Array:
    """The indices of the nodes with the ids (`tree_ids`, `ids`), among nodes with the ids (`trees`, `nodes`).

    Raises ValueError, which names the `role` of the nodes, if an id does not exist.
    """
    if not ids.size:
        return ids.astype(np.int64)
    if not trees.size:
        raise ValueError("the ensemble has no nodes")
    span = int(max(nodes.max(), ids.max(), 0)) + 1
    if min(nodes.min(), trees.min()) < 0 or span > 1 << 31 or trees.max() > 1 << 31:
        raise ValueError("tree ids and node ids have to be from 0 to 2**31 - 1")
    known_keys, wanted = trees * span + nodes, tree_ids * span + ids
    order = np.argsort(known_keys, kind="stable")
    found = np.minimum(np.searchsorted(known_keys, wanted, sorter=order), len(known_keys) - 1)
    indices = order[found]
    if (known_keys[indices] != wanted).any() or (ids < 0).any():
        raise ValueError(f"a {role} is a node that does not exist")
    return np.asarray(indices)


def check_equal_lengths(arrays: Sequence[Array], names: Sequence[str]) -> None:
    """Raise ValueError if arrays for the same nodes differ in length."""
    if len({len(a) for a in arrays}) > 1:
        shown = ", ".join(f"{name} {len(a)}" for name, a in zip(names, arrays, strict=True))
        raise ValueError(f"attributes of different lengths: {shown}")
