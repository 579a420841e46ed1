"""Class probabilities from pairwise class probabilities (pairwise coupling), as in ONNX Runtime.

The second method of Wu, Lin and Weng, "Probability Estimates for Multi-class Classification by Pairwise Coupling"
(2004). With r[i, j] the probability of class i against class j, p minimizes ``p Q p`` where sum(p) = 1:

::

    Q[i, i] = sum of r[j, i] ** 2 over j     Q[i, j] = -r[j, i] * r[i, j]

It is a loop: an iteration updates each element of p once; rows whose error is small enough no longer change.
"""

from __future__ import annotations

import numpy as np

from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.formula import Term
from onnxtfl.ir.graph import Graph, Value, constant
from onnxtfl.ir.reshape import reshape, unsqueezed

_MAX_ITERATIONS = 100
_TOLERANCE = 0.005
"""A row has converged if its error is less than this divided by the number of classes."""
_MIN_PROBABILITY = 1e-7
"""Pairwise probabilities are clamped to [this, 1 - this]."""


def couple_pairs(pairs: Term, classes: int) -> Term:
    """The class probabilities [n, classes]; `pairs` [n, pairs]: r[i, j] for i < j, in lexicographic order."""
    b, quadratic = pairs.b, _quadratic(pairs.clamp(_MIN_PROBABILITY, 1 - _MIN_PROBABILITY), classes)
    shape = b(ops.Shape, quadratic.at(0, 1).value)
    start = b(ops.BroadcastTo, np.full((1, 1), 1 / classes, np.float32), shape)
    values = [constant(np.asarray(0, np.int32)), constant(np.asarray(True)), start, quadratic.value]
    body = _loop_body(values, classes)
    return Term(b, b.many(ops.While, *values, cond=_loop_condition(values), body=body)[2])


def _quadratic(pairs: Term, classes: int) -> Term:
    """The matrix Q [n, classes, classes] (see above)."""
    first, second = np.triu_indices(classes, 1)
    count = len(first)
    pair_index = np.zeros((classes, classes), np.int32)
    pair_index[first, second], pair_index[second, first] = np.arange(count), count + np.arange(count)
    both_directions = pairs.apply(ops.Concatenate, 1.0 - pairs, axis=1)
    other_probability, own_probability = (
        both_directions.apply(ops.Gather, table, axis=1) for table in (pair_index, pair_index.T)
    )
    off_diagonal = Term(pairs.b, constant((1 - np.eye(classes, dtype=np.float32))[None]))
    own_squares = own_probability * own_probability * off_diagonal
    diagonal = own_squares.reduce("sum", [2]) * Term(pairs.b, constant(np.eye(classes, dtype=np.float32)[None]))
    return diagonal - own_probability * other_probability * off_diagonal


def _loop_condition(values: list[Value]) -> Graph:
    """The loop condition: some row has changed, and the maximum number of iterations is not reached."""
    region = Graph("goes_on")
    iteration, changed = [region.add_input(v.type) for v in values][:2]
    b = Builder(region)
    is_below_limit = b(ops.Compare, iteration, b.scalar(_MAX_ITERATIONS, iteration), comparison_direction="LT")
    region.outputs = [b(ops.And, is_below_limit, changed)]
    return region


def _loop_body(values: list[Value], classes: int) -> Graph:
    """The loop body. Loop-carried values: iteration count, whether a row has changed, p [n, classes], Q."""
    region = Graph("coupling_round")
    inputs = [region.add_input(v.type) for v in values]
    b = Builder(region)
    iteration, _, p, quadratic = (Term(b, v) for v in inputs)
    gradient = (quadratic * Term(b, unsqueezed(b, p.value, [1]))).reduce("sum", [2], keepdims=False)
    value = (p * gradient).reduce("sum", [1])
    error = (gradient - value).abs().reduce("max", [1])
    is_unconverged = error >= _TOLERANCE / classes
    updated = _update_each_class(p, gradient, value, quadratic, classes)
    changed = reshape(b, is_unconverged.reduce("any").value, ())
    region.outputs = [(iteration + 1).value, changed, is_unconverged.choose(updated, p).value, quadratic.value]
    return region


def _update_each_class(p: Term, gradient: Term, value: Term, quadratic: Term, classes: int) -> Term:
    """p after an update of each element, each followed by a normalization to sum(p) = 1.

    `gradient`: Q p; `value`: p Q p.
    """
    for i in range(classes):
        row, class_index = quadratic.at(i, 1), np.asarray([i], np.int32)
        diagonal, slope = (t.apply(ops.Gather, class_index, axis=1) for t in (row, gradient))
        step = (value - slope) / diagonal
        total = step + 1.0
        unit = Term(p.b, constant(np.eye(classes, dtype=np.float32)[i : i + 1]))
        p = (p + step * unit) / total
        value = (value + step * (step * diagonal + slope * 2.0)) / total / total
        gradient = (gradient + step * row) / total
    return p
