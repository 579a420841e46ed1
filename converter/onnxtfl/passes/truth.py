"""Canonical forms of conditions: what is known before run time, and comparisons with true and false.

::

    Compare(x, false) NE  Xor(x, false)   ->  x            Compare(x, 0) LT, x never negative    ->  false
    Compare(x, false) EQ  Xor(x, true)    ->  Not(x)       Compare(x, 0) GE, x never negative    ->  true
    And(x, true)  Or(x, false)            ->  x            Not(Not(x))                           ->  x
    And(x, false)                         ->  false        Not(Compare(x, y) EQ)                 ->  Compare(x, y) NE
"""

from __future__ import annotations

import math

import numpy as np

from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.graph import Node, Value, constant
from onnxtfl.ir.matching import made_by, scalar, single_use, with_constant
from onnxtfl.ir.ranges import never_negative
from onnxtfl.ir.types import DType, TensorType
from onnxtfl.rewriting.patterns import Patterns

TRUTH = Patterns()
LARGEST = 1 << 12
"""Elements up to which a condition that is known becomes a constant."""


def _all(node: Node, truth: bool) -> Value | None:
    """The node's result where all of it is `truth`."""
    shape = node.result.tensor_type.shape
    sizes = [d for d in shape or () if isinstance(d, int)]
    if shape is None or len(sizes) < len(shape) or math.prod(sizes) > LARGEST:
        return None
    return constant(np.full(sizes, truth))


def _with_truth(node: Node) -> tuple[Value, bool] | None:
    """The other operand, of the result's type, and the constant of a node over bools."""
    found = with_constant(node)
    if found is None or found[0].dtype is not DType.BOOL or found[0].type != node.result.type:
        return None
    number = scalar(found[1])
    return None if number is None else (found[0], bool(number))


@TRUTH.on(ops.Compare)
def compared(b: Builder, node: Node) -> Value | None:
    """Bools that are compared with a constant; signs that are known."""
    direction, found = node.attr("comparison_direction"), _with_truth(node)
    if found is not None and direction in ("EQ", "NE"):
        return found[0] if found[1] is (direction == "EQ") else b(ops.Not, found[0])
    if scalar(node.operand(1)) != 0 or direction not in ("LT", "GE") or not node.operand(0).dtype.is_integer:
        return None
    return _all(node, direction == "GE") if never_negative(node.operand(0)) else None


@TRUTH.on(ops.Xor)
def exclusive(b: Builder, node: Node) -> Value | None:
    """Xor with a constant."""
    found = _with_truth(node)
    if found is None:
        return None
    return b(ops.Not, found[0]) if found[1] else found[0]


@TRUTH.on(ops.And, ops.Or)
def joined(b: Builder, node: Node) -> Value | None:
    """The constant changes nothing, or settles everything."""
    found = _with_truth(node)
    if found is None:
        return None
    return found[0] if found[1] is (node.op is ops.And) else _all(node, found[1])


@TRUTH.on(ops.Not)
def negated(b: Builder, node: Node) -> Value | None:
    """Twice is not at all; equal and not equal are opposites, for NaN too."""
    operand = node.operand(0)
    inner, test = made_by(operand, ops.Not), made_by(operand, ops.Compare)
    if not isinstance(node.result.type, TensorType) or node.result.dtype is not DType.BOOL:
        return None
    if inner is not None:
        return inner.operand(0)
    opposite = {"EQ": "NE", "NE": "EQ"}.get(test.attr("comparison_direction")) if test is not None else None
    if test is None or opposite is None or not single_use(operand, b.graph):
        return None
    return b(ops.Compare, *test.operands, comparison_direction=opposite)
