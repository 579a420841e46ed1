"""Reductions of a function of each number, and of means over all spatial axes.

::

    Reduce(Mul(x, x)) sum               ->  FunctionReduce(x) sum_square
    Sqrt(Reduce(Mul(x, x)) sum)         ->  FunctionReduce(x) l2
    Reduce(Abs(x)) sum                  ->  FunctionReduce(x) l1
    Log(Reduce(x) sum)                  ->  FunctionReduce(x) log_sum
"""

from __future__ import annotations

from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.graph import Node, Value
from onnxtfl.passes.matching import made_by, only_for, same
from onnxtfl.rewriting.patterns import Patterns

REDUCTIONS = Patterns()


def _reduced(b: Builder, x: Value, node: Node, kind: str) -> Value:
    return b(ops.FunctionReduce, x, *node.operands[1:], kind=kind, keepdims=node.attr("keepdims"))


@REDUCTIONS.on(ops.Reduce)
def of_squares_or_sizes(b: Builder, node: Node) -> Value | None:
    """Sums of squares and of absolute values."""
    x = node.operand(0)
    if node.attr("kind") != "sum" or not only_for_one(x, b):
        return None
    square, size = made_by(x, ops.Mul), made_by(x, ops.Abs)
    if square is not None and same(square.operand(0), square.operand(1)):
        return _reduced(b, square.operand(0), node, "sum_square")
    if size is not None and not size.operand(0).dtype.is_complex:
        return _reduced(b, size.operand(0), node, "l1")
    return None


def only_for_one(x: Value, b: Builder) -> bool:
    """Whether one node alone takes `x`."""
    return len(x.users()) == 1 and not any(v is x for v in b.graph.outputs)


@REDUCTIONS.on(ops.Sqrt)
def euclidean(b: Builder, node: Node) -> Value | None:
    """The root of a sum of squares."""
    total = made_by(node.operand(0), ops.FunctionReduce)
    if total is None or total.attr("kind") != "sum_square" or not only_for(total.result, b.graph):
        return None
    return _reduced(b, total.operand(0), total, "l2")


@REDUCTIONS.on(ops.Log)
def log_of_sum(b: Builder, node: Node) -> Value | None:
    """The logarithm of a sum."""
    total = made_by(node.operand(0), ops.Reduce)
    if total is None or total.attr("kind") != "sum" or not only_for(total.result, b.graph):
        return None
    return _reduced(b, total.operand(0), total, "log_sum")
