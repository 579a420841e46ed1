"""Boolean simplification: conditions known before run time, comparisons with true and false, negations.

::

    Compare(x, false) NE  Xor(x, false)   ->  x            Compare(x, 0) LT, x never negative    ->  false
    Compare(x, false) EQ  Xor(x, true)    ->  Not(x)       Compare(x, 0) GE, x never negative    ->  true
    And(x, true)  Or(x, false)            ->  x            Not(Not(x))                           ->  x
    And(x, false)                         ->  false        Not(Compare(x, y) EQ)                 ->  Compare(x, y) NE
    Compare(Reduce(x) max, -inf) EQ       ->  Reduce(Compare(x, -inf) EQ) all
    Select(c, true, false)                ->  c            Select(c, false, true)                ->  Not(c)
"""

from __future__ import annotations

import math

import numpy as np

from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.dims import known_sizes
from onnxtfl.ir.facts import never_negative
from onnxtfl.ir.graph import Node, Value, constant
from onnxtfl.ir.matching import made_by, single_use, splat_value, with_constant
from onnxtfl.ir.types import DType, TensorType
from onnxtfl.rewriting.patterns import Patterns

BOOLEANS = Patterns()
LARGEST = 1 << 12
"""The most elements of a condition that becomes a constant."""


def _filled(node: Node, value: bool) -> Value | None:
    """A constant of the result's shape, all elements `value`; None if the shape is not static or too large."""
    shape = node.result.tensor_type.shape
    sizes = known_sizes(shape or ())
    if shape is None or len(sizes) < len(shape) or math.prod(sizes) > LARGEST:
        return None
    return constant(np.full(sizes, value))


def _with_bool(node: Node) -> tuple[Value, bool] | None:
    """The non-constant operand, if it has the result's type, and the constant one of a binary node over bools."""
    found = with_constant(node)
    if found is None or found[0].dtype is not DType.BOOL or found[0].type != node.result.type:
        return None
    constant_value = splat_value(found[1])
    return None if constant_value is None else (found[0], bool(constant_value))


@BOOLEANS.on(ops.And, ops.Or, ops.Xor, ops.Compare)
def with_known_bool(b: Builder, node: Node) -> Value | None:
    """Replace an op with a constant by the other operand, its negation or the constant; Xor means NE."""
    found, direction = _with_bool(node), node.attr("comparison_direction", "NE")
    if found is None or direction not in ("EQ", "NE"):
        return None
    other, known = found
    if node.op in (ops.And, ops.Or):
        return other if known is (node.op is ops.And) else _filled(node, known)
    return other if known is (direction == "EQ") else b(ops.Not, other)


@BOOLEANS.on(ops.Compare)
def comparison_with_zero(_: Builder, node: Node) -> Value | None:
    """Replace LT 0 and GE 0 for integers that are never negative by constants."""
    x, direction = node.operand(0), node.attr("comparison_direction")
    if direction not in ("LT", "GE") or splat_value(node.operand(1)) != 0 or not x.dtype.is_integer:
        return None
    return _filled(node, direction == "GE") if never_negative(x) else None


@BOOLEANS.on(ops.Compare)
def comparison_with_infinity(b: Builder, node: Node) -> Value | None:
    """Test max(x) = -inf elementwise: in TFLite Micro the maximum of -inf is the lowest finite float.

    Source: tflite-micro, kernels/reduce_common.cc (the initial value of REDUCE_MAX).
    """
    reduced, limit = made_by(node.operand(0), ops.Reduce), splat_value(node.operand(1))
    if reduced is None or limit is None or node.result.tensor_type.shape != reduced.result.tensor_type.shape:
        return None
    infinity = {"max": -math.inf, "min": math.inf}.get(reduced.attr("kind"))
    if node.attr("comparison_direction") != "EQ" or limit != infinity:
        return None
    x, rest = reduced.operand(0), reduced.operands[1:]
    infinite = b(ops.Compare, x, b.scalar(limit, x), comparison_direction="EQ")
    return b(ops.Reduce, infinite, *rest, **{**reduced.attributes, "kind": "all"})


@BOOLEANS.on(ops.Not)
def negation(b: Builder, node: Node) -> Value | None:
    """Remove a double negation; negate EQ and NE, which are opposites for NaN too."""
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


@BOOLEANS.on(ops.Select)
def choice_of_bools(b: Builder, node: Node) -> Value | None:
    """Replace Select(c, true, false) by c and Select(c, false, true) by its negation."""
    condition, sides = node.operand(0), (splat_value(node.operand(1)), splat_value(node.operand(2)))
    if node.operand(1).dtype is not DType.BOOL or condition.type != node.result.type or sides not in ((1, 0), (0, 1)):
        return None
    return condition if sides[0] else b(ops.Not, condition)
