"""Support vector machines of the domain ai.onnx.ml.

========  ==================================
ONNX      SVMRegressor 1, SVMClassifier 1
========  =================================="""

from __future__ import annotations

import numpy as np
from onnxtfl.mappings.contrib.ml.pair_probabilities import coupled
from onnxtfl.mappings.contrib.ml.scores import (
    chosen_label,
    class_labels,
    feature_count,
    largest,
    linear,
    rows_of,
    transform_of,
    transformed,
    two_columns,
)

from onnxtfl.build.attributes import ML, floats, ints, texts_of
from onnxtfl.errors import InvalidModelError, UnsupportedError
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
    """The kernel of each row with each of the vectors [v, f]: [n, v]."""
    kind, parameters = texts_of(node.attr("kernel_type", "LINEAR")), floats(node, "kernel_params").tolist()
    gamma, offset, degree = [*parameters, 0.0, 0.0, 0.0][:3] if parameters else (0.0, 0.0, 0.0)
    feature_count(rows, vectors.shape[1])
    if kind == "RBF":  # by differences: squares of large features would cancel
        check_elements(vectors.size, "the support vectors")
        wide = Term(rows.b, unsqueezed(rows.b, rows.value, [1]))
        squares = wide.apply(ops.SquaredDifference, vectors[None])
        return (squares.reduce("sum", [2], keepdims=False) * -gamma).exp()
    products = linear(rows, vectors, None)
    match kind:
        case "LINEAR":
            return products
        case "POLY":
            return _power(products * gamma + offset, degree)
        case "SIGMOID":
            return (products * gamma + offset).tanh()
    raise InvalidModelError(f"kernel_type is {kind!r}", code="E-FILE-009")


def _power(x: Term, degree: float) -> Term:
    """`x` to a power; to 2 and 3 by multiplication, as ONNX Runtime does."""
    if degree not in (2.0, 3.0):
        return x.power(degree)
    return x * x if degree == 2.0 else x * x * x


def _vectors(node: Node, count: int) -> Array:
    found = floats(node, "support_vectors")
    if count < 1 or not found.size or found.size % count:
        raise InvalidModelError(f"{found.size} elements of {count} support vectors", code="E-FILE-009")
    return found.astype(np.float32).reshape(count, -1)


@lift_onnx("SVMRegressor", since=(1,), domain=ML)
def _svm_regressor(b: Builder, node: Node) -> Value:
    """A linear model if there are no support vectors. ONNX Runtime ignores `post_transform`."""
    rows, count = rows_of(b, node.operand(0)), int(node.attr("n_supports", 0))
    coefficients, rho = floats(node, "coefficients"), floats(node, "rho")
    if not coefficients.size or not rho.size:
        raise InvalidModelError("no coefficients, or no rho", code="E-FILE-009")
    if count > 0:
        if coefficients.size != count:
            raise InvalidModelError(f"{coefficients.size} coefficients of {count} vectors", code="E-FILE-009")
        rows = _kernel(node, rows, _vectors(node, count))
    feature_count(rows, coefficients.size)
    score = linear(rows, coefficients.reshape(1, -1), rho[:1])
    if not node.attr("one_class", 0):
        return score.value
    return (score > 0.0).choose(score.constant(1.0), score.constant(-1.0)).value


@lift_onnx("SVMClassifier", since=(1,), domain=ML)
def _svm_classifier(b: Builder, node: Node) -> list[Value]:
    """The class with the most votes of pairs of classes; without support vectors, that with the largest score."""
    rows, labels = rows_of(b, node.operand(0)), class_labels(node, "classlabels_ints")
    counts = ints(node, "vectors_per_class")
    if len(labels) < 2 or (counts < 0).any():
        raise InvalidModelError(f"{len(labels)} classes, vectors_per_class {counts.tolist()}", code="E-FILE-009")
    if not counts.sum():
        return _linear_classes(node, rows, labels)
    if counts.size != labels.size:
        raise InvalidModelError(f"{counts.size} vectors_per_class for {labels.size} classes", code="E-FILE-009")
    scores = _of_pairs(node, _kernel(node, rows, _vectors(node, int(counts.sum()))), counts)
    votes = _votes(scores, len(labels))
    if floats(node, "prob_a").size:
        found = coupled(_probabilities(node, scores, len(labels)), len(labels))
        return [largest(votes, labels), transformed(found, transform_of(node)).value]
    if len(labels) > 2:
        return [largest(votes, labels), transformed(scores, transform_of(node)).value]
    return _two_classes(node, scores, votes, labels)


def _of_pairs(node: Node, kernels: Term, counts: Array) -> Term:
    """The score of each pair of classes [n, pairs], positive for the first one."""
    classes, total = len(counts), int(counts.sum())
    coefficients, rho = floats(node, "coefficients"), floats(node, "rho")
    pairs = classes * (classes - 1) // 2
    if coefficients.size < (classes - 1) * total or rho.size < pairs:
        raise InvalidModelError(f"{coefficients.size} coefficients, {rho.size} rho", code="E-FILE-009")
    table = coefficients[: (classes - 1) * total].reshape(classes - 1, total)
    ends = np.cumsum(counts)
    weights = np.zeros((pairs, total), np.float32)
    for pair, (i, j) in enumerate(_pairs(classes)):
        first, second = (slice(ends[k] - counts[k], ends[k]) for k in (i, j))
        weights[pair, first], weights[pair, second] = table[j - 1, first], table[i, second]
    return linear(kernels, weights, rho[:pairs])


def _pairs(classes: int) -> list[tuple[int, int]]:
    return [(i, j) for i in range(classes) for j in range(i + 1, classes)]


def _votes(scores: Term, classes: int) -> Term:
    """The number of pairs that each class wins [n, classes]."""
    pairs = _pairs(classes)
    wins, start = np.zeros((classes, len(pairs)), np.float32), np.zeros(classes, np.float32)
    for pair, (i, j) in enumerate(pairs):
        wins[i, pair], wins[j, pair] = 1, -1
        start[j] += 1
    return linear((scores > 0.0).to(DType.FLOAT32), wins, start)


def _probabilities(node: Node, scores: Term, classes: int) -> Term:
    """The probability of the first class of each pair [n, pairs] (Platt scaling)."""
    slope, offset = (floats(node, name) for name in ("prob_a", "prob_b"))
    pairs = classes * (classes - 1) // 2
    if slope.size != offset.size or slope.size < pairs:
        raise InvalidModelError(f"{slope.size} prob_a, {offset.size} prob_b of {pairs} pairs", code="E-FILE-009")
    scaled = scores.apply(ops.Mul, slope[:pairs]).apply(ops.Add, offset[:pairs])
    return (-scaled).sigmoid()


def _two_classes(node: Node, scores: Term, votes: Term, labels: Array) -> list[Value]:
    """The label by votes; the negated score and the score, or both as ONNX Runtime transforms them."""
    transform = transform_of(node)
    if transform == "probit":
        raise UnsupportedError("PROBIT of the score of one of two classes: ONNX Runtime leaves the other one out")
    if transform == "logistic":
        pair = two_columns((-scores).sigmoid(), scores.sigmoid())
    else:
        pair = two_columns(-scores if transform == "none" else 1.0 - scores, scores)
    return [largest(votes, labels), pair.value]


def _linear_classes(node: Node, rows: Term, labels: Array) -> list[Value]:
    """A score for each class, all with the first rho."""
    coefficients, rho = floats(node, "coefficients"), floats(node, "rho")
    if not coefficients.size or coefficients.size % len(labels) or not rho.size:
        raise InvalidModelError(f"{coefficients.size} coefficients of {len(labels)} classes", code="E-FILE-009")
    weights = coefficients.reshape(len(labels), -1)
    feature_count(rows, weights.shape[1])
    scores = linear(rows, weights, np.full(len(labels), rho[0], np.float32))
    found = transformed(scores, transform_of(node)).value
    if len(labels) > 2 or floats(node, "prob_a").size:
        return [largest(scores, labels), found]
    highest = scores.reduce("max", [1])
    place = scores.apply(ops.ArgMax, axis=1, dtype=DType.INT64, keepdims=True) > 0
    second = highest >= 0.5 if (coefficients >= 0).all() else highest > 0.0
    return [chosen_label(second | place, labels.tolist()), found]
