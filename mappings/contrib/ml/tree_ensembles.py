"""Ensembles of decision trees of the domain ai.onnx.ml.

========  =====================================================================================
ONNX      TreeEnsembleRegressor 1 3 5, TreeEnsembleClassifier 1 3 5, TreeEnsemble 5
========  ====================================================================================="""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from onnxtfl.mappings.contrib.ml.scores import (
    apply_transform,
    as_rows,
    class_labels,
    join_columns,
    label_of_largest,
    probit,
    select_label,
    transform_of,
)
from onnxtfl.mappings.contrib.ml.tree_scores import Leaves, Trees
from onnxtfl.mappings.contrib.ml.trees import LEAF, MODES, Nodes, build_forest, check_equal_lengths, indices_of_ids

from onnxtfl.build.attributes import ML, floats, ints, texts, texts_of
from onnxtfl.build.sizes import slice_axes
from onnxtfl.errors import UnsupportedError
from onnxtfl.ir import ops
from onnxtfl.ir.budget import check_elements
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.data import Array
from onnxtfl.ir.formula import Term
from onnxtfl.ir.graph import Node, Value
from onnxtfl.rewriting.registry import lift_onnx

_AGGREGATES = ("AVERAGE", "SUM", "MIN", "MAX")
_TRANSFORMS_BY_INDEX = ("none", "logistic", "softmax", "softmax_zero", "probit")
"""`post_transform` of TreeEnsemble-5 as numbered by ONNX Runtime.

The ONNX specification has SOFTMAX = 1 and LOGISTIC = 2, but its reference implementation does not implement them.
"""


def _features(rows: Term) -> int | None:
    """The number of features, or None if it is dynamic."""
    size = rows.value.shape[1]
    return size if isinstance(size, int) else None


# --- attributes of versions 1 to 5 ------------------------------------------------------------------------------------

_PARTS = ("nodeids", "treeids", "featureids", "truenodeids", "falsenodeids")


def _nodes(node: Node, features: int | None) -> Nodes:
    """The nodes of TreeEnsembleClassifier and TreeEnsembleRegressor; the first node of each tree is its root."""
    node_ids, trees, feature, true_ids, false_ids = (ints(node, f"nodes_{name}") for name in _PARTS)
    values, mode = floats(node, "nodes_values"), _modes(texts(node, "nodes_modes"))
    flags = _nan_flags(node, len(mode))
    names = (*(f"nodes_{name}" for name in _PARTS), "nodes_values", "nodes_modes", "nodes_missing_value_tracks_true")
    check_equal_lengths([node_ids, trees, feature, true_ids, false_ids, values, mode, flags], names)
    inner = mode != LEAF
    on_true, on_false = (np.zeros(len(mode), np.int64) for _ in range(2))
    for positions, child in ((on_true, true_ids), (on_false, false_ids)):
        positions[inner] = indices_of_ids(trees, node_ids, "child", trees[inner], child[inner])
    roots = np.flatnonzero(np.r_[True, trees[1:] != trees[:-1]]) if len(trees) else np.zeros(0, np.int64)
    return Nodes(mode, feature, values, on_true, on_false, flags == 1, roots, {}).checked(features)


def _nan_flags(node: Node, count: int) -> Array:
    """`nodes_missing_value_tracks_true`, by default `count` zeros."""
    flags = ints(node, "nodes_missing_value_tracks_true")
    return flags if len(flags) else np.zeros(count, np.int64)


def _modes(names: Sequence[str]) -> Array:
    """`nodes_modes` as indices into MODES, or LEAF. Raises ValueError for an unknown name."""
    known = {f"BRANCH_{name}": index for index, name in enumerate(MODES[:-1])} | {"LEAF": LEAF}
    unknown = set(names) - set(known)
    if unknown:
        raise ValueError(f"the mode {min(unknown)!r} in nodes_modes is unknown")
    return np.asarray([known[name] for name in names], np.int64)


def _leaves(node: Node, prefix: str, targets: int, aggregate: str) -> Leaves:
    """The weights of the leaves, from attributes that start with `prefix`.

    Several weights for the same leaf and target are aggregated like those of several trees.
    """
    trees, node_ids = (ints(node, f"nodes_{name}") for name in ("treeids", "nodeids"))
    ids, leaf_node_ids, leaf_tree_ids = (ints(node, f"{prefix}_{name}") for name in ("ids", "nodeids", "treeids"))
    weights = floats(node, f"{prefix}_weights")
    check_equal_lengths(
        [ids, leaf_node_ids, leaf_tree_ids, weights],
        [f"{prefix}_{n}" for n in ("ids", "nodeids", "treeids", "weights")],
    )
    positions = indices_of_ids(trees, node_ids, "leaf", leaf_tree_ids, leaf_node_ids)
    return _leaves_of(len(node_ids), positions, ids, weights, targets, aggregate)


def _leaves_of(count: int, positions: Array, ids: Array, weights: Array, targets: int, aggregate: str) -> Leaves:
    """The Leaves of `count` nodes, where node ``positions[i]`` has ``weights[i]`` for target ``ids[i]``."""
    if ids.size and not 0 <= ids.min() <= ids.max() < targets:
        raise ValueError(f"a leaf has a weight for target {ids.max()} of {targets}")
    check_elements(count * targets, "the weights of the trees")
    present = np.zeros((count, targets), bool)
    present[positions, ids] = True
    initial = {"MIN": np.inf, "MAX": -np.inf}.get(aggregate, 0.0)
    table = np.full((count, targets), initial, np.float32)
    {"MIN": np.minimum, "MAX": np.maximum}.get(aggregate, np.add).at(table, (positions, ids), weights)
    return Leaves(np.where(present, table, np.float32(0)), present)


# --- regressors -------------------------------------------------------------------------------------------------------


def _aggregated(trees: Trees, aggregate: str) -> Term:
    """The scores [n, targets]: the weights of the reached leaves, aggregated over the trees."""
    if aggregate in ("MIN", "MAX"):
        return trees.extremes(aggregate.lower())
    sums = trees.sums()
    return sums / float(len(trees.forest.roots)) if aggregate == "AVERAGE" else sums


def _with_base(trees: Trees, scores: Term, base: Array) -> Term:
    """The scores plus base values; ignored unless there is one for each target.

    With several targets, a row that has no score for a target keeps 0.
    """
    targets = trees.leaves.present.shape[1]
    if base.size != targets:
        return scores
    total, always_has_score = scores.apply(ops.Add, base.astype(np.float32)), trees.always_has_score()
    return total if targets == 1 or always_has_score.all() else trees.has_score().choose(total, 0.0)


def _transform_scores(scores: Term, targets: int, transform: str) -> Value:
    """The scores after `post_transform`; a single target is transformed only by PROBIT, as in ONNX Runtime."""
    if targets == 1 and transform != "probit":
        return scores.value
    return apply_transform(scores, transform).value


@lift_onnx("TreeEnsembleRegressor", since=(1, 3, 5), domain=ML)
def _tree_regressor(b: Builder, node: Node) -> Value:
    """The scores [n, targets]: aggregated weights of the reached leaves, plus base values, after `post_transform`."""
    rows, aggregate = as_rows(b, node.operand(0)), texts_of(node.attr("aggregate_function", "SUM"))
    targets = int(node.attr("n_targets", 1))
    if aggregate not in _AGGREGATES or targets < 1:
        raise ValueError(
            f"aggregate_function {aggregate!r} ({', '.join(_AGGREGATES)} expected), n_targets {targets} (at least 1)"
        )
    forest = build_forest(_nodes(node, _features(rows)))
    trees = Trees(rows, forest, _leaves(node, "target", targets, aggregate))
    scores = _with_base(trees, _aggregated(trees, aggregate), floats(node, "base_values"))
    return _transform_scores(scores, targets, transform_of(node))


# --- classifiers ------------------------------------------------------------------------------------------------------


@lift_onnx("TreeEnsembleClassifier", since=(1, 3, 5), domain=ML)
def _tree_classifier(b: Builder, node: Node) -> list[Value]:
    """Labels [n] and scores; ONNX Runtime has different rules for one, two and more classes."""
    rows, labels = as_rows(b, node.operand(0)), class_labels(node, "classlabels_int64s")
    leaves = _leaves(node, "class", len(labels), "SUM")
    trees = Trees(rows, build_forest(_nodes(node, _features(rows))), leaves)
    base, transform = floats(node, "base_values").astype(np.float32), transform_of(node)
    if len(labels) > 2:
        return _many_classes(trees, labels, base, transform)
    if len(labels) == 2:
        return _two_classes(node, trees, labels, base, transform)
    return _single_class(trees, labels, base, transform)


def _many_classes(trees: Trees, labels: Array, base: Array, transform: str) -> list[Value]:
    """Labels and scores of more than 2 classes; the label is that of the largest score among classes that have one."""
    if base.size > len(labels):
        raise ValueError(f"{base.size} base_values for {len(labels)} classes: at most 1 for each class expected")
    padded = np.zeros(len(labels), np.float32)
    padded[: base.size] = base
    sums = trees.sums()
    scores = sums.apply(ops.Add, padded) if base.any() else sums
    always_has_score = trees.always_has_score() | (np.arange(len(labels)) < base.size)
    compared = scores
    if not always_has_score.all():
        has_score = trees.has_score().apply(ops.Or, always_has_score)
        compared = has_score.choose(scores, float("-inf"))
    return [label_of_largest(compared, labels), apply_transform(scores, transform).value]


def _single_class(trees: Trees, labels: Array, base: Array, transform: str) -> list[Value]:
    """Labels and scores of a single class: the label is 1 if the score is positive, else 0."""
    if labels.dtype.kind == "O" or base.size > 1:
        raise UnsupportedError(
            "a single class with a string label, or with several base_values, is not supported", code="E-OP-004"
        )
    scores = trees.sums().apply(ops.Add, base) if base.size else trees.sums()
    return [select_label(scores > 0.0, [0, 1]), (probit(scores) if transform == "probit" else scores).value]


def _two_classes(node: Node, trees: Trees, labels: Array, base: Array, transform: str) -> list[Value]:
    """Labels and scores of two classes; a row may have a score for both classes, or only for one of them."""
    classes, weights = ints(node, "class_ids"), floats(node, "class_weights")
    if base.size > 2:
        raise ValueError(f"{base.size} base_values for 2 classes: at most 2 expected")
    case = _TwoClasses(trees, base, transform, len(np.unique(classes)) == 1, bool((weights >= 0).all()))
    second = trees.always_has_score()[1]
    if base.size and (classes == 0).any() and not trees.always_has_score()[0]:
        raise UnsupportedError(
            "base_values are not supported if some rows have no score for the first class", code="E-OP-004"
        )
    if second or not (classes == 1).any():
        is_second, scores = case.with_second() if second else case.with_first()
    else:
        has_second = Term(trees.b, slice_axes(trees.b, trees.has_score().value, {1: slice(1, 2)}))
        (label_with, scores_with), (label_without, scores_without) = case.with_second(), case.with_first()
        is_second = (has_second & label_with) | (has_second.apply(ops.Not) & label_without)
        scores = has_second.choose(scores_with, scores_without)
    pair = labels.tolist() if case.single or labels.dtype.kind == "O" else [0, 1]
    return [select_label(is_second, pair), scores.value]


class _TwoClasses:
    """Scores of two classes, with the case distinctions of ONNX Runtime.

    `single`: only one of the classes has weights. Then the labels are those of the model, and if no weight is negative
    (`positive`), the score is a probability. Otherwise ONNX Runtime returns the labels 0 and 1.
    """

    def __init__(self, trees: Trees, base: Array, transform: str, single: bool, positive: bool) -> None:
        self.base, self.transform, self.single, self.positive = base, transform, single, positive
        sums = trees.sums()
        self.first, self.second = (Term(sums.b, slice_axes(sums.b, sums.value, {1: slice(i, i + 1)})) for i in range(2))
        self.limit = 0.5 if single and positive else 0.0

    def with_second(self) -> tuple[Term, Term]:
        """For rows with a score for the second class: whether the label is the second one [n, 1]; the scores [n, 2].

        With two base values, ONNX Runtime adds the second one to the score of the first class.
        """
        first, second = self.first, self.second
        if self.base.size == 2:
            second = first + float(self.base[1])
            first = first * 0.0 if self.single else -second
        elif self.base.size == 1 and not self.single:
            first = first + float(self.base[0])
        return second > self.limit, apply_transform(join_columns(first, second), self.transform)

    def with_first(self) -> tuple[Term, Term]:
        """As `with_second`, but for rows that have a score only for the first class."""
        score = self.first + (float(self.base[0]) if self.base.size else 0.0)
        is_second = score > self.limit
        if self.base.size == 2:
            return is_second, apply_transform(join_columns(score, self.second), self.transform)
        if self.transform == "probit" or (self.base.size and not self.single):
            raise UnsupportedError(
                "the score of the second class is not supported: ONNX Runtime does not set it", code="E-OP-004"
            )
        if self.transform == "logistic":
            return is_second, join_columns((-score).sigmoid(), score.sigmoid())
        if self.single and self.positive:
            return is_second, join_columns(1.0 - score, score)
        return is_second, join_columns(-score, score)


# --- TreeEnsemble -----------------------------------------------------------------------------------------------------


def _by_index(node: Node, name: str, known: Sequence[str], default: int) -> str:
    """The element of `known` whose index is the attribute `name`. Raises ValueError if it is out of range."""
    index = int(node.attr(name, default))
    if not 0 <= index < len(known):
        raise ValueError(f"{name} is {index}: 0 to {len(known) - 1} expected")
    return known[index]


def _tensor_attribute(node: Node, name: str, default: Array | None = None) -> Array:
    """The elements of a tensor attribute [n]. Raises ValueError if it is missing and there is no default."""
    found = node.attr(name, None)
    if found is None and default is None:
        raise ValueError(f"the attribute {name} is missing")
    return np.asarray(default if found is None else found.numpy()).reshape(-1)


@lift_onnx("TreeEnsemble", since=(5,), domain=ML)
def _tree_ensemble(b: Builder, node: Node) -> Value:
    """The scores [n, targets], in the dtype of the features; the nodes of leaves are numbered after the inner nodes."""
    x = node.operand(0)
    rows, targets = as_rows(b, x), int(node.attr("n_targets", 1))
    aggregate = _by_index(node, "aggregate_function", _AGGREGATES, 1)
    transform = _by_index(node, "post_transform", _TRANSFORMS_BY_INDEX, 0)
    nodes = _ensemble_nodes(node, _features(rows))
    ids, weights = ints(node, "leaf_targetids"), _tensor_attribute(node, "leaf_weights")
    check_equal_lengths([ids, weights], ["leaf_targetids", "leaf_weights"])
    positions = np.arange(len(ids)) + len(nodes.mode) - len(ids)
    if targets < 1:
        raise ValueError(f"n_targets is {targets}: at least 1 expected")
    leaves = _leaves_of(len(nodes.mode), positions, ids, weights.astype(np.float32), targets, aggregate)
    trees = Trees(rows, build_forest(nodes), leaves)
    scores = Term(b, _transform_scores(_aggregated(trees, aggregate), targets, transform))
    return scores.to(x.dtype).value


def _ensemble_nodes(node: Node, features: int | None) -> Nodes:
    """The nodes of a TreeEnsemble: the inner nodes, then the leaves."""
    feature, true_ids, false_ids, true_is_leaf, false_is_leaf = (
        ints(node, f"nodes_{name}") for name in ("featureids", "truenodeids", "falsenodeids", "trueleafs", "falseleafs")
    )
    mode, split = _tensor_attribute(node, "nodes_modes").astype(np.int64), _tensor_attribute(node, "nodes_splits")
    flags = _nan_flags(node, len(mode))
    parts = [feature, true_ids, false_ids, true_is_leaf, false_is_leaf, mode, split, flags]
    check_equal_lengths(parts, ["nodes_featureids", "truenodeids", "falsenodeids", "trueleafs", "falseleafs", "modes",
                          "splits", "missing_value_tracks_true"])  # fmt: skip
    count, leaves = len(mode), len(ints(node, "leaf_targetids"))
    if count and not 0 <= mode.min() <= mode.max() < LEAF:
        raise ValueError(f"nodes_modes has a value that is not from 0 to {LEAF - 1}")
    for indices, size in (
        (np.r_[true_ids[true_is_leaf != 0], false_ids[false_is_leaf != 0]], leaves),
        (np.r_[true_ids[true_is_leaf == 0], false_ids[false_is_leaf == 0]], count),
    ):
        if indices.size and not 0 <= indices.min() <= indices.max() < size:
            raise ValueError("a child is a node that does not exist")
    zeros = np.zeros(leaves, np.int64)
    nodes = Nodes(
        np.r_[mode, zeros + LEAF],
        np.r_[feature, zeros],
        np.r_[split, zeros.astype(split.dtype)],
        np.r_[true_ids + count * (true_is_leaf != 0), zeros],
        np.r_[false_ids + count * (false_is_leaf != 0), zeros],
        np.r_[flags == 1, zeros == 1],
        ints(node, "tree_roots"),
        _members(node, mode),
    )
    return nodes.checked(features)


def _members(node: Node, mode: Array) -> dict[int, Array]:
    """The set of each MEMBER node; `membership_values` has them in the order of the nodes, each followed by NaN."""
    nodes = np.flatnonzero(mode == MODES.index("MEMBER"))
    values = _tensor_attribute(node, "membership_values", np.zeros(0, np.float32))
    ends = np.flatnonzero(np.isnan(values))
    if len(ends) < len(nodes) and not (len(ends) == len(nodes) - 1 and values.size):
        raise ValueError(f"membership_values has {len(ends)} lists for {len(nodes)} MEMBER nodes")
    parts = np.split(values, ends + 1)[: len(nodes)]
    return {int(n): part[~np.isnan(part)] for n, part in zip(nodes, parts, strict=True)}
