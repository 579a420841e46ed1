"""Kernels of TFLite whose result on stored integers differs from the op on real values.

The table of ops declares them (:mod:`readings`). Kernels that copy elements are not in here: their neutral ops show it
(:mod:`lift`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from onnxtfl.errors import InvalidModelError, UnsupportedError
from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.conversions import convert_quantization
from onnxtfl.ir.data import ArrayData
from onnxtfl.ir.dims import exceeds
from onnxtfl.ir.graph import Node, Value, constant
from onnxtfl.ir.quantization import Quantization, product_quantization
from onnxtfl.ir.quantized import quantization_of, scale_and_zero_point
from onnxtfl.ir.types import DType, TensorType, Type
from onnxtfl.rewriting.readings import Copies, Layers, Products, Reading, Scales, reading_of
from onnxtfl.rewriting.registry import LiftRule

_REAL = DType.FLOAT32
_SMALL = ("int8", "uint8", "int16", "int4", "uint4", "int2")
"""The element types for which most kernels read a scale."""
_LARGEST = 2.0**31
"""The limit of product of scales / result scale: kernels shift by at most 31 bits."""
_NOTHING = 1e-30
"""Values of a smaller scale are negligible, so that differences between kernels do not matter."""


def only_clamps(made: Node) -> bool:
    """Whether `made`, fused into another op, only clamps the integers of that op's result."""
    reading = _reading(made)
    return isinstance(reading, Scales) and reading.clamps


def _reading(node: Node) -> Reading:
    """Return how the kernel of `node` reads quantized tensors; neutral and custom ops compute on real values."""
    name = node.op.name_in_file
    if node.op.dialect != "tfl" or name.startswith("custom:"):
        return "real"
    reading = reading_of(name)
    if not isinstance(reading, Copies):
        return reading
    kept = {q.storage for v in node.results if (q := quantization_of(v)) is not None} == {reading.stored}
    return "copies" if kept else "real"


def check_parameters(node: Node) -> None:
    """Raise UnsupportedError if the kernel of `node` reads a scale of 0: there is none, or there are several.

    Then results are 0, or the process aborts (measured on LiteRT 2.3). InvalidModelError for an infinite scale, as in
    files of other converters.
    Source: LiteRT core/interpreter_builder.cc: only a single scale becomes TfLiteTensor.params.
    """
    for value in (*node.operands, *node.results):
        quantization = quantization_of(value)
        if quantization is not None and not np.isfinite(quantization.scales).all():
            raise InvalidModelError("the scale inf is out of range", type_=value and value.type, code="E-QUANT-001")
    reading = _reading(node)
    if _sums_integers(node, reading):
        return
    for value in node.operands:
        _check_blocks(value, reading)
    if isinstance(reading, Products) or (isinstance(reading, Scales) and reading.multiplied):
        places = (reading.x, reading.weights) if isinstance(reading, Products) else (0, 1)
        _check_product(node, [q.scales for i in places if (q := quantization_of(node.optional(i))) is not None])
    if not isinstance(reading, Scales):
        return
    for value in (*node.operands, *node.results):
        if value is not None and isinstance(value.type, TensorType):
            _check_scales_of(value.type, reading)


def _check_blocks(value: Value | None, reading: Reading) -> None:
    """Raise UnsupportedError for blockwise scales that the kernel does not read (it uses a scale of 0)."""
    quantization = quantization_of(value)
    if value is None or quantization is None or quantization.block is None:
        return
    if quantization.storage not in (reading.blocks if isinstance(reading, Products | Scales) else ()):
        message = f"TFLite's kernel reads no blockwise scales of {quantization.storage}"
        raise UnsupportedError(message, type_=value.type, code="E-QUANT-001")


def _check_scales_of(type_: TensorType, reading: Scales) -> None:
    quantization, dtype = type_.quantization, type_.dtype.value
    message = ""
    if quantization is None and dtype in _SMALL and dtype not in reading.plain:
        message = f"TFLite's kernel takes {dtype} as quantized, and this tensor has no scale"
    if quantization is not None and not quantization.per_tensor and not reading.several:
        message = f"TFLite's kernel reads one scale, and this tensor has {len(quantization.scales)}"
    if message:
        raise UnsupportedError(message, type_=type_, code="E-QUANT-001")


def check_axes(node: Node, value: Value, result: Value, copied: Iterable[Value]) -> None:
    """Raise UnsupportedError if the kernel does not support a tensor with several scales.

    `value`: the value computed for `result`. `copied`: operands whose integers the kernel moves, so that `result` has
    to declare their scales. Other kernels read a scale of 0 for such tensors.
    """
    reading, moved = _reading(node), list(copied)
    is_joined = value.producer is not None and value.producer.op is ops.Concatenate
    if is_joined:
        moved = [v for v in node.present_operands if v.is_quantized]
    if isinstance(reading, Products):
        read = [node.optional(reading.x), *node.results]
    elif isinstance(reading, Scales) and reading.rescales:
        read = [] if quantization_of(node.operand(0)) is None else [node.operand(0), *node.results]
    elif moved:
        read = [] if all(_has_scales_of(result, v, is_joined) for v in moved) else [*moved, result]
    else:
        is_known = reads_integers(node) or not (reading == "real" or isinstance(reading, Layers))
        read = [] if is_known else [*node.operands, *node.results]
    for found in read:
        quantization = quantization_of(found)
        if quantization is not None and not (quantization.per_tensor or quantization.block) and found is not None:
            message = f"TFLite's kernel reads one scale, and this tensor has {len(quantization.scales)}"
            raise UnsupportedError(message, type_=found.type, code="E-QUANT-001")


def _has_scales_of(result: Value, moved: Value, is_joined: bool) -> bool:
    """Whether `result` has the scales of `moved`, or those of a part of it along the same axis.

    `is_joined`: `moved` is a part of `result` instead.
    """
    first, second = quantization_of(result), quantization_of(moved)
    if first is None or second is None:
        return first is second
    if _pairs(first) == _pairs(second):
        return True
    whole, part = (result, moved) if is_joined else (moved, result)
    sizes, others = whole.tensor_type.shape, part.tensor_type.shape
    if sizes is None or others is None or len(sizes) != len(others):
        return False
    pairs = zip(sizes, others, strict=True)
    grows = any(a != b and not exceeds(a, b) for a, b in pairs)
    axes = {q.axis for q in (first, second) if q.axis is not None}
    longer, shorter = (_pairs(q) for q in ((first, second) if is_joined else (second, first)))
    fits = all((sizes[axis], others[axis]) == (len(longer), len(shorter)) for axis in axes)
    return fits and not grows and all(pair in longer for pair in shorter)


def _pairs(quantization: Quantization) -> list[tuple[float, int]]:
    return list(zip(quantization.scales, quantization.zero_points, strict=True))


def _check_product(node: Node, scales: Sequence[Sequence[float]]) -> None:
    """Raise UnsupportedError if the product of two `scales` overflows float32 or far exceeds the result's scale."""
    if len(scales) < 2:
        return
    with np.errstate(over="ignore", under="ignore"):
        products = np.multiply.outer(*(np.asarray(found, np.float32) for found in scales)).ravel()
    result = quantization_of(node.results[0])
    if result is not None and max(result.scales) < _NOTHING:
        return
    largest = _LARGEST * (result.scales[0] if result is not None else np.inf)
    if not (np.isfinite(products) & (products > 0) & (products < largest)).all():
        message = f"the product of the scales {scales[0][0]:g} and {scales[1][0]:g} is out of the kernel's range"
        raise UnsupportedError(message, type_=node.operand(0).type, code="E-QUANT-001")


def check_scales(node: Node) -> None:
    """Raise UnsupportedError for a scale <= 0: LiteRT's kernel sets disagree or refuse it."""
    reading = _reading(node)
    found = [(q, v) for v in (*node.present_operands, *node.results) if (q := _activation(v)) is not None]
    for quantization, value in found:
        scale = quantization.scales[0]
        if scale <= 0 and reading not in ("integers", "copies"):
            raise UnsupportedError(f"the scale {scale:g} is not positive", type_=value.type, code="E-QUANT-001")


def _activation(value: Value | None) -> Quantization | None:
    """Return the per-tensor parameters of a computed value, else None."""
    quantization = quantization_of(value)
    known = value is None or value.is_constant or quantization is None or not quantization.per_tensor
    return None if known else quantization


def reads_integers(node: Node) -> bool:
    """Whether the kernel of `node` ignores the scales, and these are not all equal."""
    reading = _reading(node)
    if reading == "copies":
        return len({q for v in (*node.operands, *node.results) if (q := quantization_of(v)) is not None}) > 1
    return reading == "integers" or _sums_integers(node, reading)


def _sums_integers(node: Node, reading: Reading) -> bool:
    """Whether the result of `node` has the sums of the products of the stored integers."""
    type_ = node.results[0].type
    return isinstance(reading, Scales) and isinstance(type_, TensorType) and type_.storage.value in reading.sums


def on_integers(b: Builder, node: Node, rule: LiftRule) -> list[Value]:
    """Apply `rule` to the stored integers of the operands of `node`; its results are the stored integers.

    ::

        %y = tfl.NEG(%x : int8 0.1:3) : int8 0.2:1    ->    %q = QuantizeLinear(%x, 0.1, 3)
                                                            %n = Neg(%q)
                                                            %y = Convert(DequantizeLinear(%n, 0.2, 1)) : int8 0.2:1
    """
    plain = Node(node.op, [v if v is None else integers_of(b, v) for v in node.operands], node.attributes)
    plain.name = node.name
    for result in node.results:
        plain.add_result(_plain(result.type))
    try:
        lifted = rule(b, plain)
    finally:
        plain.detach()
    values = [lifted] if isinstance(lifted, Value) else lifted
    return [with_quantization(b, v, quantization_of(r)) for v, r in zip(values, node.results, strict=False)]


def _plain(type_: Type | None) -> Type | None:
    if not isinstance(type_, TensorType) or type_.quantization is None:
        return type_
    return TensorType(type_.quantization.dtype, type_.shape)


def integers_of(b: Builder, value: Value) -> Value:
    """Return the stored integers of a quantized value; other values unchanged."""
    quantization = quantization_of(value)
    if quantization is None:
        return value
    if value.data is not None:
        return constant(value.data, type_=TensorType(quantization.dtype, value.tensor_type.shape))
    scale, zero = scale_and_zero_point(quantization)
    attributes = {"axis": quantization.axis or 0, "dtype": quantization.dtype}
    return b(ops.QuantizeLinear, convert_quantization(b, value, None), scale, zero, **attributes)


def with_quantization(b: Builder, integers: Value, quantization: Quantization | None) -> Value:
    """Return a tensor that stores these integers; without `quantization`, unchanged."""
    if quantization is None:
        return integers
    real = b(ops.DequantizeLinear, integers, *scale_and_zero_point(quantization), axis=quantization.axis or 0)
    return convert_quantization(b, real, quantization)


def restate_products(b: Builder, node: Node) -> None:
    """Give weights and bias of `node` the parameters that its kernel uses, if it accumulates products.

    The bias has the scale of the products; weights have zero point 0 and scales along their output features. Measured
    on LiteRT 2.3, all kernel sets that accept other parameters.
    """
    reading = _reading(node)
    _restate_hybrid(b, node, reading)
    if isinstance(reading, Layers):
        _restate_layer(b, node, reading)
    if not isinstance(reading, Products):
        return
    x, weights = (quantization_of(node.optional(i)) for i in (reading.x, reading.weights))
    if x is None or weights is None or not x.per_tensor or node.operand(reading.weights).data is None:
        return
    _check_types(node.operand(reading.weights), x, weights, reading)
    read = _read_weights(node.operand(reading.weights), weights, reading)
    if read != weights:
        _relabel(b, node, reading.weights, read)
    if len(node.operands) > reading.bias and (bias := node.optional(reading.bias)) is not None:
        storage = q.storage if (q := quantization_of(bias)) is not None else bias.dtype.value
        wanted = replace(product_quantization(x, read), storage=storage)
        if storage in ("int32", "int64") and not _alike(q, wanted):
            _relabel(b, node, reading.bias, wanted)


def _restate_hybrid(b: Builder, node: Node, reading: Reading) -> None:
    """Give quantized weights of real activations the parameters that hybrid kernels use: zero point 0.

    Weights of uint8 are read as int8 (CONV_2D and FULLY_CONNECTED; other kernels refuse them).
    """
    x = reading.x if isinstance(reading, Products) else 0
    place = reading.weights if isinstance(reading, Products | Scales) else None
    if place is None or quantization_of(node.optional(x)) is not None:
        return
    given = quantization_of(node.optional(place))
    if given is None:
        return
    weights = _along_features(node.operand(place), given, reading) if isinstance(reading, Products) else given
    if weights.dtype is DType.UINT8:
        _check_one_scale(node.operand(place), weights)
        _as_int8(node, place, replace(weights, storage="int8", zero_points=(0,)))
    elif any(weights.zero_points) or weights != given:
        _relabel(b, node, place, replace(weights, zero_points=(0,) * len(weights.scales)))


def _restate_layer(b: Builder, node: Node, reading: Layers) -> None:
    """Give the weights of a recurrent layer zero point 0, and its biases the scales of the products.

    Not for the basic LSTM (5 operands), whose kernel subtracts the zero point.
    """
    if len(node.operands) <= 5 < max(reading.weights):
        return
    for place in reading.weights:
        given = quantization_of(node.optional(place))
        if given is not None and given.dtype is DType.UINT8:
            _check_one_scale(node.operand(place), given)
            _as_int8(node, place, replace(given, storage="int8", zero_points=(0,)))
        elif given is not None and any(given.zero_points):
            _relabel(b, node, place, replace(given, zero_points=(0,) * len(given.scales)))
    if any(node.optional(place) is not None for place in reading.norms):
        return
    for place, *factors in reading.biases:
        bias, first, second = (quantization_of(node.optional(i)) for i in (place, *factors))
        if bias is None or first is None or second is None or bias.storage != "int32" or not second.per_tensor:
            continue
        wanted = replace(product_quantization(first, second), storage=bias.storage)
        if not _alike(bias, wanted):
            _relabel(b, node, place, wanted)


def _check_one_scale(value: Value, weights: Quantization) -> None:
    if value.data is None or not weights.per_tensor:
        message = "TFLite's kernel takes weights of uint8 for real activations as constants with one scale"
        raise UnsupportedError(message, type_=value.type, code="E-QUANT-001")


def _as_int8(node: Node, place: int, quantization: Quantization) -> None:
    """Reinterpret a constant uint8 operand as int8."""
    value = node.operand(place)
    assert value.data is not None
    data = ArrayData(value.data.numpy().view(np.int8), DType.INT8)
    node.set_operand(place, constant(data, type_=TensorType(value.dtype, value.tensor_type.shape, quantization)))


def _check_types(value: Value, x: Quantization, weights: Quantization, reading: Products) -> None:
    """Raise UnsupportedError for weights that the kernel would reinterpret as another type."""
    taken = {"uint8": ("uint8",), "int8": ("int8", "int4", "int2"), "int16": reading.wide}.get(x.storage)
    if taken is not None and weights.storage not in taken:
        message = f"TFLite's kernel takes weights of {' or '.join(taken)} for activations of {x.storage}"
        raise UnsupportedError(message, type_=value.type, code="E-QUANT-001")


def _read_weights(value: Value, given: Quantization, reading: Products) -> Quantization:
    if given.axis is None:
        # every kernel subtracts the zero point of uint8 weights
        return given if reading.offset or given.dtype is DType.UINT8 else replace(given, zero_points=(0,))
    return replace(_along_features(value, given, reading), zero_points=(0,) * len(given.scales))


def _along_features(value: Value, given: Quantization, reading: Products) -> Quantization:
    """Return the parameters of weights along their output feature axis, ignoring the declared axis."""
    shape = value.tensor_type.shape
    if given.axis is None or given.axis == reading.axis or given.block is not None or shape is None:
        return given
    if shape[reading.axis] != len(given.scales):
        message = f"TFLite's kernel reads a scale for each of {shape[reading.axis]} output features"
        raise UnsupportedError(message, type_=value.type, code="E-QUANT-001")
    return replace(given, axis=reading.axis)


def _alike(given: Quantization | None, wanted: Quantization) -> bool:
    """Whether the parameters are equal up to rounding, as kernels compare them."""
    if given is None or len(given.scales) != len(wanted.scales) or any(given.zero_points):
        return False
    return np.allclose(given.scales, wanted.scales, rtol=1e-3, atol=0)


def _relabel(b: Builder, node: Node, place: int, quantization: Quantization) -> None:
    """Reinterpret the integers of an operand with these parameters."""
    value = node.operand(place)
    type_ = TensorType(value.dtype if value.is_quantized else _REAL, value.tensor_type.shape, quantization)
    if value.data is not None:
        node.set_operand(place, constant(value.data, type_=type_))
    else:
        node.set_operand(place, with_quantization(b, integers_of(b, value), quantization))
