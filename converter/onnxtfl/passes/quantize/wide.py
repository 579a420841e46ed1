"""Quantization to 16 bits that TFLite's kernels do not have: uint16, and int16 with a zero point.

Both are what onnxruntime.quantization writes for QUInt16 and QInt16, unless it is told to quantize symmetrically.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.formula import Term
from onnxtfl.ir.graph import Graph, Node, constant
from onnxtfl.ir.history import Remark
from onnxtfl.ir.quantization import Quantization, limits
from onnxtfl.ir.types import DType

_HALF = 1 << 15
_MAKER = "quantized types"


def as_int16(quantization: Quantization) -> Quantization:
    """The same real values stored as int16, with zero points 32768 less; int16 as it is."""
    if quantization.dtype is not DType.UINT16:
        return quantization
    return replace(quantization, storage="int16", zero_points=tuple(z - _HALF for z in quantization.zero_points))


def store_as_int16(graph: Graph, node: Node, stored: Quantization) -> None:
    """Store the result of the QuantizeLinear `node`, which its users dequantize, as `stored`."""
    b, scale = Builder(graph, node, maker=_MAKER), node.operand(1)
    zero = constant(np.asarray(stored.zero_points, np.int16).reshape([int(d) for d in scale.shape]))
    made = b(ops.QuantizeLinear, node.operand(0), scale, zero, **{**node.attributes, "dtype": DType.INT16})
    for user in node.result.users():
        at = Builder(graph, user, maker=_MAKER)
        graph.replace(user, [at(ops.DequantizeLinear, made, scale, zero, **user.attributes)])
    graph.remove(node)


def round_in_float(graph: Graph, node: Node, quantization: Quantization, title: str, *, nan: bool) -> None:
    """Compute the real values that the QuantizeLinear `node` stores, and that its users dequantize.

    ::

        DequantizeLinear(QuantizeLinear(%x)) : int16 0.5:3
        ->  Mul(Sub(Clamp(Add(RoundNearestEven(Div(%x, 0.5)), 3), -32768, 32767), 3), 0.5)

    The zero point is added and subtracted, so that a negative zero becomes a positive one. `nan`: whether elements may
    be NaN, which is stored as the lowest integer.
    """
    b, rank = Builder(graph, node, maker=_MAKER), node.operand(0).rank
    parameters = (np.asarray(numbers, np.float32) for numbers in (quantization.scales, quantization.zero_points))
    scales, zeros = (constant(quantization.along(numbers, rank)) for numbers in parameters)
    low, high = limits(quantization.dtype)
    steps = Term(b, node.operand(0)).apply(ops.Div, scales)
    steps = steps.is_nan().choose(steps.constant(float(2 * low - high)), steps) if nan else steps
    rounded = steps.apply(ops.RoundNearestEven)
    assert rounded.value.producer is not None
    text = f"{title} has no {quantization.storage} with this zero point: quantize symmetrically (ActivationSymmetric)"
    rounded.value.producer.remarks += (Remark("island", ops.QuantizeLinear.name, text),)
    has_zero = any(quantization.zero_points)
    moved = rounded.apply(ops.Add, zeros) if has_zero else rounded
    kept = moved.clamp(float(low), float(high))
    real = (kept.apply(ops.Sub, zeros) if has_zero else kept).apply(ops.Mul, scales).value
    for user in node.result.users():
        graph.replace(user, [real])
    graph.remove(node)
