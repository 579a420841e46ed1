"""Analysis: which real values may be NaN, infinite or very large.

Inputs of the model are assumed to be finite and of moderate magnitude. NaN and infinities come from constants (masks of
-infinity), infinite scales, divisions by 0, and roots or logarithms of negative values.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from onnxtfl.dataclass import dataclass
from onnxtfl.ir import ops
from onnxtfl.ir.facts import never_negative
from onnxtfl.ir.graph import Graph, Node, Value, constant
from onnxtfl.ir.intervals import FINITE
from onnxtfl.ir.matching import splat_value
from onnxtfl.ir.types import TensorType

_MOST_EXPONENT = 88.0
"""The largest number whose exponential is finite in float32."""
_READ = 1 << 22
"""The most elements of a constant that is read."""


@dataclass(frozen=True, slots=True)
class Extremes:
    """`largest`: an estimate of the largest magnitude, at least 1. `nan`: whether elements may be NaN."""

    largest: float = 1.0
    nan: bool = False


ORDINARY = Extremes()


def extremes(graph: Graph) -> dict[Value, Extremes]:
    """Return the extremes of the float results and constants in `graph`; other values are moderate."""
    known: dict[Value, Extremes] = {}
    for node in graph.nodes:
        operands = [_operand(v, known) for v in node.operands]
        if any(isinstance(r.type, TensorType) and r.type.dtype.is_float for r in node.results) and not node.regions:
            found = _of_node(node, operands)
            known.update(dict.fromkeys(node.results, found))
    return known


def _operand(value: Value | None, known: Mapping[Value, Extremes]) -> Extremes:
    if value is None or not isinstance(value.type, TensorType):
        return ORDINARY
    quantization = value.type.quantization
    if quantization is not None and (value.data is None or value.data.size > 1):
        return Extremes(max(1.0, max(quantization.scales) * 2.0 ** min(quantization.dtype.bits, 16)))
    if value.data is not None and value.dtype.is_float:
        return _of_constant(value)
    return known.get(value, ORDINARY)


def _of_constant(value: Value) -> Extremes:
    if value.data is None or value.data.size > _READ:
        return ORDINARY
    elements = np.abs(value.numpy().astype(np.float64))
    return Extremes(float(np.fmax.reduce(elements, axis=None, initial=1.0)), bool(np.isnan(elements).any()))


def _of_node(node: Node, operands: Sequence[Extremes]) -> Extremes:
    """Return the extremes of the results of `node`."""
    op, largest, nan = node.op, max((x.largest for x in operands), default=1.0), any(x.nan for x in operands)
    if op is ops.Select:
        return _of_select(node, operands)
    if op is ops.DequantizeLinear:
        return _of_dequantized(node)
    if op.bounds is not None and math.isfinite(most := max(map(abs, op.bounds))):
        return Extremes(max(1.0, most), nan or (op.defined == FINITE and math.isinf(largest)))
    if op.clamps is not None:
        return Extremes(_clamped(node, largest), nan)
    if op.carries is not None or op in (ops.Abs, ops.Neg):
        return Extremes(largest, nan)
    nan = nan or math.isinf(largest)
    if op is ops.Exp or op is ops.Pow:
        exponent = largest if op is ops.Exp else operands[1].largest * math.log(operands[0].largest)
        return Extremes(math.exp(min(exponent, _MOST_EXPONENT)), nan)
    if op is ops.Div or op is ops.Rsqrt:
        return Extremes(largest, nan) if _never_zero(node.operands[-1]) else Extremes(math.inf, True)
    if op.defined == (0, math.inf) and not never_negative(node.operand(0)):
        return Extremes(largest, True)
    if op is ops.Log:
        return Extremes(largest if _never_zero(node.operand(0)) else math.inf, nan)
    if op.multiplies is not None:
        return Extremes(math.prod(x.largest for x in operands[:2]), nan)
    return Extremes(sum(x.largest for x in operands) if op in (ops.Add, ops.Sub) else largest, nan)


def _of_dequantized(node: Node) -> Extremes:
    """Return the extremes of dequantized values: exact for constants (in float32), else bounds by the type."""
    x, scale, zero = node.operand(0), node.operand(1), node.optional(2)
    if scale.data is None or scale.data.size > _READ or not x.dtype.is_integer:
        return ORDINARY
    scales = scale.numpy().astype(np.float32)
    if x.data is None or scales.size != 1 or x.data.size > _READ or (zero is not None and zero.data is None):
        return Extremes(max(1.0, float(scales.max(initial=0.0)) * 2.0 ** min(x.dtype.bits, 16)))
    steps = x.numpy().astype(np.float32) - np.float32(0 if zero is None else zero.numpy().reshape(-1)[0])
    with np.errstate(over="ignore", invalid="ignore"):
        return _of_constant(constant(steps * scales.reshape(-1)[0]))


def _of_select(node: Node, operands: Sequence[Extremes]) -> Extremes:
    """A Select that replaces NaN has none."""
    test = node.operand(0).producer
    tested = _tested_for_nan(test) if test is not None else None
    kept = [x for v, x in zip(node.operands[1:], operands[1:], strict=True) if tested is None or v is not tested]
    return Extremes(max(x.largest for x in operands[1:]), any(x.nan for x in kept))


def _tested_for_nan(node: Node) -> Value | None:
    """Return the value that `node` tests for NaN."""
    if node.op is ops.IsNaN:
        return node.operand(0)
    unequal = node.op is ops.Compare and node.attr("comparison_direction") == "NE"
    return node.operand(0) if unequal and node.operand(0) is node.operand(1) else None


def _clamped(node: Node, largest: float) -> float:
    given = [math.inf if (v := node.optional(i)) is None else splat_value(v) for i in (1, 2)]
    bounds = [own if own is not None else other for own, other in zip(node.op.clamps or (), given, strict=True)]
    return min(largest, max(math.inf if v is None else abs(v) for v in bounds))


def _never_zero(value: Value | None, depth: int = 4) -> bool:
    """Whether all elements of `value` are known to be positive or nonzero constants."""
    if value is None or value.is_quantized:
        return False
    if value.data is not None:
        return value.data.size <= _READ and bool(value.numpy().all())
    node = value.producer
    if node is None or not depth:
        return False
    if node.op is ops.Add or node.op is ops.Max:
        pairs = ((node.operand(0), node.operand(1)), (node.operand(1), node.operand(0)))
        positive = (_is_positive(c) and (node.op is ops.Max or never_negative(x)) for x, c in pairs)
        return any(positive)
    keeps = node.op is ops.Sqrt or node.only_moves_first
    return node.op is ops.Exp or (keeps and _never_zero(node.operand(0), depth - 1))


def _is_positive(value: Value) -> bool:
    number = splat_value(value)
    return number is not None and number > 0
