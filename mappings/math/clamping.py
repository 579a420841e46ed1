"""Clamp: ONNX's Clip, TFLite's RELU_0_TO_1 and the like, STABLEHLO_CLAMP."""

from __future__ import annotations

import math

import numpy as np

from onnxtfl.build.rows import row
from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.graph import Node, Value, constant
from onnxtfl.ir.matching import uniform_scalar
from onnxtfl.ir.types import DType
from onnxtfl.rewriting.registry import Form, append_operand, decompose, lift_tfl, lower_onnx, lower_tfl, upgrade

row(ops.Clamp, onnx="Clip", since=(11, 12, 13), lowers=False)


@lift_tfl("STABLEHLO_CLAMP")
def _stablehlo_clamp(b: Builder, node: Node) -> Value:
    """The operands are min, operand, max; bounds are scalars or have the shape of the operand."""
    low, x, high = (node.operand(i) for i in range(3))
    return b(ops.Clamp, x, low, high)


@upgrade("Clip", since=(1, 6))
def _clip_bounds(b: Builder, node: Node) -> None:
    """Return the bounds as operands; None for the defaults, the largest finite values."""
    x = node.operand(0)
    for name in ("min", "max"):
        bound = node.attributes.pop(name, None)
        unbounded = bound is None or abs(bound) >= np.finfo(np.float32).max
        append_operand(node, None if unbounded else b.scalar(bound, x))


_CLAMPS = {(0.0, math.inf): "RELU", (0.0, 6.0): "RELU6", (-1.0, 1.0): "RELU_N1_TO_1", (0.0, 1.0): "RELU_0_TO_1"}


@lower_tfl(ops.Clamp)
def _clamp_tfl(node: Node) -> Form | None:
    name = _CLAMPS.get((_bound(node, 1, -math.inf), _bound(node, 2, math.inf)))
    return Form(name, (node.operand(0),)) if name else None


def _bound(node: Node, index: int, absent: float) -> float:
    """Return the bound as a float, NaN if it is not constant."""
    value = node.optional(index)
    if value is None:
        return absent
    number = uniform_scalar(node.operand(0), value)
    return math.nan if number is None else number


@lower_onnx(ops.Clamp)
def _clamp_onnx(node: Node, opset: int) -> Form | None:
    """Clip with scalar bounds. ONNX Runtime expands that of bfloat16 to comparisons, for which it has no kernel."""
    if node.operand(0).dtype is DType.BFLOAT16:
        return None
    bounds = [_scalar(node, node.optional(i)) for i in (1, 2)]
    if any(v is not None and v.rank for v in bounds):
        return None
    return Form("Clip", tuple(node.op.trimmed([node.operand(0), *bounds])))


def _scalar(node: Node, bound: Value | None) -> Value | None:
    if bound is None or bound.data is None or bound.data.size != 1 or bound.rank > node.operand(0).rank:
        return bound
    return constant(bound.data.reshape(())) if bound.rank else bound


@decompose(ops.Clamp)
@decompose(ops.Clamp, "xnnpack")
def _clamp(b: Builder, node: Node) -> Value:
    result, low, high = node.operand(0), node.optional(1), node.optional(2)
    if low is not None:
        result = b(ops.Max, result, low)
    return result if high is None else b(ops.Min, result, high)
