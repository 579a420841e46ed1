"""Ops on quantized operands with explicit parameters (QLinearConv and similar): dequantize, the float op, quantize.

ONNX and com.microsoft have some twenty of them; each is a row that names the float op, which operands are
(elements, scale, zero point), and which parameters the result has.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from onnxtfl.dataclass import dataclass
from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.formula import Term
from onnxtfl.ir.graph import Node, Value, constant
from onnxtfl.ir.op import foreign_op
from onnxtfl.ir.reshape import transposed
from onnxtfl.ir.types import DType
from onnxtfl.rewriting.registry import lift_onnx, rules_for

MICROSOFT = "com.microsoft"


@dataclass(frozen=True, slots=True)
class Quantized:
    """An operand with parameters: the places of elements, scale and zero point, and the axis of per-axis parameters
    (counted from the end if negative).
    """

    elements: int
    scale: int
    zero: int
    axis: int = 0


@dataclass(frozen=True, slots=True)
class QLinearRow:
    """How an op on quantized operands is written with the ONNX op `of` of `version`.

    `operands`: those of the float op, each a quantized one or the place of an unquantized one. `result`: the places of
    its scale and zero point; if the scale is absent, the result is not quantized. `bias`: the place of an int32 bias,
    whose scale is the product of those of the first two operands. `attributes`: the float op's, from this op's (by
    default all of them).
    """

    of: str
    version: int
    operands: tuple[Quantized | int, ...]
    result: tuple[int, int]
    bias: int | None = None
    attributes: Callable[[Node], Mapping[str, Any]] | None = None


def qlinear(name: str, since: tuple[int, ...], row: QLinearRow, domain: str = "") -> None:
    """Register the lift rule of the op `name` on quantized operands."""
    lift_onnx(name, since, domain)(partial(_lift, row=row))


def _lift(b: Builder, node: Node, row: QLinearRow) -> Value:
    if node.attr("channels_last", 0):
        return _lift_channels_last(b, node, row)
    operands = [dequantized(b, node, o) if isinstance(o, Quantized) else node.optional(o) for o in row.operands]
    if row.bias is not None and (bias := node.optional(row.bias)) is not None:
        operands.append(dequantized_bias(b, bias, *(node.operand(o.scale) for o in _first_two(row))))
    attributes = node.attributes if row.attributes is None else row.attributes(node)
    real = lift_op(b, row.of, row.version, operands, attributes)
    scale, zero = (node.optional(i) for i in row.result)
    return real if scale is None else quantized(b, real, scale, zero, node.operand(_first_two(row)[0].elements).dtype)


def _lift_channels_last(b: Builder, node: Node, row: QLinearRow) -> Value:
    """Lift an op with channels-last activations and result, [n, spatial..., c]; filters have ONNX's order."""
    place, x = _first_two(row)[0].elements, node.operand(_first_two(row)[0].elements)
    attributes = {k: v for k, v in node.attributes.items() if k != "channels_last"}
    operands = [channels_second(b, x) if i == place else v for i, v in enumerate(node.operands)]
    first = Node(node.op, operands, attributes)
    first.add_result(None)
    try:
        return channels_trailing(b, _lift(b, first, row))
    finally:
        first.detach()


def channels_second(b: Builder, x: Value) -> Value:
    """[n, spatial..., c] as [n, c, spatial...]."""
    return transposed(b, x, [0, x.rank - 1, *range(1, x.rank - 1)])


def channels_trailing(b: Builder, x: Value) -> Value:
    """[n, c, spatial...] as [n, spatial..., c]."""
    return transposed(b, x, [0, *range(2, x.rank), 1])


def _first_two(row: QLinearRow) -> list[Quantized]:
    return [o for o in row.operands if isinstance(o, Quantized)][:2]


def lift_op(
    b: Builder, name: str, version: int, operands: Sequence[Value | None], attributes: Mapping[str, Any]
) -> Value:
    """The only result of the ONNX op `name` since `version`, by its lift rule."""
    node = Node(foreign_op("onnx", name, version), operands, attributes)
    node.add_result(None)
    try:
        found = rules_for(node.op).lift_onnx[("", name)][version](b, node)
    finally:
        node.detach()
    return found if isinstance(found, Value) else found[0]


def dequantized(b: Builder, node: Node, operand: Quantized) -> Value:
    """The real values of a quantized operand. Raises ValueError if its zero point has another type."""
    x, scale, zero = node.operand(operand.elements), node.operand(operand.scale), node.optional(operand.zero)
    if zero is not None and zero.dtype is not x.dtype:
        raise ValueError(f"a zero point of type {zero.type} for elements of type {x.type}")
    return b(ops.DequantizeLinear, x, _finite(x, scale, zero), zero, axis=_axis(x, scale, operand.axis))


def _finite(x: Value, scale: Value, zero: Value | None) -> Value:
    """The scale of a constant of one element; the next lower float if the product of both is infinite.

    Kernels multiply the integers first: 0 times a mask of the lowest float, as its scale times -127, is 0 and not NaN.
    Source: ONNX Runtime, core/mlas/lib/qlmul.cpp.
    """
    parameters = [v for v in (x, scale, zero) if v is not None]
    if any(v.data is None or v.data.size != 1 for v in parameters) or scale.dtype is not DType.FLOAT32:
        return scale
    size = np.abs(np.float64(x.numpy().item()) - (0 if zero is None else zero.numpy().item()))
    step, most = scale.numpy(), np.finfo(np.float32).max
    while np.isfinite(step).all() and size * np.float64(step.item()) > most:
        step = np.nextafter(step, np.float32(0))
    return constant(np.asarray(step).reshape(scale.numpy().shape), scale.dtype)


def quantized(b: Builder, real: Value, scale: Value, zero: Value | None, dtype: DType) -> Value:
    """`real` quantized to the type of `zero`, or to `dtype` without one."""
    stored = zero.dtype if zero is not None else dtype
    return b(ops.QuantizeLinear, real, scale, zero, dtype=stored, axis=_axis(real, scale, 0))


def quantized_over_range(b: Builder, x: Value) -> tuple[Value, Value, Value]:
    """`x` as uint8 over the range of its elements and 0, with scale and zero point; an empty tensor gets scale 1.

    Source: ONNX DynamicQuantizeLinear-11; the scale of an empty range as in ONNX Runtime.
    """
    real = Term(b, x)
    low = Term(b, b(ops.Reduce, x, None, kind="min")).min(0.0)
    high = Term(b, b(ops.Reduce, x, None, kind="max")).max(0.0)
    width = high - low
    scale = width / 255.0 + (1.0 - _is_positive(width))
    zero = (0.0 - low / scale).apply(ops.Clamp, 0.0, 255.0).apply(ops.RoundNearestEven).to(DType.UINT8)
    y = b(ops.QuantizeLinear, real.value, scale.value, zero.value, dtype=DType.UINT8, axis=0)
    return y, scale.value, zero.value


def _is_positive(x: Term) -> Term:
    """1 where `x` (0 or more) is above 0, else 0: arithmetic that delegates compute, unlike comparisons and Select."""
    return ((x * 2.0**100).min(1.0) * 2.0**60).min(1.0)  # the smallest positive float32 is 2**-149


def dequantized_bias(b: Builder, bias: Value, x_scale: Value, w_scale: Value) -> Value:
    """The real values of an int32 bias in steps of `x_scale` times `w_scale`."""
    if x_scale.is_constant and w_scale.is_constant:
        scale = constant(x_scale.numpy().reshape(()) * w_scale.numpy(), x_scale.dtype)
    else:
        scale = b(ops.Mul, x_scale, w_scale)
    zero = constant(np.zeros(scale.shape, np.int32))
    return b(ops.DequantizeLinear, bias, scale, zero, axis=0)


def _axis(x: Value, scale: Value, axis: int) -> int:
    """The attribute `axis`; None for a single scale, for which it has no meaning."""
    single = scale.tensor_type.shape in ((), (1,))
    return 0 if single else axis % x.rank
