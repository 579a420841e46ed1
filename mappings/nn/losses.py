"""Losses: NegativeLogLikelihoodLoss 12 13 22, SoftmaxCrossEntropyLoss 12 13, on classes [n, c, all other axes]."""

from __future__ import annotations

from collections.abc import Sequence

from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.dims import product
from onnxtfl.ir.formula import Term
from onnxtfl.ir.graph import Node, Value
from onnxtfl.ir.reshape import reshape
from onnxtfl.rewriting.registry import lift_onnx


@lift_onnx("NegativeLogLikelihoodLoss", since=(12, 13, 22))
def _nll_loss(b: Builder, node: Node) -> Value:
    return _loss(b, node, _flat(b, node.operand(0)))


@lift_onnx("SoftmaxCrossEntropyLoss", since=(12, 13))
def _cross_entropy(b: Builder, node: Node) -> Sequence[Value]:
    x = node.operand(0)
    logs = b(ops.LogSoftmax, _flat(b, x), axis=1)
    return [_loss(b, node, logs), reshape(b, logs, x.shape)][: len(node.results)]


def _flat(b: Builder, x: Value) -> Value:
    """Merge all axes after the second one: [n, c, rest]."""
    return reshape(b, x, (*x.shape[:2], product(x.shape[2:])))


def _loss(b: Builder, node: Node, logs: Value) -> Value:
    """Return -log(probability of the target class) * its weight; 0 for ignored targets."""
    target, weights, ignore = node.operand(1), node.optional(2), node.attr("ignore_index")
    classes = Term(b, reshape(b, target, (logs.shape[0], 1, logs.shape[2])))
    ignored = None if ignore is None else classes.equals(int(ignore))
    safe = classes if ignored is None else ignored.choose(classes.constant(0), classes)
    chosen = Term(b, b(ops.GatherElements, logs, safe.value, axis=1))
    weight = None if weights is None else Term(b, b(ops.Gather, weights, safe.value, axis=0))
    loss = -chosen if weight is None else -chosen * weight
    if ignored is not None:
        loss = ignored.choose(loss.constant(0.0), loss)
        weight = ignored.choose(loss.constant(0.0), weight or loss.constant(1.0))
    match node.attr("reduction", "mean"):
        case "none":
            return reshape(b, loss.value, target.shape)
        case "sum":
            return _total(b, loss)
    if weight is None and 0 in loss.value.shape:  # in ONNX Runtime the mean of an empty tensor is 0
        return _total(b, loss)
    if weight is None:
        return b(ops.Reduce, loss.value, [0, 1, 2], kind="mean", keepdims=False)
    return (Term(b, _total(b, loss)) / Term(b, _total(b, weight))).value


def _total(b: Builder, term: Term) -> Value:
    return b(ops.Reduce, term.value, [0, 1, 2], kind="sum", keepdims=False)
