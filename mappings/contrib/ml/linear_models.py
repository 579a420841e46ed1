"""Linear models of the domain ai.onnx.ml: one matrix product.

========  ==========================================
ONNX      LinearRegressor 1, LinearClassifier 1
========  =========================================="""

from __future__ import annotations

import numpy as np
from onnxtfl.mappings.contrib.ml.scores import (
    chosen_label,
    class_labels,
    largest,
    linear,
    rows_of,
    transform_of,
    transformed,
    two_columns,
)

from onnxtfl.build.attributes import ML, floats
from onnxtfl.errors import InvalidModelError, UnsupportedError
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.data import Array
from onnxtfl.ir.dims import Dim, size_or
from onnxtfl.ir.graph import Node, Value
from onnxtfl.rewriting.registry import lift_onnx


def _weights(node: Node, targets: int, features: Dim) -> Array:
    """The coefficients as [targets, features]; of too many, the first ones, as in ONNX Runtime (its example
    logreg_iris)."""
    found = floats(node, "coefficients")
    expected = size_or(targets * features, found.size)
    if found.size > expected > 0:
        found = found[:expected]
    if targets < 1 or found.size % targets:
        raise InvalidModelError(f"{found.size} coefficients for {targets} targets", code="E-FILE-009")
    if found.size != expected:
        raise InvalidModelError(f"{found.size} coefficients for {features} features", code="E-FILE-009")
    return np.asarray(found, np.float32).reshape(targets, -1)


@lift_onnx("LinearRegressor", since=(1,), domain=ML)
def _linear_regressor(b: Builder, node: Node) -> Value:
    """As in ONNX Runtime, only PROBIT transforms a single target, and a wrong number of intercepts is ignored."""
    rows, targets, transform = rows_of(b, node.operand(0)), int(node.attr("targets", 1)), transform_of(node)
    intercepts = floats(node, "intercepts")
    bias = intercepts if intercepts.size == targets else None
    scores = linear(rows, _weights(node, targets, rows.value.shape[1]), bias)
    if targets == 1 and transform != "probit":
        return scores.value
    return transformed(scores, transform).value


@lift_onnx("LinearClassifier", since=(1,), domain=ML)
def _linear_classifier(b: Builder, node: Node) -> list[Value]:
    """As many classes as intercepts; a single one is the second of two, with the scores ``[1 - s, s]``."""
    rows, transform = rows_of(b, node.operand(0)), transform_of(node)
    labels, intercepts = class_labels(node, "classlabels_ints"), floats(node, "intercepts")
    count = intercepts.size
    if not count:
        raise InvalidModelError("a classifier without intercepts, which ONNX Runtime does not run", code="E-FILE-009")
    scores = linear(rows, _weights(node, count, rows.value.shape[1]), intercepts)
    if len(labels) != max(count, 2):
        raise InvalidModelError(f"{len(labels)} labels for {max(count, 2)} classes", code="E-FILE-009")
    if count > 1:
        return [largest(scores, labels), transformed(scores, transform).value]
    if transform == "probit":
        raise UnsupportedError("PROBIT of the score of one of two classes: ONNX Runtime computes NaN")
    second = scores.sigmoid() if transform == "logistic" else scores
    return [chosen_label(scores > 0.0, labels.tolist()), two_columns(1.0 - second, second).value]
