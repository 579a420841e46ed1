"""Probabilities of classes from those of pairs of classes, as ONNX Runtime couples them.

The method is the second one of Wu, Lin and Weng, "Probability Estimates for Multi-class Classification by Pairwise
Coupling" (2004). With r the probability of a class i against a class j, p minimizes ``p Q p``:

::

    Q[i, i] = sum of r[j, i] ** 2 over j     Q[i, j] = -r[j, i] * r[i, j]

A round improves the elements of p in turn; a row with a small error does not change.
"""

from __future__ import annotations

import numpy as np

from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.formula import Term
from onnxtfl.ir.graph import Graph, Value, constant
from onnxtfl.ir.reshape import reshape, unsqueezed

_ROUNDS = 100
_SMALL_ERROR = 0.005
"""A row is done where its error is less than this divided by the number of classes."""
_LEAST = 1e-7
"""The least probability of a class of a pair."""


def coupled(pairs: Term, classes: int) -> Term:
    """The probabilities [n, classes] from those of the first class of each pair [n, pairs], in lexical order."""
    b, quadratic = pairs.b, _quadratic(pairs.clamp(_LEAST, 1 - _LEAST), classes)
    shape = b(ops.Shape, quadratic.at(0, 1).value)
    start = b(ops.BroadcastTo, np.full((1, 1), 1 / classes, np.float32), shape)
    values = [constant(np.asarray(0, np.int32)), constant(np.asarray(True)), start, quadratic.value]
    body = _round(values, classes)
    return Term(b, b.many(ops.While, *values, cond=_goes_on(values), body=body)[2])


def _quadratic(pairs: Term, classes: int) -> Term:
    """Q [n, classes, classes]."""
    first, second = np.triu_indices(classes, 1)
    count = len(first)
    place = np.zeros((classes, classes), np.int32)
    place[first, second], place[second, first] = np.arange(count), count + np.arange(count)
    both = pairs.apply(ops.Concatenate, 1.0 - pairs, axis=1)
    against, by = (both.apply(ops.Gather, table, axis=1) for table in (place, place.T))
    others = Term(pairs.b, constant((1 - np.eye(classes, dtype=np.float32))[None]))
    own = by * by * others
    diagonal = own.reduce("sum", [2]) * Term(pairs.b, constant(np.eye(classes, dtype=np.float32)[None]))
    return diagonal - by * against * others


def _goes_on(values: list[Value]) -> Graph:
    """Whether a row has changed, and fewer rounds than allowed are done."""
    region = Graph("goes_on")
    number, changed = [region.add_input(v.type) for v in values][:2]
    b = Builder(region)
    few = b(ops.Compare, number, b.scalar(_ROUNDS, number), comparison_direction="LT")
    region.outputs = [b(ops.And, few, changed)]
    return region


def _round(values: list[Value], classes: int) -> Graph:
    """A round: its number, whether a row has changed, p [n, classes], Q."""
    region = Graph("coupling_round")
    inputs = [region.add_input(v.type) for v in values]
    b = Builder(region)
    number, _, p, quadratic = (Term(b, v) for v in inputs)
    gradient = (quadratic * Term(b, unsqueezed(b, p.value, [1]))).reduce("sum", [2], keepdims=False)
    value = (p * gradient).reduce("sum", [1])
    error = (gradient - value).abs().reduce("max", [1])
    open_rows = error >= _SMALL_ERROR / classes
    better = _improved(p, gradient, value, quadratic, classes)
    changed = reshape(b, open_rows.reduce("any").value, ())
    region.outputs = [(number + 1).value, changed, open_rows.choose(better, p).value, quadratic.value]
    return region


def _improved(p: Term, gradient: Term, value: Term, quadratic: Term, classes: int) -> Term:
    """p after a step for each class, in which the classes' sum becomes 1 again. `value`: p Q p."""
    for i in range(classes):
        row, here = quadratic.at(i, 1), np.asarray([i], np.int32)
        own, slope = (t.apply(ops.Gather, here, axis=1) for t in (row, gradient))
        step = (value - slope) / own
        whole = step + 1.0
        unit = Term(p.b, constant(np.eye(classes, dtype=np.float32)[i : i + 1]))
        p = (p + step * unit) / whole
        value = (value + step * (step * own + slope * 2.0)) / whole / whole
        gradient = (gradient + step * row) / whole
    return p
