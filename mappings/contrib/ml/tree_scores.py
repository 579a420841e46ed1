"""Scores of decision trees, as gathers that follow the paths to the leaves, or as matrix products of all tests.

::

    gathers                                          matrices
    node = roots                                     passed = low <= X[:, feature] <= high    (all inner nodes)
    repeat depth times:                              reached = passed @ path == tests to pass (all leaves)
        node = child[node] +                         scores = reached @ weights
               (X[feature[node]] <= high[node])
    scores = sum of weights[node] over the trees     path: 1 or -1 for tests that pass or fail, see `_paths`

The form with the smaller file size is written. Weights are added in the order of the trees, as in ONNX Runtime.
"""

from __future__ import annotations

import numpy as np
from onnxtfl.mappings.contrib.ml.trees import Forest

from onnxtfl.dataclass import dataclass
from onnxtfl.ir import ops
from onnxtfl.ir.budget import check_elements
from onnxtfl.ir.data import Array
from onnxtfl.ir.dims import known_size
from onnxtfl.ir.formula import Term
from onnxtfl.ir.graph import constant
from onnxtfl.ir.reshape import reshape
from onnxtfl.ir.types import DType

_OP_BYTES = 220
"""The approximate size of an op and its result in a file."""


@dataclass(frozen=True)
class Leaves:
    """The weights of nodes for targets [nodes in the order of the file, targets].

    `present`: whether the file has such a weight (bools); `weights` is 0 where it does not.
    """

    weights: Array
    present: Array

    def of(self, forest: Forest) -> Leaves:
        """The same weights in the order of the nodes of `forest`; inner nodes have none."""
        leaf, source = forest.is_leaf[:, None], np.where(forest.is_leaf, forest.source, 0)
        weights, present = (np.where(leaf, a[source], 0) for a in (self.weights, self.present))
        return Leaves(weights.astype(np.float32), present.astype(bool))


class Trees:
    """The trees of an ensemble, applied to rows of features [n, f]."""

    def __init__(self, rows: Term, forest: Forest, leaves: Leaves) -> None:
        self.b, self.forest, self.leaves = rows.b, forest, leaves.of(forest)
        self.rows, self.features = self._feature_columns(rows)
        self._reached_leaves: Term | None = None

    def _feature_columns(self, rows: Term) -> tuple[Term, Array]:
        """The concatenated copies of the features [n, copies * f], and the column that each node reads."""
        copies, size = sorted({*np.unique(self._kinds()).tolist()}), rows.value.shape[1]
        missing = rows.is_nan() if copies != [0] else None
        parts = [rows if kind == 0 or missing is None else _replace_nan(rows, missing, kind) for kind in copies]
        if len(parts) == 1:
            return parts[0], self.forest.feature
        size = known_size(size, "the number of features")
        all_copies = self.b(ops.Concatenate, *(part.value for part in parts), axis=1)
        columns = self.forest.feature + size * np.searchsorted(copies, self._kinds())
        return Term(self.b, all_copies), np.where(self.forest.is_leaf, 0, columns).astype(np.int32)

    def _kinds(self) -> Array:
        """The copy of the features that each node reads; leaves read the same one as the first inner node."""
        kinds = self.forest.copy
        inner = kinds[~self.forest.is_leaf]
        return np.where(self.forest.is_leaf, inner[0] if inner.size else 0, kinds)

    # --- tests and paths ----------------------------------------------------------------------------------------------

    def _passed(self, x: Term, low: Term | None, high: Term) -> Term:
        """low <= x <= high; x < high if all tests of the forest are strict."""
        below = x.compared("LT" if self.forest.strict else "LE", high)
        return below if low is None else below & x.compared("GE", low)

    def _table(self, array: Array, nodes: Term | Array) -> Term:
        """The elements of a table at `nodes`, as a constant if these are constant."""
        if isinstance(nodes, np.ndarray):
            return Term(self.b, constant(np.asarray(array)[nodes]))
        return Term(self.b, self.b(ops.Gather, np.asarray(array), nodes.value, axis=0))

    def reached_leaves(self) -> Term:
        """The index of the leaf reached by each row in each tree [n, trees]."""
        if self._reached_leaves is None:
            check_elements(len(self.forest.child), "the nodes of the trees")
            nodes = self._step(self.forest.roots)
            for _ in range(self.forest.depth - 1):
                nodes = self._step(nodes)
            self._reached_leaves = nodes
        return self._reached_leaves

    def _step(self, nodes: Term | Array) -> Term:
        """The child of each node for each row, [n, trees]."""
        forest, column = self.forest, self._table(self.features, nodes)
        batched = 0 if isinstance(nodes, np.ndarray) else 1
        x = self.rows.apply(ops.Gather, column, axis=1, batch_dims=batched)
        low = self._table(forest.low, nodes) if forest.has_low else None
        passed = self._passed(x, low, self._table(forest.high, nodes))
        return self._table(forest.child, nodes).apply(ops.Add, passed.to(DType.INT32))

    # --- scores -------------------------------------------------------------------------------------------------------

    def sums(self) -> Term:
        """The weights of the reached leaves, summed over the trees [n, targets]."""
        if self._use_matrices():
            return self._matrix_sums(self.leaves.weights)
        targets = self._target_of_trees()
        if targets is not None:
            return self._sums_by_target(targets)
        return self._reached_weights(self.leaves.weights).reduce("sum", [1], keepdims=False)

    def extremes(self, kind: str) -> Term:
        """The minimum or maximum (`kind`) of the weights of the reached leaves over the trees [n, targets].

        Leaves without a weight are ignored; the result is 0 if no reached leaf has one.
        """
        identity = np.float32(np.inf if kind == "min" else -np.inf)
        weights = np.where(self.leaves.present, self.leaves.weights, identity)
        reached = self._reached_weights(weights).reduce(kind, [1], keepdims=False)
        always_has_score = self.always_has_score()
        return reached if always_has_score.all() else self.has_score().choose(reached, 0.0)

    def always_has_score(self) -> Array:
        """Whether every row gets a score for the target, as bools [targets]: all leaves of some tree have a weight."""
        tree = self._tree_of_leaves()
        present = self.leaves.present[self.forest.is_leaf]
        missing_weights = np.zeros((len(self.forest.roots), present.shape[1]), np.int64)
        np.add.at(missing_weights, tree, ~present)
        return np.asarray((missing_weights == 0).any(axis=0))

    def has_score(self) -> Term:
        """Whether each row reaches a leaf with a weight, as bools [n, targets]."""
        weight_flags = self._reached_weights(self.leaves.present.astype(np.float32))
        return weight_flags.reduce("max", [1], keepdims=False) > 0.0

    def _reached_weights(self, weights: Array) -> Term:
        """The elements of `weights` [nodes, targets] for the reached leaves: [n, trees, targets]."""
        if weights.shape[1] == 1:
            reached = self._table(weights[:, 0], self.reached_leaves())
            return Term(self.b, reshape(self.b, reached.value, (*reached.value.shape, 1)))
        leaf = self.forest.is_leaf
        row = np.maximum(np.cumsum(leaf) - 1, 0).astype(np.int32)
        return self._table(weights[leaf], self._table(row, self.reached_leaves()))

    def _tree_of_leaves(self) -> Array:
        """The tree index of each leaf; of a leaf shared by several trees, the last one."""
        tree = np.zeros(len(self.forest.child), np.int64)
        tree[: len(self.forest.roots)] = np.arange(len(self.forest.roots))
        for node in np.flatnonzero(~self.forest.is_leaf).tolist():
            tree[self.forest.child[node]] = tree[self.forest.child[node] + 1] = tree[node]
        return tree[self.forest.is_leaf]

    def _target_of_trees(self) -> Array | None:
        """The target of each tree, or None unless each tree has one target, and all targets as many trees."""
        present = self.leaves.present[self.forest.is_leaf]
        count, trees = present.shape[1], len(self.forest.roots)
        if count == 1 or trees % count or (present.sum(axis=1) != 1).any():
            return None
        target = np.full(trees, -1)
        leaf_target, tree = present.argmax(axis=1), self._tree_of_leaves()
        target[tree] = leaf_target
        if (target[tree] != leaf_target).any() or (np.bincount(target, minlength=count) != trees // count).any():
            return None
        return target

    def _sums_by_target(self, targets: Array) -> Term:
        """The sums if each tree has one target: [n, trees] as [n, trees / targets, targets], reduced over axis 1."""
        order = np.argsort(targets, kind="stable").reshape(self.leaves.weights.shape[1], -1).T.reshape(-1)
        reached = self._table(self.leaves.weights.sum(axis=1, dtype=np.float32), self.reached_leaves())
        if (order != np.arange(len(order))).any():
            reached = Term(self.b, self.b(ops.Gather, reached.value, order, axis=1))
        rows, count = reached.value.shape[0], self.leaves.weights.shape[1]
        grouped = reshape(self.b, reached.value, (rows, len(order) // count, count))
        return Term(self.b, grouped).reduce("sum", [1], keepdims=False)

    # --- matrices -----------------------------------------------------------------------------------------------------

    def _use_matrices(self) -> bool:
        """Whether matrix products can be used, and take fewer bytes in the file than the gathers of all levels.

        They cannot if weights are not finite (0 * inf is NaN), or if nodes have several parents.
        """
        forest, leaves = self.forest, int(self.forest.is_leaf.sum())
        inner, targets = len(forest.child) - leaves, self.leaves.weights.shape[1]
        matrices = 4 * (inner * leaves + 2 * inner) + 6 * _OP_BYTES
        tables = 12 * len(forest.child) + 7 * forest.depth * _OP_BYTES
        if matrices > tables or not inner or not np.isfinite(self.leaves.weights).all() or targets < 1:
            return False
        return not forest.is_shared

    def _matrix_sums(self, weights: Array) -> Term:
        """The sums of `weights` [nodes, targets] as matrix products: [n, targets]."""
        forest, inner = self.forest, np.flatnonzero(~self.forest.is_leaf)
        x = self.rows.apply(ops.Gather, self.features[inner], axis=1)
        low = Term(self.b, constant(forest.low[inner])) if forest.has_low else None
        passed = self._passed(x, low, Term(self.b, constant(forest.high[inner]))).to(DType.FLOAT32)
        paths = _paths(forest, inner)
        reached = passed.dot(paths, (1,), (1,))
        required = np.maximum(paths, 0).sum(axis=1, dtype=np.float32)
        is_reached = reached.equals(Term(self.b, constant(required))).to(DType.FLOAT32)
        table = np.ascontiguousarray(weights[forest.is_leaf].T)
        return is_reached.dot(table, (1,), (1,))


def _replace_nan(rows: Term, missing: Term, kind: int) -> Term:
    """The features with NaN replaced by -inf (`kind` 1) or inf (2)."""
    return missing.choose(rows.constant(-np.inf if kind == 1 else np.inf), rows)


def _paths(forest: Forest, inner: Array) -> Array:
    """The path to each leaf [leaves, inner nodes]: 1 for tests that pass, -1 for tests that fail, 0 for other nodes."""
    column = np.full(len(forest.child), -1)
    column[inner] = np.arange(len(inner))
    paths = np.zeros((len(forest.child), len(inner)), np.float32)
    for node in inner.tolist():  # parents come before their children
        child = forest.child[node]
        paths[child] = paths[child + 1] = paths[node]
        paths[child, column[node]], paths[child + 1, column[node]] = -1, 1
    return np.asarray(paths[forest.is_leaf])
