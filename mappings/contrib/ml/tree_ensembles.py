"""Ensembles of decision trees of the domain ai.onnx.ml.

========  =====================================================================================
ONNX      TreeEnsembleRegressor 1 3 5, TreeEnsembleClassifier 1 3 5, TreeEnsemble 5
========  ====================================================================================="""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from onnxtfl.mappings.contrib.ml.scores import (
    chosen_label,
    class_labels,
    largest,
    probit,
    rows_of,
    transform_of,
    transformed,
    two_columns,
)
from onnxtfl.mappings.contrib.ml.tree_scores import Leaves, Trees
from onnxtfl.mappings.contrib.ml.trees import LEAF, MODES, Nodes, equal_lengths, forest_of, places_of

from onnxtfl.build.attributes import ML, floats, ints, texts, texts_of
from onnxtfl.build.sizes import slice_axes
from onnxtfl.errors import InvalidModelError, UnsupportedError
from onnxtfl.ir import ops
from onnxtfl.ir.budget import check_elements
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.data import Array
from onnxtfl.ir.formula import Term
from onnxtfl.ir.graph import Node, Value
from onnxtfl.rewriting.registry import lift_onnx

_AGGREGATES = ("AVERAGE", "SUM", "MIN", "MAX")
_TRANSFORM_NUMBERS = ("none", "logistic", "softmax", "softmax_zero", "probit")
"""As ONNX Runtime numbers them; in ONNX's text, which its reference does not compute, 1 is SOFTMAX and 2 LOGISTIC."""


def _features(rows: Term) -> int | None:
    size = rows.value.shape[1]
    return size if isinstance(size, int) else None


# --- attributes of versions 1 to 5 ------------------------------------------------------------------------------------

_PARTS = ("nodeids", "treeids", "featureids", "truenodeids", "falsenodeids")


def _nodes(node: Node, features: int | None) -> Nodes:
    """The nodes of TreeEnsembleClassifier and TreeEnsembleRegressor; a tree begins with the first of its nodes."""
    numbers, trees, feature, yes, no = (ints(node, f"nodes_{name}") for name in _PARTS)
    values, flags = floats(node, "nodes_values"), ints(node, "nodes_missing_value_tracks_true")
    mode = _modes(texts(node, "nodes_modes"))
    flags = flags if len(flags) else np.zeros(len(mode), np.int64)
    names = (*(f"nodes_{name}" for name in _PARTS), "nodes_values", "nodes_modes", "nodes_missing_value_tracks_true")
    equal_lengths([numbers, trees, feature, yes, no, values, mode, flags], names)
    inner = mode != LEAF
    on_true, on_false = (np.zeros(len(mode), np.int64) for _ in range(2))
    for places, child in ((on_true, yes), (on_false, no)):
        places[inner] = places_of(trees, numbers, "child", trees[inner], child[inner])
    roots = np.flatnonzero(np.r_[True, trees[1:] != trees[:-1]]) if len(trees) else np.zeros(0, np.int64)
    return Nodes(mode, feature, values, on_true, on_false, flags == 1, roots, {}).checked(features)


def _modes(names: Sequence[str]) -> Array:
    known = {f"BRANCH_{name}": number for number, name in enumerate(MODES[:-1])} | {"LEAF": LEAF}
    unknown = set(names) - set(known)
    if unknown:
        raise InvalidModelError(f"the mode {min(unknown)!r} of a node", code="E-FILE-009")
    return np.asarray([known[name] for name in names], np.int64)


def _leaves(node: Node, prefix: str, targets: int, aggregate: str) -> Leaves:
    """The weights of the leaves; several weights of one leaf and target are aggregated like those of trees."""
    trees, numbers = (ints(node, f"nodes_{name}") for name in ("treeids", "nodeids"))
    ids, of_node, of_tree = (ints(node, f"{prefix}_{name}") for name in ("ids", "nodeids", "treeids"))
    weights = floats(node, f"{prefix}_weights")
    equal_lengths([ids, of_node, of_tree, weights], [f"{prefix}_{n}" for n in ("ids", "nodeids", "treeids", "weights")])
    places = places_of(trees, numbers, "leaf", of_tree, of_node)
    return _weighted(len(numbers), places, ids, weights, targets, aggregate)


def _weighted(count: int, places: Array, ids: Array, weights: Array, targets: int, aggregate: str) -> Leaves:
    """Leaves of `count` nodes with `weights` for the targets `ids` at `places`."""
    if ids.size and not 0 <= ids.min() <= ids.max() < targets:
        raise InvalidModelError(f"a weight for target {ids.max()} of {targets}", code="E-FILE-009")
    check_elements(count * targets, "the weights of the trees")
    present = np.zeros((count, targets), bool)
    present[places, ids] = True
    start = {"MIN": np.inf, "MAX": -np.inf}.get(aggregate, 0.0)
    table = np.full((count, targets), start, np.float32)
    {"MIN": np.minimum, "MAX": np.maximum}.get(aggregate, np.add).at(table, (places, ids), weights)
    return Leaves(np.where(present, table, np.float32(0)), present)


# --- regressors -------------------------------------------------------------------------------------------------------


def _aggregated(trees: Trees, aggregate: str) -> Term:
    if aggregate in ("MIN", "MAX"):
        return trees.extremes(aggregate.lower())
    sums = trees.sums()
    return sums / float(len(trees.forest.roots)) if aggregate == "AVERAGE" else sums


def _with_base(trees: Trees, scores: Term, base: Array) -> Term:
    """The scores plus base values, if there is one for each target; of several targets, one without a score stays 0."""
    targets = trees.leaves.present.shape[1]
    if base.size != targets:
        return scores
    total, always = scores.apply(ops.Add, base.astype(np.float32)), trees.always()
    return total if targets == 1 or always.all() else trees.scored().choose(total, 0.0)


def _finished(scores: Term, targets: int, transform: str) -> Value:
    """The transformed scores; for a single target, only PROBIT transforms."""
    if targets == 1 and transform != "probit":
        return scores.value
    return transformed(scores, transform).value


@lift_onnx("TreeEnsembleRegressor", since=(1, 3, 5), domain=ML)
def _tree_regressor(b: Builder, node: Node) -> Value:
    rows, aggregate = rows_of(b, node.operand(0)), texts_of(node.attr("aggregate_function", "SUM"))
    targets = int(node.attr("n_targets", 1))
    if aggregate not in _AGGREGATES or targets < 1:
        raise InvalidModelError(f"aggregate_function {aggregate!r} of {targets} targets", code="E-FILE-009")
    forest = forest_of(_nodes(node, _features(rows)))
    trees = Trees(rows, forest, _leaves(node, "target", targets, aggregate))
    scores = _with_base(trees, _aggregated(trees, aggregate), floats(node, "base_values"))
    return _finished(scores, targets, transform_of(node))


# --- classifiers ------------------------------------------------------------------------------------------------------


@lift_onnx("TreeEnsembleClassifier", since=(1, 3, 5), domain=ML)
def _tree_classifier(b: Builder, node: Node) -> list[Value]:
    rows, labels = rows_of(b, node.operand(0)), class_labels(node, "classlabels_int64s")
    leaves = _leaves(node, "class", len(labels), "SUM")
    trees = Trees(rows, forest_of(_nodes(node, _features(rows))), leaves)
    base, transform = floats(node, "base_values").astype(np.float32), transform_of(node)
    if len(labels) > 2:
        return _of_many(trees, labels, base, transform)
    if len(labels) == 2:
        return _of_two(node, trees, labels, base, transform)
    return _of_one(trees, labels, base, transform)


def _of_many(trees: Trees, labels: Array, base: Array, transform: str) -> list[Value]:
    """The class with the largest score, among those with a score."""
    if base.size > len(labels):
        raise InvalidModelError(f"{base.size} base_values for {len(labels)} classes", code="E-FILE-009")
    padded = np.zeros(len(labels), np.float32)
    padded[: base.size] = base
    sums = trees.sums()
    scores = sums.apply(ops.Add, padded) if base.any() else sums
    always = trees.always() | (np.arange(len(labels)) < base.size)
    compared = scores
    if not always.all():
        has = trees.scored().apply(ops.Or, always)
        compared = has.choose(scores, float("-inf"))
    return [largest(compared, labels), transformed(scores, transform).value]


def _of_one(trees: Trees, labels: Array, base: Array, transform: str) -> list[Value]:
    """A single class: 1 if its score is positive, else 0."""
    if labels.dtype.kind == "O" or base.size > 1:
        raise UnsupportedError("a single class that is a string, or has several base values", code="E-OP-004")
    scores = trees.sums().apply(ops.Add, base) if base.size else trees.sums()
    return [chosen_label(scores > 0.0, [0, 1]), (probit(scores) if transform == "probit" else scores).value]


def _of_two(node: Node, trees: Trees, labels: Array, base: Array, transform: str) -> list[Value]:
    """Two classes: a row may have a score for both, or for one of them."""
    classes, weights = ints(node, "class_ids"), floats(node, "class_weights")
    if base.size > 2:
        raise InvalidModelError(f"{base.size} base_values for 2 classes", code="E-FILE-009")
    case = _Two(trees, base, transform, len(np.unique(classes)) == 1, bool((weights >= 0).all()))
    second = trees.always()[1]
    if base.size and (classes == 0).any() and not trees.always()[0]:
        raise UnsupportedError("base values of a class for which some rows have no score", code="E-OP-004")
    if second or not (classes == 1).any():
        decided, scores = case.with_second() if second else case.with_first()
    else:
        has = Term(trees.b, slice_axes(trees.b, trees.scored().value, {1: slice(1, 2)}))
        (yes, both), (no, one) = case.with_second(), case.with_first()
        decided, scores = (has & yes) | (has.apply(ops.Not) & no), has.choose(both, one)
    pair = labels.tolist() if case.single or labels.dtype.kind == "O" else [0, 1]
    return [chosen_label(decided, pair), scores.value]


class _Two:
    """The scores of two classes as ONNX Runtime treats them.

    `single`: only one of the classes has weights. Then the labels are those of the model, and if all weights are
    `positive`, its score is a probability. Else the labels of ONNX Runtime are 0 and 1.
    """

    def __init__(self, trees: Trees, base: Array, transform: str, single: bool, positive: bool) -> None:
        self.base, self.transform, self.single, self.positive = base, transform, single, positive
        sums = trees.sums()
        self.first, self.second = (Term(sums.b, slice_axes(sums.b, sums.value, {1: slice(i, i + 1)})) for i in range(2))
        self.limit = 0.5 if single and positive else 0.0

    def with_second(self) -> tuple[Term, Term]:
        """For rows with a score for the second class: whether it is the second class [n, 1], and the scores [n, 2].

        With two base values, ONNX Runtime adds the second one to the score of the first class.
        """
        first, second = self.first, self.second
        if self.base.size == 2:
            second = first + float(self.base[1])
            first = first * 0.0 if self.single else -second
        elif self.base.size == 1 and not self.single:
            first = first + float(self.base[0])
        return second > self.limit, transformed(two_columns(first, second), self.transform)

    def with_first(self) -> tuple[Term, Term]:
        """As `with_second`, for rows with a score for the first class only."""
        score = self.first + (float(self.base[0]) if self.base.size else 0.0)
        decided = score > self.limit
        if self.base.size == 2:
            return decided, transformed(two_columns(score, self.second), self.transform)
        if self.transform == "probit" or (self.base.size and not self.single):
            raise UnsupportedError("scores of which ONNX Runtime leaves one undefined", code="E-OP-004")
        if self.transform == "logistic":
            return decided, two_columns((-score).sigmoid(), score.sigmoid())
        if self.single and self.positive:
            return decided, two_columns(1.0 - score, score)
        return decided, two_columns(-score, score)


# --- TreeEnsemble -----------------------------------------------------------------------------------------------------


def _numbered(node: Node, name: str, known: Sequence[str], default: int) -> str:
    """An attribute that is an index into a list."""
    number = int(node.attr(name, default))
    if not 0 <= number < len(known):
        raise InvalidModelError(f"{name} is {number}", code="E-FILE-009")
    return known[number]


def _tensor(node: Node, name: str, default: Array | None = None) -> Array:
    """The elements of a tensor among the attributes. Raises InvalidModelError if it is missing and has no default."""
    found = node.attr(name, None)
    if found is None and default is None:
        raise InvalidModelError(f"there is no {name}", code="E-FILE-009")
    return np.asarray(default if found is None else found.numpy()).reshape(-1)


@lift_onnx("TreeEnsemble", since=(5,), domain=ML)
def _tree_ensemble(b: Builder, node: Node) -> Value:
    """Regression; the nodes of the leaves come after the inner ones. The result has the type of the features."""
    x = node.operand(0)
    rows, targets = rows_of(b, x), int(node.attr("n_targets", 1))
    aggregate = _numbered(node, "aggregate_function", _AGGREGATES, 1)
    transform = _numbered(node, "post_transform", _TRANSFORM_NUMBERS, 0)
    nodes = _interior(node, _features(rows))
    ids, weights = ints(node, "leaf_targetids"), _tensor(node, "leaf_weights")
    equal_lengths([ids, weights], ["leaf_targetids", "leaf_weights"])
    places = np.arange(len(ids)) + len(nodes.mode) - len(ids)
    if targets < 1:
        raise InvalidModelError(f"{targets} targets", code="E-FILE-009")
    leaves = _weighted(len(nodes.mode), places, ids, weights.astype(np.float32), targets, aggregate)
    trees = Trees(rows, forest_of(nodes), leaves)
    scores = Term(b, _finished(_aggregated(trees, aggregate), targets, transform))
    return scores.to(x.dtype).value


def _interior(node: Node, features: int | None) -> Nodes:
    """The inner nodes of a TreeEnsemble, and its leaves after them."""
    feature, yes, no, yes_leaf, no_leaf = (
        ints(node, f"nodes_{name}") for name in ("featureids", "truenodeids", "falsenodeids", "trueleafs", "falseleafs")
    )
    mode, split = _tensor(node, "nodes_modes").astype(np.int64), _tensor(node, "nodes_splits")
    flags = ints(node, "nodes_missing_value_tracks_true")
    flags = flags if len(flags) else np.zeros(len(mode), np.int64)
    parts = [feature, yes, no, yes_leaf, no_leaf, mode, split, flags]
    equal_lengths(parts, ["nodes_featureids", "truenodeids", "falsenodeids", "trueleafs", "falseleafs", "modes",
                          "splits", "missing_value_tracks_true"])  # fmt: skip
    count, leaves = len(mode), len(ints(node, "leaf_targetids"))
    if count and not 0 <= mode.min() <= mode.max() < LEAF:
        raise InvalidModelError("a mode of a node that is none", code="E-FILE-009")
    for what, size in (
        (np.r_[yes[yes_leaf != 0], no[no_leaf != 0]], leaves),
        (np.r_[yes[yes_leaf == 0], no[no_leaf == 0]], count),
    ):
        if what.size and not 0 <= what.min() <= what.max() < size:
            raise InvalidModelError("a child that is no node", code="E-FILE-009")
    zeros = np.zeros(leaves, np.int64)
    nodes = Nodes(
        np.r_[mode, zeros + LEAF],
        np.r_[feature, zeros],
        np.r_[split, zeros.astype(split.dtype)],
        np.r_[yes + count * (yes_leaf != 0), zeros],
        np.r_[no + count * (no_leaf != 0), zeros],
        np.r_[flags == 1, zeros == 1],
        ints(node, "tree_roots"),
        _members(node, mode),
    )
    return nodes.checked(features)


def _members(node: Node, mode: Array) -> dict[int, Array]:
    """The members of each MEMBER node, in the order of the nodes; NaN ends a list."""
    nodes = np.flatnonzero(mode == MODES.index("MEMBER"))
    values = _tensor(node, "membership_values", np.zeros(0, np.float32))
    ends = np.flatnonzero(np.isnan(values))
    if len(ends) < len(nodes) and not (len(ends) == len(nodes) - 1 and values.size):
        raise InvalidModelError(f"{len(ends)} lists of members for {len(nodes)} nodes", code="E-FILE-009")
    parts = np.split(values, ends + 1)[: len(nodes)]
    return {int(n): part[~np.isnan(part)] for n, part in zip(nodes, parts, strict=True)}
