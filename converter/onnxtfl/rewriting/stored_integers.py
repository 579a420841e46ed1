"""What TFLite's kernels compute on the integers of quantized tensors, where that is not the op on real values.

Mappings declare it with :func:`onnxtfl.rewriting.registry.kernels_read`. Not in here: kernels that copy elements of
one operand or several, which are known by the neutral ops of their lifting (:mod:`lift`).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from onnxtfl.errors import UnsupportedError
from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.conversions import converted
from onnxtfl.ir.data import ArrayData
from onnxtfl.ir.graph import Node, Value, constant
from onnxtfl.ir.quantization import Quantization, product_quantization
from onnxtfl.ir.quantized import quantization_of
from onnxtfl.ir.types import DType, TensorType, Type
from onnxtfl.rewriting.registry import LiftRule, Products, rules

_REAL = DType.FLOAT32


def clamps(made: Node) -> bool:
    """Whether `made`, fused into another op, only clamps the integers of that op's result."""
    return rules().readings.get(made.op.name.partition(".")[2]) == "clamps"


def check_scales(node: Node) -> None:
    """Raise UnsupportedError for a scale that is not positive: LiteRT's kernel sets differ, or refuse it."""
    reading = rules().readings.get(node.op.name.partition(".")[2])
    values = [v for v in (*node.operands, *node.results) if v is not None]
    found = [(q, v) for v in values if (q := _activation(v)) is not None]
    for quantization, value in found:
        scale = quantization.scales[0]
        if scale <= 0 and reading not in ("integers", "copies"):
            raise UnsupportedError(f"the scale {scale:g} is not positive", type_=value.type, code="E-QUANT-001")


def _activation(value: Value | None) -> Quantization | None:
    """The per-tensor parameters of a value that is not constant."""
    quantization = quantization_of(value)
    known = value is None or value.is_constant or quantization is None or not quantization.per_tensor
    return None if known else quantization


def reads_integers(node: Node) -> bool:
    """Whether the kernel of `node` computes on the integers whatever the scales are, and the scales are not all one."""
    reading = rules().readings.get(node.op.name.partition(".")[2])
    if reading == "copies":
        return len({q for v in (*node.operands, *node.results) if (q := quantization_of(v)) is not None}) > 1
    return reading == "integers"


def on_integers(b: Builder, node: Node, rule: LiftRule) -> list[Value]:
    """The results of `rule` on the integers of the operands of `node`, which then are what the results store.

    ::

        %y = tfl.NEG(%x : int8 0.1:3) : int8 0.2:1    ->    %q = QuantizeLinear(%x, 0.1, 3)
                                                            %n = Neg(%q)
                                                            %y = Convert(DequantizeLinear(%n, 0.2, 1)) : int8 0.2:1
    """
    plain = Node(node.op, [v if v is None else _stored(b, v) for v in node.operands], node.attributes)
    plain.name = node.name
    for result in node.results:
        plain.add_result(_plain(result.type))
    try:
        lifted = rule(b, plain)
    finally:
        for i in range(len(plain.operands)):
            plain.set_operand(i, None)
    values = [lifted] if isinstance(lifted, Value) else lifted
    return [labeled(b, v, quantization_of(r)) for v, r in zip(values, node.results, strict=False)]


def _plain(type_: Type | None) -> Type | None:
    if not isinstance(type_, TensorType) or type_.quantization is None:
        return type_
    return TensorType(type_.quantization.dtype, type_.shape)


def _stored(b: Builder, value: Value) -> Value:
    """The integers of a quantized value; other values as they are."""
    quantization = quantization_of(value)
    if quantization is None:
        return value
    if value.data is not None:
        return constant(value.data, type_=TensorType(quantization.dtype, value.tensor_type.shape))
    scale, zero = _parameters(quantization)
    attributes = {"axis": quantization.axis or 0, "dtype": quantization.dtype}
    return b(ops.QuantizeLinear, converted(b, value, None), scale, zero, **attributes)


def labeled(b: Builder, stored: Value, quantization: Quantization | None) -> Value:
    """A tensor that stores these integers; other values as they are."""
    if quantization is None:
        return stored
    real = b(ops.DequantizeLinear, stored, *_parameters(quantization), axis=quantization.axis or 0)
    return converted(b, real, quantization)


def _parameters(quantization: Quantization) -> tuple[Value, Value]:
    """Scale and zero point as constants, of rank 0 for one scale."""
    shape: tuple[int, ...] = () if quantization.per_tensor else (len(quantization.scales),)
    zeros = np.asarray(quantization.zero_points, quantization.dtype.numpy).reshape(shape)
    scale = constant(np.asarray(quantization.scales, np.float32).reshape(shape))
    return scale, constant(ArrayData(zeros, quantization.dtype))


def restate_products(b: Builder, node: Node) -> None:
    """Let weights and bias of `node` have the parameters that its kernel reads, if it adds up products.

    The bias is in units of the products, whatever its scale and zero point; weights have the zero point 0 and their
    scales along their output features. Measured on LiteRT 2.3, all kernel sets that accept other parameters.
    """
    reading = rules().readings.get(node.op.name.partition(".")[2])
    if not isinstance(reading, Products):
        return
    x, weights = (quantization_of(node.optional(i)) for i in (reading.x, reading.weights))
    if x is None or weights is None or not x.per_tensor or node.operand(reading.weights).data is None:
        return
    read = _read_weights(node.operand(reading.weights), weights, reading)
    if read != weights:
        _relabel(b, node, reading.weights, read)
    if len(node.operands) > reading.bias and (bias := node.optional(reading.bias)) is not None:
        storage = q.storage if (q := quantization_of(bias)) is not None else bias.dtype.value
        wanted = replace(product_quantization(x, read), storage=storage)
        if storage in ("int32", "int64") and not _alike(q, wanted):
            _relabel(b, node, reading.bias, wanted)


def _read_weights(value: Value, given: Quantization, reading: Products) -> Quantization:
    axis, shape = given.axis, value.tensor_type.shape
    if axis is None:
        # weights of uint8 have their zero point in every kernel
        return given if reading.offset or given.dtype is DType.UINT8 else replace(given, zero_points=(0,))
    if shape is not None and axis != reading.axis and shape[reading.axis] == len(given.scales):
        axis = reading.axis
    return replace(given, axis=axis, zero_points=(0,) * len(given.scales))


def _alike(given: Quantization | None, wanted: Quantization) -> bool:
    """Whether the parameters are the same but for rounding, as kernels compare them."""
    if given is None or len(given.scales) != len(wanted.scales) or any(given.zero_points):
        return False
    return np.allclose(given.scales, wanted.scales, rtol=1e-3, atol=0)


def _relabel(b: Builder, node: Node, place: int, quantization: Quantization) -> None:
    """Let an operand have the same integers and these parameters."""
    value = node.operand(place)
    type_ = TensorType(value.dtype if value.is_quantized else _REAL, value.tensor_type.shape, quantization)
    if value.data is not None:
        node.set_operand(place, constant(value.data, type_=type_))
    else:
        node.set_operand(place, labeled(b, _stored(b, value), quantization))
