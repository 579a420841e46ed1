"""Float constants of ops between dequantized operands and quantized results, in the form of integer kernels.

::

    BatchNormInference(%x, vectors)    ->    Conv(%x, weights : int8, bias)     depthwise, window of size 1
    HardSigmoid(%x)                    ->    Clamp(Conv(%x, weights : int8, bias), 0, 1)
    PRelu(%x, slope)                   ->    PRelu(%x, slope : int8)
    Neg(%x)                            ->    Mul(%x, -1 : int8)
    Div(%x, 4)                         ->    Mul(%x, 0.25 : int8)
    Sub(offset, %x)                    ->    Sub(offset : int8, %x)

Weights 127 and -127 with a scale per feature represent the factors of the normalization exactly, and the bias is
rounded to 1/127 of a factor's step. Slopes and operands are rounded to 8 bits if this changes results by less than half
a step.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.conversions import quantization_read
from onnxtfl.ir.data import Array, ArrayData
from onnxtfl.ir.dims import is_static
from onnxtfl.ir.graph import Graph, Node, Value, constant
from onnxtfl.ir.matching import SMALL, real_constant
from onnxtfl.ir.quantization import UINT8_OFFSET, Quantization, dequantize, quantize
from onnxtfl.ir.quantized import quantization_of
from onnxtfl.ir.reshape import reshape, with_unit_axis
from onnxtfl.ir.types import DType, TensorType
from onnxtfl.passes.quantize.fuse import clamp_bounds, is_stored, quantize_early
from onnxtfl.rewriting.patterns import Patterns

INTEGER_CONSTANTS = Patterns()
STORED_CLAMPS = Patterns()
"""Applied after moves and clamps on quantized types are fused."""
_MOST = 127
"""The largest magnitude of weights: kernels refuse -128."""
_LARGEST_BIAS = 1 << 30
_BITS = 8
"""The widest activations with kernels of PRELU, MINIMUM and RELU_0_TO_1."""
_ROUNDING = 0.45
"""The most that rounded slopes may change results, in steps of the result."""


def use_integer_constants(graph: Graph) -> None:
    """Quantize real constants of ops between dequantized operands and (clamped or moved) quantized results."""
    quantize_early(graph)
    INTEGER_CONSTANTS.apply(graph)


@INTEGER_CONSTANTS.on(ops.BatchNormInference)
def normalization_as_conv(b: Builder, node: Node) -> Value | None:
    """Replace a factor and an offset per feature by a depthwise convolution with windows of size 1.

    The operand has rank 2 (then with a unit axis), 3 or 4; the new kernel [features, 1, 1...]. Source: LiteRT
    kernels/depthwise_conv.cc.
    """
    x, axis = node.operand(0), node.attr("feature_index")
    wanted = _quantized_to(b.graph, node.result)
    vectors = [real_constant(v) for v in node.operands[1:] if v is not None]
    rank = x.tensor_type.rank
    if wanted is None or rank not in (2, 3, 4) or not all(v.is_constant for v in vectors):
        return None
    scale, bias, mean, variance = (v.numpy().astype(np.float64) for v in vectors)
    factor = scale / np.sqrt(variance + node.attr("epsilon"))
    offset = bias - mean * factor
    return _scaled(b, node, axis, factor, offset)


@INTEGER_CONSTANTS.on(ops.HardSigmoid)
def hard_sigmoid_as_conv(b: Builder, node: Node) -> Value | None:
    """Replace slope * x + offset by a depthwise convolution, clamped to [0, 1] in stored integers.

    The second axis of an operand of rank 2, 3 or 4 has the features.
    """
    x, wanted = node.operand(0), _quantized_to(b.graph, node.result)
    if wanted is None or not (is_stored(0.0, wanted) and is_stored(1.0, wanted)):
        return None
    if x.tensor_type.rank not in (2, 3, 4) or not is_static(x.shape[1:2]):
        return None
    slope, offset = (np.full(x.size(1), node.attr(name), np.float64) for name in ("slope", "offset"))
    made = _scaled(b, node, 1, slope, offset)
    return None if made is None else b(ops.Clamp, made, b.scalar(0.0, made), b.scalar(1.0, made))


@INTEGER_CONSTANTS.on(ops.Neg)
def negation_as_product(b: Builder, node: Node) -> Value | None:
    """Neg(%x) -> Mul(%x, -1), where -1 is stored exactly."""
    x = node.operand(0)
    if _dequantized_from(x) is None or _quantized_to(b.graph, node.result) is None:
        return None
    return b(ops.Mul, x, b.scalar(-1.0, x))


@INTEGER_CONSTANTS.on(ops.Div)
def division_as_product(b: Builder, node: Node) -> Value | None:
    """Div(%x, c) -> Mul(%x, 1 / c) for a constant c of one element."""
    x, divisor = node.operands
    if x is None or divisor is None or divisor.data is None or divisor.data.size != 1:
        return None
    if _dequantized_from(x) is None or _quantized_to(b.graph, node.result) is None:
        return None
    factor = 1 / divisor.numpy().astype(np.float64)
    if divisor.is_quantized or not np.all(np.isfinite(factor)) or divisor.rank > x.rank:
        return None
    return b(ops.Mul, x, constant(factor.astype(np.float32)))


@INTEGER_CONSTANTS.on(ops.Mul, ops.Add, ops.Sub)
def quantized_operand(b: Builder, node: Node) -> Value | None:
    """Round a real constant to 8 bits, only if results change by less than half a step."""
    place = next((i for i in range(2) if node.operand(i).is_constant), 0)
    value, before = node.operand(place), _dequantized_from(node.operand(1 - place))
    wanted = _quantized_to(b.graph, node.result)
    if not value.is_constant or value.is_quantized or before is None or wanted is None or before.dtype.bits > _BITS:
        return None
    real, largest = value.numpy(), max(np.abs(before.bounds)) if node.op is ops.Mul else 1.0
    if real.size > SMALL or not np.all(np.isfinite(real)) or not np.any(real):
        return None
    quantization = _nearest(real, before.storage)
    stored = quantize(real, quantization)
    if np.max(np.abs(dequantize(stored, quantization) - real)) * largest > _ROUNDING * wanted.scales[0]:
        return None
    small = constant(ArrayData(stored, quantization.dtype), type_=value.tensor_type.stored_as(quantization))
    operands = list(node.operands)
    operands[place] = b(ops.Convert, small, dtype=node.result.dtype)
    return b(node.op, *operands)


def _nearest(real: Array, storage: str) -> Quantization:
    """A quantization of constants as 8 bits: exact for multiples of the smallest one, else over their range."""
    low, high = min(0.0, float(real.min())), max(0.0, float(real.max()))
    least = float(np.min(np.abs(real[real != 0])))
    bounds = np.iinfo(storage)
    steps = bounds.max - bounds.min
    whole = (high - low) / least <= steps and np.array_equal(np.round(real / least) * np.float32(least), real)
    scale = float(np.float32(least if whole else (high - low) / steps))
    zero = round(bounds.min - low / scale)
    return Quantization(storage, (scale,), (zero,))


def _scaled(b: Builder, node: Node, axis: int, factor: Array, offset: Array) -> Value | None:
    """Return operand * `factor` + `offset` (vectors along `axis`) as a depthwise convolution."""
    x = node.operand(0)
    before, rank = _dequantized_from(x), x.rank
    weights = _weights(factor, before) if before is not None else None
    if before is None or weights is None:
        return None
    if np.any(np.abs(offset) > _LARGEST_BIAS * before.scales[0] * np.asarray(weights[1].scales)):
        return None
    if rank == 2:
        x = with_unit_axis(b, x, 2)
    kernel = _shaped(weights, (len(factor), 1, *(1,) * (x.rank - 2)))
    weight = b(ops.Convert, kernel, dtype=x.dtype)
    made = b(ops.Conv, x, weight, offset.astype(np.float32), **_of_one_element(x.rank, axis, len(factor)))
    return reshape(b, made, node.result.shape) if rank == 2 else made


def _weights(factor: Array, x: Quantization) -> tuple[Array, Quantization] | None:
    """Return 8-bit weights equal to `factor`, a vector along axis 0; None if a scale is not a normal float."""
    scales = np.where(factor == 0, 1.0, np.abs(factor) / _MOST).astype(np.float32)
    steps = scales * np.float32(x.scales[0])
    if not (np.all(np.isfinite(steps)) and np.all(steps >= np.finfo(np.float32).tiny)):
        return None
    stored = (np.sign(factor) * _MOST).astype(np.int8)
    return stored, Quantization("int8", tuple(map(float, scales)), (0,) * scales.size, 0)


def _shaped(weights: tuple[Array, Quantization], shape: tuple[int, ...]) -> Value:
    """Return a constant of `shape` with the stored integers and quantization `weights`."""
    stored, quantization = weights
    return constant(
        ArrayData(stored.reshape(shape), quantization.dtype), type_=TensorType(DType.FLOAT32, shape, quantization)
    )


def _of_one_element(rank: int, axis: int, features: int) -> dict[str, Any]:
    """Return the attributes of a depthwise Conv with windows of size 1 on a tensor of `rank`, features along `axis`."""
    spatial = tuple(i for i in range(1, rank) if i != axis)
    ones = (1,) * len(spatial)
    return {
        "feature_group_count": features,
        "input_feature_dimension": axis,
        "output_feature_dimension": axis,
        "input_spatial_dimensions": spatial,
        "output_spatial_dimensions": spatial,
        "kernel_spatial_dimensions": tuple(range(2, rank)),
        "window_strides": ones,
        "rhs_dilation": ones,
        "padding": (0,) * (2 * len(ones)),
    }


@INTEGER_CONSTANTS.on(ops.PRelu)
def quantized_slopes(b: Builder, node: Node) -> Value | None:
    """Round real slopes to 8 bits with one scale.

    Only if results change by less than half a step: by negative element * slope error, unless the result saturates.
    Source: LiteRT kernels/activations.cc (PreluPrepare).
    """
    x, slope = node.operand(0), node.operand(1)
    before, wanted = _dequantized_from(x), _quantized_to(b.graph, node.result)
    if before is None or wanted is None or slope.data is None or slope.is_quantized or before.dtype.bits > _BITS:
        return None
    real = slope.numpy()
    if real.size > SMALL or not np.all(np.isfinite(real)) or not np.any(real):
        return None
    zero = UINT8_OFFSET if before.storage == "uint8" else 0
    quantization = Quantization(before.storage, (float(np.float32(np.abs(real).max() / _MOST)),), (zero,))
    stored = quantize(real, quantization)
    with np.errstate(divide="ignore"):
        lowest = np.minimum(-before.bounds[0], max(np.abs(wanted.bounds)) / np.abs(real))
    if np.max(np.abs(dequantize(stored, quantization) - real) * lowest) > _ROUNDING * wanted.scales[0]:
        return None
    small = constant(ArrayData(stored, quantization.dtype), type_=slope.tensor_type.stored_as(quantization))
    return b(ops.PRelu, x, b(ops.Convert, small, dtype=x.dtype))


@STORED_CLAMPS.on(ops.Relu, ops.Relu6, ops.Clamp)
def clamp_stored(b: Builder, node: Node) -> Value | None:
    """Clamp stored integers before dequantization, if each bound is representable or outside of the range.

    ::

        Clamp(Convert(%q: int8 0.0625:-8) : float32, 0, 1)    ->    Convert(Clamp(%q, 0, 1) : int8 0.0625:-8)
    """
    x, bounds = node.operand(0), clamp_bounds(node)
    quantization = _dequantized_from(x)
    if bounds is None or quantization is None or quantization.dtype.bits > _BITS or x.producer is None:
        return None
    low, high = quantization.bounds
    beyond = (bounds[0] <= low, bounds[1] >= high)
    if not all(outside or quantization.stores(v) for v, outside in zip(bounds, beyond, strict=True)):
        return None
    source = x.producer.operand(0)
    clamped = b(node.op, source, *node.operands[1:], **node.attributes)
    clamped.type = source.type
    return b(ops.Convert, clamped, dtype=x.dtype)


def _dequantized_from(value: Value) -> Quantization | None:
    """Return the parameters from which `value` is dequantized; None if it is not, or has several scales."""
    node = value.producer
    if node is None or node.op is not ops.Convert or value.is_quantized:
        return None
    quantization = quantization_of(node.operand(0))
    return quantization if quantization is not None and quantization.per_tensor else None


def _quantized_to(graph: Graph, value: Value) -> Quantization | None:
    """Return the parameters with which all users quantize `value`, else None."""
    quantization = quantization_read(graph, value)
    return quantization if quantization is not None and quantization.per_tensor else None


@STORED_CLAMPS.on(ops.Add, quantized=True)
def without_small_addend(b: Builder, node: Node) -> Value | None:
    """Leave out an addend of less than half a step, like the epsilon of a normalization: each step stays the same."""
    for x, addend in ((node.operand(0), node.operand(1)), (node.operand(1), node.operand(0))):
        kept = quantization_of(x)
        if kept is None or not kept.per_tensor or x.type != node.result.type or not addend.is_constant:
            continue
        numbers = real_constant(addend).numpy() if addend.data is not None and addend.data.size <= SMALL else None
        if numbers is not None and np.abs(numbers).max(initial=0) < _ROUNDING * kept.scales[0]:
            return x
    return None
