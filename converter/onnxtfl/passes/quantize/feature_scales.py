"""Activations with a scale for each feature, between a convolution and a depthwise one, get one scale.

::

    %c = Relu(Conv(%x, %w, %b))                          %c = Relu(Conv(%x, %w * f, %b * f))         f = s / %s
    %q = QuantizeLinear(%c, %s, 3) {axis = 1}      ->    %q = QuantizeLinear(%c, s, 3)
    %y = Conv(DequantizeLinear(%q, %s, 3), %k)           %y = Conv(DequantizeLinear(%q, s, 3), %k / f)

TFLite has no kernel for activations with several scales. The stored integers stay the same, since only the scales of
quantized weights change. NNCF quantizes the inputs of depthwise convolutions like this unless it is told not to.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.conversions import convert_quantization
from onnxtfl.ir.data import Array
from onnxtfl.ir.graph import Graph, Node, Value, constant
from onnxtfl.ir.matching import made_by, single_use
from onnxtfl.ir.op import Op
from onnxtfl.ir.quantization import Quantization, limits
from onnxtfl.ir.quantized import quantization_of
from onnxtfl.ir.types import DType
from onnxtfl.passes.quantize.biases import dequantized_source
from onnxtfl.passes.quantize.fuse import clamp_bounds
from onnxtfl.passes.quantize.types import parameters_of
from onnxtfl.rewriting.patterns import Patterns

FEATURE_SCALES = Patterns()


@FEATURE_SCALES.on(ops.Conv)
def one_scale(b: Builder, node: Node) -> Value | None:
    """Quantize the operand of a depthwise convolution with its largest scale; the weights before and after it make up
    for that.
    """
    read = _only_read(node.operand(0), b.graph, ops.DequantizeLinear)
    stored = None if read is None else _only_read(read.operand(0), b.graph, ops.QuantizeLinear)
    quantization = None if stored is None else _parameters(stored)
    if read is None or stored is None or quantization is None or _parameters(read) != quantization:
        return None
    if not _is_by_feature(node, quantization):
        return None
    scales = np.asarray(quantization.scales, np.float32)
    scale = scales.max()
    x = _scaled_source(b, stored.operand(0), quantization, scale / scales)
    each = np.repeat(scales / scale, node.operand(1).shape[_axis(node)] // len(scales))
    weights = _scaled(b, node.operand(1), each, _axis(node))
    if x is None or weights is None:
        return None
    one = replace(quantization, scales=(float(scale),), zero_points=quantization.zero_points[:1], axis=None)
    integers = convert_quantization(b, x, one)
    integers.origins = stored.result.origins
    return b.remade(node, convert_quantization(b, integers, None), weights, *node.operands[2:])[0]


def _only_read(value: Value, graph: Graph, op: type[Op]) -> Node | None:
    """The node of `op`, or the conversion to or from a quantized type, that computes `value`, which is read once."""
    return made_by(value, op, ops.Convert, quantized=True) if single_use(value, graph) else None


def _parameters(node: Node) -> Quantization | None:
    """The parameters with which `node` quantizes or dequantizes."""
    if node.op is ops.Convert:
        return quantization_of(node.result) or quantization_of(node.operand(0))
    return parameters_of(node)


def _is_by_feature(node: Node, quantization: Quantization) -> bool:
    """Whether `node` is a depthwise convolution whose input features have a scale each, and the same zero point."""
    axis, count = node.attr("input_feature_dimension"), node.attr("feature_group_count")
    is_along = quantization.axis == axis and quantization.block is None and len(quantization.scales) == count
    return is_along and isinstance(node.operand(1).shape[_axis(node)], int) and len({*quantization.zero_points}) == 1


def _axis(node: Node) -> int:
    """The axis of the weights that has the output features."""
    return int(node.attr("kernel_output_feature_dimension"))


def _scaled_source(b: Builder, value: Value, quantization: Quantization, factors: Array) -> Value | None:
    """`value`, which is quantized with a scale for each feature, times `factors`; None if it is no convolution with
    constant weights, maybe clamped to what the type stores.
    """
    clamp, bounds = made_by(value), (-np.inf, np.inf)
    if clamp is not None and single_use(value, b.graph) and (found := clamp_bounds(clamp)) is not None:
        value, bounds = clamp.operand(0), found
    conv = made_by(value, ops.Conv)
    if conv is None or not single_use(value, b.graph) or conv.attr("output_feature_dimension") != quantization.axis:
        return None
    ends = limits(quantization.dtype)
    saturates = [np.all(_stored(bound, quantization) == end) for bound, end in zip(bounds, ends, strict=True)]
    if not saturates[1] or not (saturates[0] or bounds[0] == 0):
        return None
    weights, bias = _scaled(b, conv.operand(1), factors, _axis(conv)), conv.optional(2)
    scaled = None if bias is None else _scaled(b, bias, factors, 0)
    if weights is None or (scaled is None) is not (bias is None):
        return None
    made = b.remade(conv, conv.operand(0), weights, *([] if scaled is None else [scaled]))[0]
    return made if saturates[0] else b(ops.Relu, made)


def _stored(number: float, quantization: Quantization) -> Array:
    """The integers that store `number`, for each scale."""
    steps = np.rint(number / np.asarray(quantization.scales)) + quantization.zero_points[0]
    stored: Array = np.clip(steps, *limits(quantization.dtype))
    return stored


def _scaled(b: Builder, value: Value, factors: Array, axis: int) -> Value | None:
    """A float constant times `factors` along `axis`; a dequantized one has other scales. None for other values."""
    shape = [-1 if i == axis else 1 for i in range(value.rank)]
    if value.is_constant:
        is_real = value.dtype is DType.FLOAT32 and not value.is_quantized
        return constant(value.numpy() * factors.reshape(shape)) if is_real else None
    source = dequantized_source(value)
    quantization = quantization_of(source)
    if source is None or quantization is None or source.data is None or quantization.block is not None:
        return None
    if quantization.axis not in (None, axis):
        return None
    scales = np.asarray(quantization.scales, np.float32) * factors
    zeros = np.broadcast_to(quantization.zero_points, scales.shape)
    changed = replace(quantization, scales=tuple(scales.tolist()), zero_points=tuple(zeros.tolist()), axis=axis)
    return convert_quantization(b, constant(source.data, type_=source.tensor_type.stored_as(changed)), None)
