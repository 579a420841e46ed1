"""Scores of decision trees: the path to a leaf in each tree as gathers level by level, or all tests as matrix products.

::

    gathers                                          matrices
    place = roots                                    passed = low <= X[:, feature] <= high
    place = child[place] + (X[feature[place]] <=     leaf = passed x on_true - on_false == tests to pass
            high[place]), depth times                scores = leaf x weights
    scores = sum of weights[place]

The smaller one is written. Sums are in the order of the trees, as ONNX Runtime adds.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from onnxtfl.mappings.contrib.ml.trees import Forest

from onnxtfl.ir import ops
from onnxtfl.ir.budget import check_elements
from onnxtfl.ir.data import Array
from onnxtfl.ir.dims import known_size
from onnxtfl.ir.formula import Term
from onnxtfl.ir.graph import constant
from onnxtfl.ir.reshape import reshape
from onnxtfl.ir.types import DType

_OP_BYTES = 220
"""About what an op and its result take in a file."""


@dataclass(frozen=True)
class Leaves:
    """The weights of nodes [nodes of the file, targets], 0 by default, and whether the file has a weight there
    (bools)."""

    weights: Array
    present: Array

    def of(self, forest: Forest) -> Leaves:
        """The leaves in the order of `forest`; inner nodes have no weights."""
        leaf, source = forest.is_leaf[:, None], np.where(forest.is_leaf, forest.source, 0)
        weights, present = (np.where(leaf, a[source], 0) for a in (self.weights, self.present))
        return Leaves(weights.astype(np.float32), present.astype(bool))


class Trees:
    """The trees of an ensemble, applied to rows of features [n, f]."""

    def __init__(self, rows: Term, forest: Forest, leaves: Leaves) -> None:
        self.b, self.forest, self.leaves = rows.b, forest, leaves.of(forest)
        self.rows, self.features = self._copied(rows)
        self._place: Term | None = None

    def _copied(self, rows: Term) -> tuple[Term, Array]:
        """The features with a copy for each use of NaN, side by side; the column that each node reads."""
        used, size = sorted({*np.unique(self._kinds()).tolist()}), rows.value.shape[1]
        missing = rows.differs(rows) if used != [0] else None
        parts = [rows if kind == 0 or missing is None else _filled(rows, missing, kind) for kind in used]
        if len(parts) == 1:
            return parts[0], self.forest.feature
        size = known_size(size, "the number of features")
        joined = self.b(ops.Concatenate, *(part.value for part in parts), axis=1)
        places = self.forest.feature + size * np.searchsorted(used, self._kinds())
        return Term(self.b, joined), np.where(self.forest.is_leaf, 0, places).astype(np.int32)

    def _kinds(self) -> Array:
        kinds = self.forest.copy
        inner = kinds[~self.forest.is_leaf]
        return np.where(self.forest.is_leaf, inner[0] if inner.size else 0, kinds)

    # --- tests and ways -----------------------------------------------------------------------------------------------

    def _passed(self, x: Term, low: Term | None, high: Term) -> Term:
        below = x.compared("LT" if self.forest.strict else "LE", high)
        return below if low is None else below & x.compared("GE", low)

    def _table(self, array: Array, places: Term | Array) -> Term:
        """The entries of a table at places."""
        if isinstance(places, np.ndarray):
            return Term(self.b, constant(np.asarray(array)[places]))
        return Term(self.b, self.b(ops.Gather, np.asarray(array), places.value, axis=0))

    def places(self) -> Term:
        """The leaf that each row reaches in each tree [n, trees]."""
        if self._place is None:
            check_elements(len(self.forest.child), "the nodes of the trees")
            place = self._step(self.forest.roots)
            for _ in range(self.forest.depth - 1):
                place = self._step(place)
            self._place = place
        return self._place

    def _step(self, place: Term | Array) -> Term:
        """The child of each place."""
        forest, column = self.forest, self._table(self.features, place)
        batched = 0 if isinstance(place, np.ndarray) else 1
        x = self.rows.apply(ops.Gather, column, axis=1, batch_dims=batched)
        low = self._table(forest.low, place) if forest.has_low else None
        passed = self._passed(x, low, self._table(forest.high, place))
        return self._table(forest.child, place).apply(ops.Add, passed.to(DType.INT32))

    # --- scores -------------------------------------------------------------------------------------------------------

    def sums(self) -> Term:
        """The sum over the trees of the weights of each target [n, targets]."""
        if self._is_small():
            return self._product(self.leaves.weights)
        targets = self._only_targets()
        if targets is not None:
            return self._sums_by_target(targets)
        return self._each(self.leaves.weights).reduce("sum", [1], keepdims=False)

    def extremes(self, kind: str) -> Term:
        """The smallest or largest weight of each target [n, targets] among the trees that have one; else 0."""
        none = np.float32(np.inf if kind == "min" else -np.inf)
        weights = np.where(self.leaves.present, self.leaves.weights, none)
        found = self._each(weights).reduce(kind, [1], keepdims=False)
        always = self.always()
        return found if always.all() else self.scored().choose(found, 0.0)

    def always(self) -> Array:
        """Whether at least one tree has a weight for the target in each of its leaves [targets]."""
        tree = self._tree_of_leaves()
        present = self.leaves.present[self.forest.is_leaf]
        counts = np.zeros((len(self.forest.roots), present.shape[1]), np.int64)
        np.add.at(counts, tree, ~present)
        return np.asarray((counts == 0).any(axis=0))

    def scored(self) -> Term:
        """Whether a row reached a leaf with a weight [n, targets], bools."""
        counted = self._each(self.leaves.present.astype(np.float32))
        return counted.reduce("max", [1], keepdims=False) > 0.0

    def _each(self, weights: Array) -> Term:
        """The weights of the reached leaves [n, trees, targets]."""
        if weights.shape[1] == 1:
            found = self._table(weights[:, 0], self.places())
            return Term(self.b, reshape(self.b, found.value, (*found.value.shape, 1)))
        leaf = self.forest.is_leaf
        row = np.maximum(np.cumsum(leaf) - 1, 0).astype(np.int32)
        return self._table(weights[leaf], self._table(row, self.places()))

    def _tree_of_leaves(self) -> Array:
        """The tree of each leaf; for a node of several trees, the last one."""
        tree = np.zeros(len(self.forest.child), np.int64)
        tree[: len(self.forest.roots)] = np.arange(len(self.forest.roots))
        for place in np.flatnonzero(~self.forest.is_leaf).tolist():
            tree[self.forest.child[place]] = tree[self.forest.child[place] + 1] = tree[place]
        return tree[self.forest.is_leaf]

    def _only_targets(self) -> Array | None:
        """The target of each tree, if each tree has one and all targets have the same number of trees; else None."""
        present = self.leaves.present[self.forest.is_leaf]
        count, trees = present.shape[1], len(self.forest.roots)
        if count == 1 or trees % count or (present.sum(axis=1) != 1).any():
            return None
        target = np.full(trees, -1)
        of_leaf, tree = present.argmax(axis=1), self._tree_of_leaves()
        target[tree] = of_leaf
        if (target[tree] != of_leaf).any() or (np.bincount(target, minlength=count) != trees // count).any():
            return None
        return target

    def _sums_by_target(self, targets: Array) -> Term:
        """The sums if each tree is for one of the targets: rounds of trees, with one for each target."""
        order = np.argsort(targets, kind="stable").reshape(self.leaves.weights.shape[1], -1).T.reshape(-1)
        found = self._table(self.leaves.weights.sum(axis=1, dtype=np.float32), self.places())
        if (order != np.arange(len(order))).any():
            found = Term(self.b, self.b(ops.Gather, found.value, order, axis=1))
        rows, count = found.value.shape[0], self.leaves.weights.shape[1]
        rounds = reshape(self.b, found.value, (rows, len(order) // count, count))
        return Term(self.b, rounds).reduce("sum", [1], keepdims=False)

    # --- matrices -----------------------------------------------------------------------------------------------------

    def _is_small(self) -> bool:
        """Whether matrices take fewer bytes in the file than tables and ops for each level."""
        forest, leaves = self.forest, int(self.forest.is_leaf.sum())
        inner, targets = len(forest.child) - leaves, self.leaves.weights.shape[1]
        matrices = 4 * (inner * leaves + 2 * inner) + 6 * _OP_BYTES
        tables = 12 * len(forest.child) + 7 * forest.depth * _OP_BYTES
        if matrices > tables or not inner or not np.isfinite(self.leaves.weights).all() or targets < 1:
            return False
        return not forest.is_shared

    def _product(self, weights: Array) -> Term:
        """The sums of weights [nodes, targets] by matrix products [n, targets]."""
        forest, inner = self.forest, np.flatnonzero(~self.forest.is_leaf)
        x = self.rows.apply(ops.Gather, self.features[inner], axis=1)
        low = Term(self.b, constant(forest.low[inner])) if forest.has_low else None
        passed = self._passed(x, low, Term(self.b, constant(forest.high[inner]))).to(DType.FLOAT32)
        ways = _ways(forest, inner)
        axes = {"lhs_contracting_dimensions": (1,), "rhs_contracting_dimensions": (1,)}
        reached = passed.apply(ops.DotGeneral, ways, **axes)
        wanted = np.maximum(ways, 0).sum(axis=1, dtype=np.float32)
        hit = reached.equals(Term(self.b, constant(wanted))).to(DType.FLOAT32)
        table = np.ascontiguousarray(weights[forest.is_leaf].T)
        return hit.apply(ops.DotGeneral, table, **axes)


def _filled(rows: Term, missing: Term, kind: int) -> Term:
    """The features with NaN as -inf, or inf."""
    return missing.choose(rows.constant(-np.inf if kind == 1 else np.inf), rows)


def _ways(forest: Forest, inner: Array) -> Array:
    """For each leaf and inner node 1 where the way to the leaf passes its test, -1 where it fails, else 0."""
    column = np.full(len(forest.child), -1)
    column[inner] = np.arange(len(inner))
    ways = np.zeros((len(forest.child), len(inner)), np.float32)
    for place in inner.tolist():  # parents come before their children
        child = forest.child[place]
        ways[child] = ways[child + 1] = ways[place]
        ways[child, column[place]], ways[child + 1, column[place]] = -1, 1
    return np.asarray(ways[forest.is_leaf])
