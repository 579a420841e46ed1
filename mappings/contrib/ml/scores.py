"""Common parts of the classifiers and regressors of the domain ai.onnx.ml, as in ONNX Runtime.

Rows of float features in, a row of scores out; scores become probabilities by `post_transform`, and the place of the
largest one a label.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from onnxtfl.build.attributes import ints, texts, texts_of
from onnxtfl.errors import InvalidModelError
from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.data import Array
from onnxtfl.ir.dims import differ
from onnxtfl.ir.formula import Term
from onnxtfl.ir.graph import Node, Value, constant
from onnxtfl.ir.reshape import reshape
from onnxtfl.ir.types import DType

TRANSFORMS = ("none", "softmax", "logistic", "softmax_zero", "probit")
_NOT_ZERO = 1e-7
_ERROR = np.float32(0.147)
"""The constant of the approximation; what follows cancels, so that each rounding of its terms counts."""


def rows_of(b: Builder, x: Value) -> Term:
    """Numbers as float32 [rows, features]; a vector is one row. InvalidModelError for other ranks."""
    if x.rank not in (1, 2):
        raise InvalidModelError(f"features of rank {x.rank}: rows of features expected", code="E-FILE-009")
    rows = x if x.rank == 2 else reshape(b, x, (1, *x.shape))
    return Term(b, rows).to(DType.FLOAT32)


def feature_count(rows: Term, wanted: int) -> None:
    """Raise InvalidModelError if rows have another number of features than `wanted`."""
    size = rows.value.shape[1]
    if differ(size, wanted):
        raise InvalidModelError(f"{size} features, the model has {wanted}", code="E-FILE-009")


def linear(rows: Term, weights: Array, bias: Array | None) -> Term:
    """rows [n, f] times weights [m, f], transposed, plus bias [m]: [n, m]."""
    axes = {"lhs_contracting_dimensions": (1,), "rhs_contracting_dimensions": (1,)}
    product = rows.apply(ops.DotGeneral, constant(np.asarray(weights, np.float32)), **axes)
    return product if bias is None else product.apply(ops.Add, np.asarray(bias, np.float32))


def transform_of(node: Node) -> str:
    """The attribute `post_transform` in lower case. Raises InvalidModelError if it is none of TRANSFORMS."""
    found = texts_of(node.attr("post_transform", None) or "none")
    if found.lower() not in TRANSFORMS:
        known = ", ".join(TRANSFORMS).upper()
        raise InvalidModelError(f"post_transform is {found!r}, not one of {known}", code="E-FILE-009")
    return found.lower()


def transformed(scores: Term, kind: str) -> Term:
    """Scores [n, m] with m of at least 2, after `post_transform`."""
    match kind:
        case "softmax":
            return scores.apply(ops.Softmax, axis=1)
        case "logistic":
            return scores.sigmoid()
        case "softmax_zero":
            return softmax_zero(scores)
        case "probit":
            return probit(scores)
    return scores


def softmax_zero(scores: Term) -> Term:
    """Softmax of the scores that are not zero; zeros are not in the sum and stay zero."""
    highest = scores.reduce("max", [1])
    powers = (scores - highest).exp()
    counts = scores.abs() > _NOT_ZERO
    total = counts.choose(powers, 0.0).reduce("sum", [1])
    return counts.choose(powers, scores * (-highest).exp()) / total


def probit(scores: Term) -> Term:
    """The quantile of the normal distribution, by ONNX Runtime's approximation of the inverse error function."""
    x = scores * 2.0 - 1.0
    log = ((1.0 - x) * (x + 1.0)).log()
    half = log * 0.5 + float(np.float32(2) / (np.float32(3.14159) * _ERROR))
    root = ((half * half - log * float(1 / _ERROR)).sqrt() - half).sqrt()
    return (x < 0.0).choose(-root, root) * 1.41421356


def two_columns(first: Term, second: Term) -> Term:
    """Two columns [n, 1] as one tensor [n, 2]."""
    return first.apply(ops.Concatenate, second, axis=1)


def class_labels(node: Node, integers: str, strings: str = "classlabels_strings") -> Array:
    """The labels of the classes, by attributes of these names: int64, or strings. InvalidModelError for none."""
    named = texts(node, strings)
    labels = np.asarray(named, object) if named else ints(node, integers)
    if not labels.size:
        raise InvalidModelError(f"neither {integers} nor {strings}", code="E-FILE-009")
    return labels


def largest(scores: Term, labels: Array) -> Value:
    """The label [n] of the largest score in each row, of the first one of several."""
    return labels_at(scores.apply(ops.ArgMax, axis=1, dtype=DType.INT64), labels)


def labels_at(places: Term, labels: Array) -> Value:
    """The labels at places (integers)."""
    if labels.dtype.kind != "O" and np.array_equal(labels, np.arange(len(labels))):
        return places.to(DType.INT64).value
    return places.b(ops.Gather, labels, places.value, axis=0)


def chosen_label(condition: Term, labels: Sequence[object]) -> Value:
    """The second of two labels [n] where the condition [n, 1] is true, else the first."""
    place = condition.to(DType.INT64)
    flat = Term(place.b, reshape(place.b, place.value, place.value.shape[:1]))
    table = np.asarray(labels, object if isinstance(labels[0], str) else np.int64)
    return labels_at(flat, table)
