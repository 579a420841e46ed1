"""Computes in float only: values between inputs and outputs are not rounded, but saturated as by quantization.

::

    %y = Tanh(%x: int8 0.25:3) : int8 0.0078125:0    ->    %a = Convert(%x) : float32
                                                           %b = Clamp(Tanh(%a), -1.0, 0.9921875)
                                                           %y = Convert(%b) : float32 as int8 0.0078125:0

Saturation is often a part of the model: a quantizer omits a Relu6 whose bounds are those of the type. Inputs and
outputs keep their types, and so do operands and results of nodes with regions.
"""

from __future__ import annotations

import numpy as np

from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.conversions import convert_quantization, output_instead
from onnxtfl.ir.data import TensorData
from onnxtfl.ir.graph import Graph, Node, Value, constant
from onnxtfl.ir.quantization import Quantization
from onnxtfl.ir.quantized import picked_operands
from onnxtfl.ir.types import DType, TensorType
from onnxtfl.passes.quantize.fuse import clamp_bounds

_MAKER = "dequantize"
_Before = dict[Value | None, Quantization | None]


def dequantize_all(graph: Graph) -> None:
    """Replace quantized constants and results by real ones."""
    outputs, before = graph.output_set(), _Before()
    for node in list(graph.nodes):
        if node.regions:
            continue
        for i, value in enumerate(node.operands):
            if value is not None and value.is_quantized and (node.op is not ops.Convert or value.is_constant):
                node.set_operand(i, real := _real(graph, node, value))
                before[real] = value.tensor_type.quantization
        for result in node.results:
            if result.is_quantized and not (node.op is ops.Convert and result in outputs):
                _make_real(graph, node, result, before, keep=result in outputs)


def _real(graph: Graph, node: Node, value: Value) -> Value:
    """Return `value` dequantized before `node`."""
    if value.data is not None:
        data = _real_data(value.data, value.tensor_type)
        return constant(value.numpy(), value.dtype) if data is None else constant(data)
    return convert_quantization(Builder(graph, node, maker=_MAKER), value, None)


def _real_data(data: TensorData, type_: TensorType) -> TensorData | None:
    """Return weights of up to 16 bits, dequantized lazily; None for other parameters."""
    quantization = type_.quantization
    if quantization is None or quantization.dtype.bits > 16 or quantization.block is not None or not data.shape:
        return None
    if not quantization.per_tensor and len(set(quantization.zero_points)) > 1:
        return None
    axis = quantization.axis or 0
    scales = np.broadcast_to(np.asarray(quantization.scales, np.float32), (data.shape[axis],))
    return data.cast(DType.FLOAT32, -quantization.zero_points[0]).scale(np.ascontiguousarray(scales), axis)


def _make_real(graph: Graph, node: Node, result: Value, before: _Before, keep: bool) -> None:
    """Make `result` real and saturated; outputs and operands of nodes with regions are quantized again.

    `before`: the original quantizations of values; `result` is added.
    """
    type_, uses = result.tensor_type, list(result.uses)
    result.type = type_.stored_as(None)
    b = Builder(graph, node.next, cause=node, maker=_MAKER)
    sources = node.operands[node.op.selects or slice(0, 1)] if picked_operands(node) is not None else []
    inside = bool(sources) and all(before.get(v) == type_.quantization for v in sources)
    real, stored = _saturated(b, node, result, type_.quantization, inside), None
    before[real] = type_.quantization
    if keep or any(user.regions for user, _ in uses):
        stored = convert_quantization(b, real, type_.quantization)
    for user, index in uses:
        user.set_operand(index, stored if user.regions else real)
    if keep and stored is not None:
        output_instead(graph, result, stored)


def _saturated(b: Builder, node: Node, real: Value, quantization: Quantization | None, inside: bool) -> Value:
    """Clamp `real` to the bounds of `quantization`, if `node` may exceed them.

    `inside`: whether `real` has elements, or means of elements, of values in this quantization.
    """
    within = node.op.moves is not None or inside
    if quantization is None or not quantization.per_tensor or quantization.dtype.bits > 16 or within:
        return real
    (low, high), made, half = quantization.bounds, clamp_bounds(node), quantization.scales[0] / 2
    if made is not None and low - half <= made[0] and made[1] <= high + half:
        return real
    return b(ops.Clamp, real, b.scalar(low, real), b.scalar(high, real))
