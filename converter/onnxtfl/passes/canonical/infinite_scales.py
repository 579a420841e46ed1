"""Rewrites Q/DQ with scale = inf, which calibration with masks of -infinity produces, as Select.

::

    QuantizeLinear(x, inf, z)     ->  Select(IsFinite(x), z, lowest)      x / inf is 0, or NaN for infinite x
    DequantizeLinear(q, inf, z)   ->  NaN where q = z, -inf where q < z, inf where q > z
    f(Select(c, 0, -inf))         ->  Select(c, f(0), f(-inf))            f: DequantizeLinear and tests
    IsFinite(Add(x, m))           ->  false, if no element of m is finite
    IsNaN(x)                      ->  false                               x: finite, as dequantized ones are

Computed as arithmetic, results depend on kernels: LiteRT without XNNPACK clamps infinite sums and products to the
largest finite values.
"""

from __future__ import annotations

import numpy as np

from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.facts import facts_of
from onnxtfl.ir.graph import Node, Value, constant
from onnxtfl.ir.matching import made_by, splat_value
from onnxtfl.ir.quantization import limits
from onnxtfl.passes.canonical.masks import chosen_constants, moving_node, only_number
from onnxtfl.rewriting.patterns import Patterns

INFINITE = Patterns()


@INFINITE.on(ops.QuantizeLinear)
def quantize_by_infinity(b: Builder, node: Node) -> Value | None:
    """Quantize finite values to the zero point, and others to the lowest integer."""
    x, dtype, zero = node.operand(0), node.attr("dtype"), _zero_point(node)
    if zero is None or not x.dtype.is_float or not dtype.is_integer:
        return None
    stored = (constant(np.asarray(v, dtype.numpy), dtype) for v in (zero, limits(dtype)[0]))
    return b(ops.Select, b(ops.IsFinite, x), *stored)


@INFINITE.on(ops.DequantizeLinear)
def dequantize_by_infinity(b: Builder, node: Node) -> Value | None:
    """Dequantize to infinities of the sign of the difference from the zero point; a zero difference to NaN."""
    x, zero = node.operand(0), _zero_point(node)
    if zero is None or not x.dtype.is_integer or x.is_constant or chosen_constants(x) is not None:
        return None
    of = constant(np.asarray(zero, x.dtype.numpy), x.dtype)
    nan, low, high = (b.scalar(v, node.result.dtype) for v in (np.nan, -np.inf, np.inf))
    infinite = b(ops.Select, b(ops.Compare, x, of, comparison_direction="LT"), low, high)
    return b(ops.Select, b(ops.Compare, x, of, comparison_direction="EQ"), nan, infinite)


@INFINITE.on(ops.DequantizeLinear, ops.IsFinite, ops.IsInf, ops.IsNaN)
def of_chosen(b: Builder, node: Node) -> Value | None:
    """f(Select(c, a, b)) -> Select(c, f(a), f(b)) for constants a, b."""
    chosen = chosen_constants(node.operand(0))
    if chosen is None or (node.op is ops.DequantizeLinear and _zero_point(node) is None):
        return None
    sides = (b(node.op, v, *node.operands[1:], **node.attributes) for v in chosen.operands[1:])
    return b(ops.Select, chosen.operand(0), *sides)


@INFINITE.on(ops.IsFinite)
def never_finite(b: Builder, node: Node) -> Value | None:
    """Replace IsFinite of values that are never finite by false."""
    return _everywhere(b, node, False) if _never_finite(node.operand(0)) else None


@INFINITE.on(ops.IsFinite, ops.IsInf, ops.IsNaN)
def of_finite(b: Builder, node: Node) -> Value | None:
    """Replace IsNaN and IsInf of finite (dequantized) values by false."""
    return _everywhere(b, node, node.op is ops.IsFinite) if facts_of(node.operand(0)).is_finite else None


@INFINITE.on(ops.Select)
def of_uniform_choice(b: Builder, node: Node) -> Value | None:
    """Replace a Select with a uniform condition by the chosen operand, broadcast if needed."""
    spread = made_by(node.operand(0), ops.BroadcastTo)
    condition = splat_value(spread.operand(0)) if spread is not None else None
    if spread is None or condition is None:
        return None
    chosen = node.operand(1 if condition else 2)
    if chosen.type == node.result.type:
        return chosen
    return b(ops.BroadcastTo, chosen, spread.operand(1)) if all(v.is_single for v in node.operands[1:] if v) else None


def _everywhere(b: Builder, node: Node, value: bool) -> Value:
    """Return `value` broadcast to the shape of the first operand."""
    return b(ops.BroadcastTo, constant(np.asarray(value)), b(ops.Shape, node.operand(0)))


def _zero_point(node: Node) -> int | None:
    """Return the zero point of a node whose only scale is infinite, else None."""
    scale, zero = splat_value(node.operand(1)), node.optional(2)
    if scale is None or not np.isposinf(scale) or not node.operand(1).is_single or node.attr("block_size"):
        return None
    value = 0 if zero is None else splat_value(zero)
    return None if value is None else int(value)


def _never_finite(value: Value | None, depth: int = 8) -> bool:
    """Whether no element of `value` is finite."""
    if value is None or not depth or value.is_quantized or not value.dtype.is_float:
        return False
    number, node = only_number(value), value.producer
    if number is not None or node is None:
        return number is not None and not np.isfinite(number)
    parts = [_never_finite(v, depth - 1) for v in node.operands]
    if node.op in (ops.Add, ops.Sub):
        return any(parts)
    if node.op is ops.Select:
        return all(parts[1:])
    return moving_node(value) is not None and parts[0]
