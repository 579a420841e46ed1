"""Parts shared by the classifiers and regressors of the domain ai.onnx.ml, as in ONNX Runtime.

A model computes a row of scores from a row of float features. `post_transform` turns scores into probabilities; the
index of the largest score selects the label.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from onnxtfl.build.attributes import ints, texts, texts_of
from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.data import Array
from onnxtfl.ir.dims import differ
from onnxtfl.ir.formula import Term
from onnxtfl.ir.graph import Node, Value
from onnxtfl.ir.reshape import reshape
from onnxtfl.ir.types import DType

TRANSFORMS = ("none", "softmax", "logistic", "softmax_zero", "probit")
_NOT_ZERO = 1e-7
_ERF_CONSTANT = np.float32(0.147)
"""The constant of the approximation of erf^-1. The terms of `probit` cancel, so each has to be rounded as float32."""


def as_rows(b: Builder, x: Value) -> Term:
    """`x` as float32 [rows, features]; a vector is one row. Raises ValueError for other ranks."""
    if x.rank not in (1, 2):
        raise ValueError(f"features of rank {x.rank}: rank 1 or 2 expected")
    rows = x if x.rank == 2 else reshape(b, x, (1, *x.shape))
    return Term(b, rows).to(DType.FLOAT32)


def check_feature_count(rows: Term, wanted: int) -> None:
    """Raise ValueError if the rows do not have `wanted` features; dynamic sizes pass."""
    size = rows.value.shape[1]
    if differ(size, wanted):
        raise ValueError(f"the operand has {size} features: {wanted} expected")


def matrix_product(rows: Term, weights: Array, bias: Array | None) -> Term:
    """rows @ weights^T + bias: [n, f], [m, f], [m] -> [n, m]."""
    product = rows.dot(np.asarray(weights, np.float32), (1,), (1,))
    return product if bias is None else product.apply(ops.Add, np.asarray(bias, np.float32))


def transform_of(node: Node) -> str:
    """The attribute `post_transform` in lower case. Raises ValueError if it is not one of TRANSFORMS."""
    name = texts_of(node.attr("post_transform", None) or "none")
    if name.lower() not in TRANSFORMS:
        known = ", ".join(TRANSFORMS).upper()
        raise ValueError(f"post_transform is {name!r}, not one of {known}")
    return name.lower()


def apply_transform(scores: Term, kind: str) -> Term:
    """Apply a `post_transform` (one of TRANSFORMS) to scores [n, m], m >= 2."""
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
    """Softmax over the nonzero scores; scores of 0 stay 0 and are not in the sum."""
    highest = scores.reduce("max", [1])
    exponentials = (scores - highest).exp()
    is_nonzero = scores.abs() > _NOT_ZERO
    total = is_nonzero.choose(exponentials, 0.0).reduce("sum", [1])
    return is_nonzero.choose(exponentials, scores * (-highest).exp()) / total


def probit(scores: Term) -> Term:
    """sqrt(2) * erf^-1(2 * scores - 1), the quantile of the normal distribution, approximated as in ONNX Runtime.

    erf^-1(x) = sign(x) * sqrt(sqrt(h ** 2 - L / a) - h), with L = log(1 - x ** 2), h = 2 / (pi * a) + L / 2, a = 0.147.
    """
    x = scores * 2.0 - 1.0
    log = ((1.0 - x) * (x + 1.0)).log()
    h_term = log * 0.5 + float(np.float32(2) / (np.float32(3.14159) * _ERF_CONSTANT))
    magnitude = ((h_term * h_term - log * float(1 / _ERF_CONSTANT)).sqrt() - h_term).sqrt()
    return (x < 0.0).choose(-magnitude, magnitude) * 1.41421356


def join_columns(first: Term, second: Term) -> Term:
    """Concatenate two columns [n, 1] to [n, 2]."""
    return first.apply(ops.Concatenate, second, axis=1)


def class_labels(node: Node, integers: str, strings: str = "classlabels_strings") -> Array:
    """The class labels, int64 or strings, from the attribute named `integers` or `strings`.

    Raises ValueError if both are missing or empty.
    """
    named = texts(node, strings)
    labels = np.asarray(named, object) if named else ints(node, integers)
    if not labels.size:
        raise ValueError(f"{integers} or {strings} is missing or empty")
    return labels


def label_of_largest(scores: Term, labels: Array) -> Value:
    """The label [n] of the largest score in each row; among equal scores, of the first."""
    return labels_at(scores.apply(ops.ArgMax, axis=1, keepdims=False, dtype=DType.INT64), labels)


def labels_at(indices: Term, labels: Array) -> Value:
    """Gather labels at `indices`; labels 0, 1, 2, ... are the indices themselves."""
    if labels.dtype.kind != "O" and np.array_equal(labels, np.arange(len(labels))):
        return indices.to(DType.INT64).value
    return indices.b(ops.Gather, labels, indices.value, axis=0)


def select_label(condition: Term, labels: Sequence[object]) -> Value:
    """The second of two labels where `condition` [n, 1] is true, else the first: [n]."""
    index = condition.to(DType.INT64)
    flat = Term(index.b, reshape(index.b, index.value, index.value.shape[:1]))
    table = np.asarray(labels, object if isinstance(labels[0], str) else np.int64)
    return labels_at(flat, table)
