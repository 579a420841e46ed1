"""Reductions of a function of each number, and of means over all spatial axes.

::

    Reduce(Mul(x, x)) sum               ->  FunctionReduce(x) sum_square
    Sqrt(Reduce(Mul(x, x)) sum)         ->  FunctionReduce(x) l2
    Reduce(Abs(x)) sum                  ->  FunctionReduce(x) l1
    Log(Reduce(x) sum)                  ->  FunctionReduce(x) log_sum
    log_sum of Exp(x - m), plus m       ->  FunctionReduce(x) log_sum_exp     m the greatest, or 0 for infinity
"""

from __future__ import annotations

import math

from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.graph import Node, Value
from onnxtfl.ir.matching import made_by, same, scalar, single_use
from onnxtfl.ir.ops.reductions import reduced_axes
from onnxtfl.rewriting.patterns import Patterns

REDUCTIONS = Patterns()


def _reduced(b: Builder, x: Value, node: Node, kind: str) -> Value:
    return b(ops.FunctionReduce, x, *node.operands[1:], kind=kind, keepdims=node.attr("keepdims"))


@REDUCTIONS.on(ops.Reduce)
def of_squares_or_sizes(b: Builder, node: Node) -> Value | None:
    """Sums of squares and of absolute values."""
    x = node.operand(0)
    if node.attr("kind") != "sum" or not single_use(x, b.graph):
        return None
    square, size = made_by(x, ops.Mul), made_by(x, ops.Abs)
    if square is not None and same(square.operand(0), square.operand(1)):
        return _reduced(b, square.operand(0), node, "sum_square")
    if size is not None and not size.operand(0).dtype.is_complex:
        return _reduced(b, size.operand(0), node, "l1")
    return None


@REDUCTIONS.on(ops.Sqrt)
def euclidean(b: Builder, node: Node) -> Value | None:
    """The root of a sum of squares."""
    total = made_by(node.operand(0), ops.FunctionReduce)
    if total is None or total.attr("kind") != "sum_square" or not single_use(total.result, b.graph):
        return None
    return _reduced(b, total.operand(0), total, "l2")


@REDUCTIONS.on(ops.Log)
def log_of_sum(b: Builder, node: Node) -> Value | None:
    """The logarithm of a sum."""
    total = made_by(node.operand(0), ops.Reduce)
    if total is None or total.attr("kind") != "sum" or not single_use(total.result, b.graph):
        return None
    return _reduced(b, total.operand(0), total, "log_sum")


@REDUCTIONS.on(ops.Add)
def log_of_sum_of_powers(b: Builder, node: Node) -> Value | None:
    """The greatest taken out before Exp and added again."""
    for total, shift in (node.operands, node.operands[::-1]):
        reduction = made_by(total, ops.FunctionReduce)
        power = made_by(reduction.operand(0), ops.Exp) if reduction is not None else None
        less = made_by(power.operand(0), ops.Sub) if power is not None else None
        if reduction is None or less is None or shift is None or reduction.attr("kind") != "log_sum":
            continue
        x, taken, axes = less.operand(0), less.operand(1), reduced_axes(reduction)
        if node.result.type == reduction.result.type and _unkept(shift, taken) and _greatest(taken, x, axes):
            return _reduced(b, x, reduction, "log_sum_exp")
    return None


def _unkept(value: Value, kept: Value) -> bool:
    """Whether `value` is `kept`, or that without some axes of size 1."""
    if value is kept:
        return True
    node = made_by(value, ops.Reshape, ops.Reduce)
    if node is None or node.operand(0) is not kept:
        return False
    before, after = kept.tensor_type.shape, value.tensor_type.shape
    return before is not None and after is not None and [d for d in before if d != 1] == [d for d in after if d != 1]


def _greatest(value: Value, x: Value, axes: tuple[int, ...] | None) -> bool:
    """Whether `value` is the greatest of `x` along `axes`, or that with 0 for infinity."""
    choice = made_by(value, ops.Select)
    if choice is not None:
        test = made_by(choice.operand(0), ops.Compare)
        size = made_by(test.operand(0), ops.Abs) if test is not None else None
        finite = test is not None and test.attr("comparison_direction") == "LT" and scalar(test.operand(1)) == math.inf
        if size is None or not finite or scalar(choice.operand(2)) != 0 or size.operand(0) is not choice.operand(1):
            return False
        value = choice.operand(1)
    top = made_by(value, ops.Reduce)
    if top is None or top.attr("kind") != "max" or not top.attr("keepdims"):
        return False
    return top.operand(0) is x and axes is not None and reduced_axes(top) == axes
