"""Support vector machines of the domain ai.onnx.ml.

========  ==================================
ONNX      SVMRegressor 1, SVMClassifier 1
========  =================================="""

from __future__ import annotations

import numpy as np
from onnxtfl.mappings.contrib.ml.pair_probabilities import couple_pairs
from onnxtfl.mappings.contrib.ml.scores import (
    apply_transform,
    as_rows,
    check_feature_count,
    class_labels,
    join_columns,
    label_of_largest,
    matrix_product,
    select_label,
    transform_of,
)

from onnxtfl.build.attributes import ML, floats, ints, texts_of
from onnxtfl.errors import UnsupportedError
from onnxtfl.ir import ops
from onnxtfl.ir.budget import check_elements
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.data import Array
from onnxtfl.ir.formula import Term
from onnxtfl.ir.graph import Node, Value
from onnxtfl.ir.reshape import unsqueezed
from onnxtfl.ir.types import DType
from onnxtfl.rewriting.registry import lift_onnx


def _kernel(node: Node, rows: Term, vectors: Array) -> Term:
    """The kernel function of each row [n, f] and each support vector [v, f]: [n, v]."""
    kind, parameters = texts_of(node.attr("kernel_type", "LINEAR")), floats(node, "kernel_params").tolist()
    gamma, offset, degree = [*parameters, 0.0, 0.0, 0.0][:3] if parameters else (0.0, 0.0, 0.0)
    check_feature_count(rows, vectors.shape[1])
    if kind == "RBF":  # from differences: in x x - 2 x v + v v, large features would cancel
        check_elements(vectors.size, "the support vectors")
        expanded = Term(rows.b, unsqueezed(rows.b, rows.value, [1]))
        squares = expanded.apply(ops.SquaredDifference, vectors[None])
        return (squares.reduce("sum", [2], keepdims=False) * -gamma).exp()
    products = matrix_product(rows, vectors, None)
    match kind:
        case "LINEAR":
            return products
        case "POLY":
            return _power(products * gamma + offset, degree)
        case "SIGMOID":
            return (products * gamma + offset).tanh()
    raise ValueError(f"kernel_type is {kind!r}, not LINEAR, POLY, RBF or SIGMOID")


def _power(x: Term, degree: float) -> Term:
    """x ** degree; squares and cubes by multiplication, as in ONNX Runtime."""
    if degree not in (2.0, 3.0):
        return x.power(degree)
    return x * x if degree == 2.0 else x * x * x


def _vectors(node: Node, count: int) -> Array:
    """The attribute `support_vectors` as float32 [count, features]."""
    vectors = floats(node, "support_vectors")
    if count < 1 or not vectors.size or vectors.size % count:
        raise ValueError(f"support_vectors has {vectors.size} elements for {count} vectors")
    return vectors.astype(np.float32).reshape(count, -1)


@lift_onnx("SVMRegressor", since=(1,), domain=ML)
def _svm_regressor(b: Builder, node: Node) -> Value:
    """sum over the support vectors of coefficient * kernel + rho; +1 or -1, its sign, with `one_class`.

    Without support vectors, it is a linear model. `post_transform` is ignored, as in ONNX Runtime.
    """
    rows, count = as_rows(b, node.operand(0)), int(node.attr("n_supports", 0))
    coefficients, rho = floats(node, "coefficients"), floats(node, "rho")
    if not coefficients.size or not rho.size:
        raise ValueError("coefficients or rho is missing or empty")
    if count > 0:
        if coefficients.size != count:
            raise ValueError(f"{coefficients.size} coefficients for {count} support vectors")
        rows = _kernel(node, rows, _vectors(node, count))
    check_feature_count(rows, coefficients.size)
    score = matrix_product(rows, coefficients.reshape(1, -1), rho[:1])
    if not node.attr("one_class", 0):
        return score.value
    return (score > 0.0).choose(score.constant(1.0), score.constant(-1.0)).value


@lift_onnx("SVMClassifier", since=(1,), domain=ML)
def _svm_classifier(b: Builder, node: Node) -> list[Value]:
    """Labels [n] and scores: one-against-one classification, where each pair of classes has a score and a vote.

    The label is the class with the most votes. The scores are the coupled probabilities [n, classes] if `prob_a` is
    present, else those of pairs [n, pairs]. Without support vectors, see `_linear_classes`.
    """
    rows, labels = as_rows(b, node.operand(0)), class_labels(node, "classlabels_ints")
    counts = ints(node, "vectors_per_class")
    if len(labels) < 2 or (counts < 0).any():
        raise ValueError(
            f"{len(labels)} classes (at least 2 expected), vectors_per_class {counts.tolist()} (at least 0)"
        )
    if not counts.sum():
        return _linear_classes(node, rows, labels)
    if counts.size != labels.size:
        raise ValueError(f"vectors_per_class has {counts.size} elements for {labels.size} classes")
    scores = _pair_scores(node, _kernel(node, rows, _vectors(node, int(counts.sum()))), counts)
    votes = _votes(scores, len(labels))
    if floats(node, "prob_a").size:
        probabilities = couple_pairs(_probabilities(node, scores, len(labels)), len(labels))
        return [label_of_largest(votes, labels), apply_transform(probabilities, transform_of(node)).value]
    if len(labels) > 2:
        return [label_of_largest(votes, labels), apply_transform(scores, transform_of(node)).value]
    return _two_classes(node, scores, votes, labels)


def _pair_scores(node: Node, kernels: Term, counts: Array) -> Term:
    """The score of each pair of classes [n, pairs]: positive for the first class of the pair, else for the second."""
    classes, total = len(counts), int(counts.sum())
    coefficients, rho = floats(node, "coefficients"), floats(node, "rho")
    pairs = classes * (classes - 1) // 2
    if coefficients.size < (classes - 1) * total or rho.size < pairs:
        raise ValueError(
            f"{coefficients.size} coefficients and {rho.size} rho for {classes} classes, {total} support vectors"
        )
    table = coefficients[: (classes - 1) * total].reshape(classes - 1, total)
    class_ends = np.cumsum(counts)
    weights = np.zeros((pairs, total), np.float32)
    for pair, (i, j) in enumerate(_pairs(classes)):
        first, second = (slice(class_ends[k] - counts[k], class_ends[k]) for k in (i, j))
        weights[pair, first], weights[pair, second] = table[j - 1, first], table[i, second]
    return matrix_product(kernels, weights, rho[:pairs])


def _pairs(classes: int) -> list[tuple[int, int]]:
    """All (i, j) with i < j, in lexicographic order."""
    return [(i, j) for i in range(classes) for j in range(i + 1, classes)]


def _votes(scores: Term, classes: int) -> Term:
    """The number of pairs won by each class [n, classes], as floats."""
    pairs = _pairs(classes)
    wins, losses = np.zeros((classes, len(pairs)), np.float32), np.zeros(classes, np.float32)
    for pair, (i, j) in enumerate(pairs):
        wins[i, pair], wins[j, pair] = 1, -1
        losses[j] += 1
    return matrix_product((scores > 0.0).to(DType.FLOAT32), wins, losses)


def _probabilities(node: Node, scores: Term, classes: int) -> Term:
    """The probability of the first class of each pair [n, pairs], by Platt scaling: sigmoid(-(a * score + b))."""
    slope, offset = (floats(node, name) for name in ("prob_a", "prob_b"))
    pairs = classes * (classes - 1) // 2
    if slope.size != offset.size or slope.size < pairs:
        raise ValueError(f"{slope.size} prob_a, {offset.size} prob_b of {pairs} pairs")
    scaled = scores.apply(ops.Mul, slope[:pairs]).apply(ops.Add, offset[:pairs])
    return (-scaled).sigmoid()


def _two_classes(node: Node, scores: Term, votes: Term, labels: Array) -> list[Value]:
    """The label by votes, and the scores [n, 2] of two classes from the score s of their pair, as in ONNX Runtime:

    NONE [-s, s]        LOGISTIC [sigmoid(-s), sigmoid(s)]        SOFTMAX, SOFTMAX_ZERO [1 - s, s]
    """
    transform = transform_of(node)
    if transform == "probit":
        raise UnsupportedError(
            "post_transform PROBIT of two classes is not supported: ONNX Runtime returns only one of the scores"
        )
    if transform == "logistic":
        pair = join_columns((-scores).sigmoid(), scores.sigmoid())
    else:
        pair = join_columns(-scores if transform == "none" else 1.0 - scores, scores)
    return [label_of_largest(votes, labels), pair.value]


def _linear_classes(node: Node, rows: Term, labels: Array) -> list[Value]:
    """Labels and scores without support vectors: rows @ coefficients^T + rho[0].

    The label is the class with the largest score; for two classes without `prob_a`, the second one is also chosen if
    the largest score exceeds a threshold, as in ONNX Runtime.
    """
    coefficients, rho = floats(node, "coefficients"), floats(node, "rho")
    if not coefficients.size or coefficients.size % len(labels) or not rho.size:
        raise ValueError(f"{coefficients.size} coefficients and {rho.size} rho for {len(labels)} classes")
    weights = coefficients.reshape(len(labels), -1)
    check_feature_count(rows, weights.shape[1])
    scores = matrix_product(rows, weights, np.full(len(labels), rho[0], np.float32))
    outputs = apply_transform(scores, transform_of(node)).value
    if len(labels) > 2 or floats(node, "prob_a").size:
        return [label_of_largest(scores, labels), outputs]
    highest = scores.reduce("max", [1])
    is_second_largest = scores.apply(ops.ArgMax, axis=1, dtype=DType.INT64, keepdims=True) > 0
    second = highest >= 0.5 if (coefficients >= 0).all() else highest > 0.0
    return [select_label(second | is_second_largest, labels.tolist()), outputs]
