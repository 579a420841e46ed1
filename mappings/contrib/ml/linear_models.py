"""Linear models of the domain ai.onnx.ml: x @ coefficients^T + intercepts, transformed by `post_transform`.

========  ==========================================
ONNX      LinearRegressor 1, LinearClassifier 1
========  =========================================="""

from __future__ import annotations

import numpy as np
from onnxtfl.mappings.contrib.ml.scores import (
    apply_transform,
    as_rows,
    class_labels,
    join_columns,
    label_of_largest,
    matrix_product,
    select_label,
    transform_of,
)

from onnxtfl.build.attributes import ML, floats
from onnxtfl.errors import UnsupportedError
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.data import Array
from onnxtfl.ir.dims import Dim, size_or
from onnxtfl.ir.graph import Node, Value
from onnxtfl.rewriting.registry import lift_onnx


def _weights(node: Node, targets: int, features: Dim) -> Array:
    """The coefficients as [targets, features].

    Surplus coefficients are ignored, as in ONNX Runtime (its example model logreg_iris has some).
    """
    coefficients = floats(node, "coefficients")
    expected = size_or(targets * features, coefficients.size)
    if coefficients.size > expected > 0:
        coefficients = coefficients[:expected]
    if targets < 1 or coefficients.size % targets:
        raise ValueError(f"{coefficients.size} coefficients for {targets} targets")
    if coefficients.size != expected:
        raise ValueError(f"{coefficients.size} coefficients for {features} features")
    return np.asarray(coefficients, np.float32).reshape(targets, -1)


@lift_onnx("LinearRegressor", since=(1,), domain=ML)
def _linear_regressor(b: Builder, node: Node) -> Value:
    """Scores [n, targets].

    As in ONNX Runtime, a single target is transformed only by PROBIT, and intercepts are ignored if their number is not
    that of the targets.
    """
    rows, targets, transform = as_rows(b, node.operand(0)), int(node.attr("targets", 1)), transform_of(node)
    intercepts = floats(node, "intercepts")
    bias = intercepts if intercepts.size == targets else None
    scores = matrix_product(rows, _weights(node, targets, rows.value.shape[1]), bias)
    if targets == 1 and transform != "probit":
        return scores.value
    return apply_transform(scores, transform).value


@lift_onnx("LinearClassifier", since=(1,), domain=ML)
def _linear_classifier(b: Builder, node: Node) -> list[Value]:
    """Labels [n] and scores [n, classes], with one class for each intercept.

    A single class is the second one of two, with the scores ``[1 - s, s]``.
    """
    rows, transform = as_rows(b, node.operand(0)), transform_of(node)
    labels, intercepts = class_labels(node, "classlabels_ints"), floats(node, "intercepts")
    count = intercepts.size
    if not count:
        raise ValueError("a classifier without intercepts is not valid (ONNX Runtime refuses it, too)")
    scores = matrix_product(rows, _weights(node, count, rows.value.shape[1]), intercepts)
    if len(labels) != max(count, 2):
        raise ValueError(f"{len(labels)} labels for {max(count, 2)} classes")
    if count > 1:
        return [label_of_largest(scores, labels), apply_transform(scores, transform).value]
    if transform == "probit":
        raise UnsupportedError(
            "post_transform PROBIT of two classes with a single score is not supported: ONNX Runtime returns NaN"
        )
    second = scores.sigmoid() if transform == "logistic" else scores
    return [select_label(scores > 0.0, labels.tolist()), join_columns(1.0 - second, second).value]
