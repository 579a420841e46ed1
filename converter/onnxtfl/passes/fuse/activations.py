"""Activations that exporters spread out become one op.

::

    x * (1 + Erf(x / sqrt 2)) / 2    ->  Gelu(x)                     and the tanh form
    x * Clamp(x + 3, 0, 6) / 6       ->  HardSwish(x)                and x * Clamp(x / 6 + 1/2, 0, 1)
"""

from __future__ import annotations

import math

from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.graph import Node, Value
from onnxtfl.ir.matching import (
    is_close,
    made_by,
    product_of,
    same,
    scalar,
    single_use,
    sum_with,
)
from onnxtfl.rewriting.patterns import Patterns

ACTIVATIONS = Patterns()


@ACTIVATIONS.on(ops.Mul, ops.Div)
def gelu(b: Builder, node: Node) -> Value | None:
    """The product of x, one half and 1 + Erf(x / sqrt 2), however it is bracketed; and the tanh form."""
    if not node.result.dtype.is_float:
        return None
    product = product_of(node.result, b.graph)
    if len(product.operands) != 2 or not is_close(product.factor, 0.5):
        return None
    for x, other in (product.operands, product.operands[::-1]):
        inner = sum_with(other, 1.0)
        if inner is None or not single_use(other, b.graph):
            continue
        erf, tanh = made_by(inner, ops.Erf), made_by(inner, ops.Tanh)
        if erf is not None and _is_scaled(b, erf.operand(0), x, math.sqrt(0.5)):
            return b(ops.Gelu, x, approximate="none")
        if tanh is not None and _is_gelu_cubic(b, tanh.operand(0), x):
            return b(ops.Gelu, x, approximate="tanh")
    return None


def _is_scaled(b: Builder, value: Value, x: Value, factor: float) -> bool:
    product = product_of(value, b.graph)
    return len(product.operands) == 1 and same(product.operands[0], x) and is_close(product.factor, factor)


def _is_gelu_cubic(b: Builder, value: Value, x: Value) -> bool:
    """Whether `value` is sqrt(2 / pi) * (x + 0.044715 x**3), or x * that * (1 + 0.044715 x**2)."""
    product = product_of(value, b.graph)
    if not is_close(product.factor, math.sqrt(2 / math.pi)):
        return False
    if len(product.operands) == 1:
        total = made_by(product.operands[0], ops.Add)
        pair = list(total.operands) if total is not None else []
        return (
            any(_is(p, x) and _is_power(b, q, x, 3) for p, q in (pair, pair[::-1]) if p and q)
            if len(pair) == 2
            else False
        )
    others = [v for v in product.operands if not same(v, x)]
    inner = sum_with(others[0], 1.0) if len(others) == 1 and len(product.operands) == 2 else None
    return inner is not None and _is_power(b, inner, x, 2)


def _is(value: Value | None, x: Value) -> bool:
    return value is not None and same(value, x)


def _is_power(b: Builder, value: Value, x: Value, exponent: int) -> bool:
    """Whether `value` is 0.044715 * x**exponent."""
    product = product_of(value, b.graph)
    if not is_close(product.factor, 0.044715):
        return False
    return sum(_degree(v, x) for v in product.operands) == exponent


def _degree(value: Value, x: Value) -> float:
    """n where `value` is x**n; NaN for anything else."""
    if same(value, x):
        return 1
    power = made_by(value, ops.Pow)
    if power is not None and same(power.operand(0), x):
        return scalar(power.operand(1)) or math.nan
    times = made_by(value, ops.Mul)
    return sum(_degree(v, x) for v in times.operands if v is not None) if times is not None else math.nan


@ACTIVATIONS.on(ops.Mul, ops.Div)
def hard_swish(b: Builder, node: Node) -> Value | None:
    """x * Clamp(x + 3, 0, 6) / 6, or x * Clamp(x / 6 + 1/2, 0, 1)."""
    if not node.result.dtype.is_float:
        return None
    product = product_of(node.result, b.graph)
    if len(product.operands) != 2:
        return None
    for x, other in (product.operands, product.operands[::-1]):
        clamp = made_by(other, ops.Clamp)
        if clamp is None or scalar(clamp.optional(1)) != 0.0:
            continue
        top = scalar(clamp.optional(2))
        if top == 6.0 and is_close(product.factor, 1 / 6) and _is(sum_with(clamp.operand(0), 3.0), x):
            return b(ops.HardSwish, x)
        if top == 1.0 and is_close(product.factor, 1.0) and _is_shifted_sixth(b, clamp.operand(0), x):
            return b(ops.HardSwish, x)
    return None


def _is_shifted_sixth(b: Builder, value: Value, x: Value) -> bool:
    inner = sum_with(value, 0.5)
    return inner is not None and _is_scaled(b, inner, x, 1 / 6)
