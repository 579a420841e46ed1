"""Decision trees of the domain ai.onnx.ml: leaves, labels and scores are those of ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx.helper
import pytest

from onnxtfl.errors import InvalidModelError
from onnxtfl.ir.interpret import run
from onnxtfl.options import Options
from onnxtfl.pipeline import inspect
from tests.unit.ml_models import Array, check_same, ml_model

FEATURES = 3
MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ")
COLUMNS = ("treeids", "nodeids", "featureids", "modes", "values", "truenodeids", "falsenodeids")
THRESHOLDS = np.asarray([-1, -0.5, 0, 0.25, 1, np.inf, -np.inf, 1.5], np.float32)


def special_rows() -> Array:
    """Rows with thresholds, their neighbours, infinities and NaN."""
    near = np.concatenate([THRESHOLDS, np.nextafter(THRESHOLDS, np.float32(9)), [np.nan, -0.0, 1e-45, 3]])
    return np.random.default_rng(1).choice(near.astype(np.float32), (200, FEATURES))


def random_trees(
    count: int, depth: int, modes: tuple[str, ...] = MODES[:1], flags: str = "none", seed: int = 0
) -> dict[str, list[Any]]:
    """The attributes of trees, and of their leaves as lists of (tree, node)."""
    rng = np.random.default_rng(seed)
    found: dict[str, list[Any]] = {f"nodes_{name}": [] for name in COLUMNS}
    found["leaves"], nan = [], []
    for tree in range(count):
        levels, number, rows = [(0, 0)], 1, []
        while levels:
            node, level = levels.pop(0)
            is_leaf = level == depth or (level > 0 and rng.random() < 0.25)
            yes, no = (0, 0) if is_leaf else (number, number + 1)
            if is_leaf:
                found["leaves"].append((tree, node))
            else:
                levels += [(yes, level + 1), (no, level + 1)]
                number += 2
            mode = "LEAF" if is_leaf else str(rng.choice(modes))
            rows.append((tree, node, int(rng.integers(FEATURES)), mode, float(rng.choice(THRESHOLDS)), yes, no))
        for row in sorted(rows, key=lambda r: r[1]):
            for name, value in zip(COLUMNS, row, strict=True):
                found[f"nodes_{name}"].append(value)
            nan.append(int(row[3] != "LEAF" and (flags == "all" or (flags == "some" and rng.random() < 0.5))))
    if flags != "none":
        found["nodes_missing_value_tracks_true"] = nan
    return found


def with_weights(
    trees: dict[str, list[Any]], prefix: str, targets: int, kind: str = "dense", positive: bool = False
) -> dict[str, Any]:
    """`trees` with weights of the leaves; "each": a tree is for one target, "sparse": some are missing."""
    rng, attributes = np.random.default_rng(5), {k: v for k, v in trees.items() if k != "leaves"}
    entries = [
        (tree, node, target, float(np.float32(rng.random() if positive else rng.standard_normal())))
        for tree, node in trees["leaves"]
        for target in range(targets)
        if kind == "dense" or (tree % targets == target if kind == "each" else rng.random() < 0.6)
    ]
    columns = zip(*entries, strict=True)
    names = ("treeids", "nodeids", "ids", "weights")
    return attributes | {f"{prefix}_{name}": list(column) for name, column in zip(names, columns, strict=True)}


@pytest.mark.parametrize("flags", ["none", "some", "all"])
@pytest.mark.parametrize("modes", [*((m,) for m in MODES), MODES], ids=[*MODES, "mixed"])
@pytest.mark.parametrize(("count", "depth"), [(1, 2), (4, 6)], ids=["matrices", "gathers"])
def test_every_test_of_a_node_and_nan(count: int, depth: int, modes: tuple[str, ...], flags: str) -> None:
    trees = random_trees(count, depth, modes, flags)
    check_same("TreeEnsembleRegressor", [special_rows()], n_targets=1, **with_weights(trees, "target", 1))


@pytest.mark.parametrize("kind", ["dense", "each", "sparse"])
@pytest.mark.parametrize("aggregate", ["SUM", "AVERAGE", "MIN", "MAX"])
@pytest.mark.parametrize("base", [[], [0.5, -0.25]])
def test_aggregates_of_several_targets(base: list[float], aggregate: str, kind: str) -> None:
    weights = with_weights(random_trees(6, 4), "target", 2, kind)
    weights |= {"base_values": base} if base else {}
    check_same("TreeEnsembleRegressor", [special_rows()], n_targets=2, aggregate_function=aggregate, **weights)


@pytest.mark.parametrize("aggregate", ["SUM", "MAX"])
@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO", "PROBIT"])
@pytest.mark.parametrize("targets", [1, 3])
def test_transforms(targets: int, transform: str, aggregate: str) -> None:
    weights = with_weights(random_trees(3, 3), "target", targets, positive=True)
    atol = 2e-5 if transform == "PROBIT" else 1e-6  # one rounding, in the difference of which ONNX Runtime takes a root
    weights["target_weights"] = (np.asarray(weights["target_weights"]) / 4).tolist()
    check_same("TreeEnsembleRegressor", [special_rows()], n_targets=targets, post_transform=transform,
               aggregate_function=aggregate, base_values=[0.125] * targets, atol=atol, **weights)  # fmt: skip


@pytest.mark.parametrize("kind", ["dense", "each", "sparse"])
@pytest.mark.parametrize("base", [[], [0.5, -0.25, 0.125]])
@pytest.mark.parametrize("labels", [{"classlabels_int64s": [4, 2, 7]}, {"classlabels_strings": ["a", "b", "c"]}])
def test_a_classifier_of_three_classes(labels: dict[str, Any], base: list[float], kind: str) -> None:
    weights = with_weights(random_trees(9, 3), "class", 3, kind)
    weights |= {"base_values": base} if base else {}
    check_same("TreeEnsembleClassifier", [special_rows()], 2, post_transform="SOFTMAX", **labels, **weights)


def test_the_first_and_the_last_version() -> None:
    """Version 5 only deprecates these ops, so that ONNX Runtime refuses what is read here as version 3."""
    x, trees = [special_rows()], random_trees(3, 3)
    scores, votes = with_weights(trees, "target", 2), with_weights(trees, "class", 3)
    votes |= {"classlabels_int64s": [4, 2, 7]}
    regressed = check_same("TreeEnsembleRegressor", x, version=1, n_targets=2, **scores)
    classified = check_same("TreeEnsembleClassifier", x, 2, version=1, **votes)
    last = [
        (ml_model("TreeEnsembleRegressor", x, version=5, n_targets=2, **scores), regressed),
        (ml_model("TreeEnsembleClassifier", x, 2, version=5, **votes), classified),
    ]
    for model, wanted in last:
        for a, b in zip(run(inspect(model, "lifted", Options()), x), wanted, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("positive", [True, False])
@pytest.mark.parametrize("base", [[], [0.125], [0.125, -0.25]])
@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC", "SOFTMAX"])
@pytest.mark.parametrize("classes", ["first", "second", "both"])
def test_two_classes_as_onnx_runtime_treats_them(
    classes: str, transform: str, base: list[float], positive: bool
) -> None:
    weights = with_weights(random_trees(2, 3), "class", 2 if classes == "both" else 1, positive=positive)
    if classes == "second":
        weights["class_ids"] = [1] * len(weights["class_ids"])
    weights |= {"base_values": base} if base else {}
    for labels in ({"classlabels_int64s": [4, 2]}, {"classlabels_strings": ["no", "yes"]}):
        check_same("TreeEnsembleClassifier", [special_rows()], 2, post_transform=transform, **labels, **weights)


def test_rows_without_a_score_for_the_second_class() -> None:
    weights = with_weights(random_trees(1, 2), "class", 2)
    drop = weights["class_ids"].index(1)
    for name in ("class_ids", "class_nodeids", "class_treeids", "class_weights"):
        del weights[name][drop]
    check_same("TreeEnsembleClassifier", [special_rows()], 2, classlabels_int64s=[0, 1], **weights)


@pytest.mark.parametrize("dtype", [np.float64, np.int64, np.int32])
def test_other_types_of_features(dtype: Any) -> None:
    x = np.nan_to_num(np.clip(special_rows(), -9, 9)).astype(dtype)
    weights = with_weights(random_trees(3, 3), "class", 3)
    check_same("TreeEnsembleClassifier", [x], 2, classlabels_int64s=[0, 1, 2], **weights)


def ensemble(modes: list[int], splits: list[float], members: list[float], **more: Any) -> dict[str, Any]:
    """A chain of nodes, whose tests lead to leaf 0, 1, ... where they are true, and further where they are not."""
    count = len(modes)
    tensor = onnx.helper.make_tensor
    last = count - 1
    return {
        "tree_roots": [0],
        "nodes_featureids": [i % FEATURES for i in range(count)],
        "nodes_modes": tensor("m", onnx.TensorProto.UINT8, [count], modes),
        "nodes_splits": tensor("s", onnx.TensorProto.FLOAT, [count], splits),
        "nodes_truenodeids": list(range(count)),
        "nodes_trueleafs": [1] * count,
        "nodes_falsenodeids": [count if i == last else i + 1 for i in range(count)],
        "nodes_falseleafs": [int(i == last) for i in range(count)],
        "leaf_targetids": [i % 2 for i in range(count + 1)],
        "leaf_weights": tensor("w", onnx.TensorProto.FLOAT, [count + 1], [1.0 + i for i in range(count + 1)]),
        "membership_values": tensor("v", onnx.TensorProto.FLOAT, [len(members)], members),
        "n_targets": 2,
        **more,
    }


@pytest.mark.parametrize("aggregate", [0, 1, 2, 3])
def test_tree_ensemble_with_members_of_sets(aggregate: int) -> None:
    nan = float("nan")
    attributes = ensemble([0, 6, 4, 6, 3], [-1, 0, 0.25, 0, 1], [3, 1, nan, 9, 2, nan])
    check_same("TreeEnsemble", [special_rows()], version=5, aggregate_function=aggregate, **attributes)


@pytest.mark.parametrize("transform", [0, 1, 2, 3])
def test_tree_ensemble_transforms_as_onnx_runtime_numbers_them(transform: int) -> None:
    attributes = ensemble([0, 4, 3], [-1, 0.25, 1], [])
    check_same("TreeEnsemble", [special_rows()], version=5, post_transform=transform, **attributes)


def test_a_large_forest_stays_small() -> None:
    weights = with_weights(random_trees(20, 9), "target", 1)
    model = ml_model("TreeEnsembleRegressor", [special_rows()], n_targets=1, **weights)
    graph = inspect(model, "lower", Options())
    assert len(list(graph.nodes)) < 75


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        ("nodes_truenodeids", [9, 0, 0], "a child is a node that does not exist"),
        ("nodes_truenodeids", [0, 0, 0], "a cycle"),
        ("nodes_featureids", [7, 0, 0], "feature 7 of 3"),
        ("nodes_modes", ["BRANCH_X", "LEAF", "LEAF"], "the mode 'BRANCH_X'"),
        ("nodes_values", [0.0, 1.0], "different lengths"),
        ("target_ids", [5, 0], "target 5 of 1"),
    ],
)
def test_invalid_trees_are_refused(name: str, values: list[Any], message: str) -> None:
    stump = {
        "nodes_treeids": [0, 0, 0], "nodes_nodeids": [0, 1, 2], "nodes_featureids": [0] * 3, "nodes_values": [0.0] * 3,
        "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"], "nodes_truenodeids": [1, 0, 0], "nodes_falsenodeids": [2, 0, 0],
        "target_treeids": [0, 0], "target_nodeids": [1, 2], "target_ids": [0, 0], "target_weights": [1.0, 2.0],
    }  # fmt: skip
    model = ml_model("TreeEnsembleRegressor", [special_rows()], n_targets=1, **{**stump, name: values})
    with pytest.raises(InvalidModelError, match=message):
        inspect(model, "lifted", Options())


@pytest.mark.parametrize("aggregate", ["SUM", "AVERAGE", "MIN", "MAX"])
def test_base_values_are_not_added_where_no_leaf_has_a_score(aggregate: str) -> None:
    weights = with_weights(random_trees(2, 3), "target", 2, "sparse") | {"base_values": [0.5, -0.25]}
    check_same("TreeEnsembleRegressor", [special_rows()], n_targets=2, aggregate_function=aggregate, **weights)
    weights["target_ids"] = [0] * len(weights["target_ids"])
    check_same("TreeEnsembleRegressor", [special_rows()], n_targets=2, aggregate_function=aggregate, **weights)
