"""Activations with parameters, which TFLite has no op for.

::

    Clamp(x * slope + offset, 0, 1)                       ->  HardSigmoid(x)
    Relu(x) + Elu(Min(x, 0)) * alpha                      ->  Elu(x)
    Elu(x) * gamma, alpha not 1                           ->  Selu(x)
    Elu(x / alpha) * alpha                                ->  Celu(x)
    Select(x > alpha, x, 0)                               ->  ThresholdedRelu(x)
    Min(Max(x, low), high)                                ->  Clamp(x, low, high)
"""

from __future__ import annotations

from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.graph import Node, Value, constant
from onnxtfl.ir.matching import is_close, made_by, same, scalar, single_use, with_constant
from onnxtfl.rewriting.patterns import Patterns

ACTIVATIONS = Patterns()


def _scaled(value: Value, b: Builder) -> tuple[Value, float] | None:
    """x and c where `value` is x * c or x / (1 / c), for nobody else."""
    node = made_by(value, ops.Mul, ops.Div)
    found = with_constant(node) if node is not None else None
    if node is None or found is None or not single_use(value, b.graph) or not _keeps_shape(found[0], value):
        return None
    x, factor, place = found
    number = scalar(factor)
    if not number or (node.op is ops.Div and place == 0):
        return None
    return x, 1 / number if node.op is ops.Div else number


def _keeps_shape(x: Value, result: Value) -> bool:
    return x.tensor_type.shape is not None and x.tensor_type.shape == result.tensor_type.shape


@ACTIVATIONS.on(ops.Clamp)
def hard_sigmoid(b: Builder, node: Node) -> Value | None:
    """A line cut off at 0 and 1."""
    line = node.operand(0)
    total = made_by(line, ops.Add)
    found = with_constant(total) if total is not None else None
    offset = scalar(found[1]) if found is not None else None
    if found is None or offset is None or not single_use(line, b.graph) or not node.result.dtype.is_float:
        return None
    if scalar(node.optional(1)) != 0.0 or scalar(node.optional(2)) != 1.0:
        return None
    scaled = _scaled(found[0], b)
    if scaled is None or not _keeps_shape(scaled[0], node.result):
        return None
    return b(ops.HardSigmoid, scaled[0], slope=scaled[1], offset=offset)


@ACTIVATIONS.on(ops.Add)
def elu(b: Builder, node: Node) -> Value | None:
    """max(x, 0) + alpha * elu(min(x, 0))."""
    for positive, negative in ((0, 1), (1, 0)):
        relu, scaled = made_by(node.operand(positive), ops.Relu), _scaled(node.operand(negative), b)
        inner = made_by(scaled[0], ops.Elu) if scaled is not None else None
        least = made_by(inner.operand(0), ops.Min) if inner is not None else None
        found = with_constant(least) if least is not None else None
        if relu is None or scaled is None or inner is None or found is None:
            continue
        if inner.attr("alpha") == 1.0 and scalar(found[1]) == 0.0 and same(found[0], relu.operand(0)):
            return b(ops.Elu, found[0], alpha=scaled[1])
    return None


@ACTIVATIONS.on(ops.Mul)
def selu_or_celu(b: Builder, node: Node) -> Value | None:
    """Elu times a constant."""
    found = with_constant(node)
    number = scalar(found[1]) if found is not None else None
    inner = made_by(found[0], ops.Elu) if found is not None else None
    if inner is None or number is None or number <= 0 or not single_use(inner.result, b.graph):
        return None
    if not _keeps_shape(inner.result, node.result):
        return None
    alpha = inner.attr("alpha")
    if alpha != 1.0:
        return b(ops.Selu, inner.operand(0), alpha=alpha, gamma=number)
    scaled = _scaled(inner.operand(0), b)
    return b(ops.Celu, scaled[0], alpha=number) if scaled and is_close(scaled[1] * number, 1.0, 1e-6) else None


@ACTIVATIONS.on(ops.Select)
def thresholded_relu(b: Builder, node: Node) -> Value | None:
    """x where it is over a number, else 0."""
    test, x = made_by(node.operand(0), ops.Compare), node.operand(1)
    if test is None or scalar(node.operand(2)) != 0.0 or not x.dtype.is_float or not _keeps_shape(x, node.result):
        return None
    bound = scalar(test.operand(1))
    if test.attr("comparison_direction") != "GT" or bound is None or not same(test.operand(0), x):
        return None
    return b(ops.ThresholdedRelu, x, alpha=bound) if single_use(test.result, b.graph) else None


@ACTIVATIONS.on(ops.Min)
def clamp(b: Builder, node: Node) -> Value | None:
    """Between two numbers, the lower one first."""
    above = with_constant(node)
    inner = made_by(above[0], ops.Max) if above is not None else None
    below = with_constant(inner) if inner is not None else None
    if above is None or below is None or not single_use(above[0], b.graph) or not _keeps_shape(below[0], node.result):
        return None
    low, high = scalar(below[1]), scalar(above[1])
    if low is None or high is None or low > high or below[1].data is None or above[1].data is None:
        return None
    bounds = (constant(v.data.reshape(())) for v in (below[1], above[1]) if v.data is not None and v.data.size == 1)
    found = list(bounds)
    return b(ops.Clamp, below[0], *found) if len(found) == 2 else None
