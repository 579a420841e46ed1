"""QuantizeLinear and DequantizeLinear; formulas for them where TFLite has no form."""

from __future__ import annotations

import numpy as np

from onnxtfl.rules import *


@lift_tfl("FAKE_QUANT")
def _fake_quant(b: Builder, node: Node) -> Value:
    """What quantizing and dequantizing leaves. Source: LiteRT kernels/internal/quantization_util.cc."""
    x, options = Term(b, node.operand(0)), node.attributes
    low, high = np.float32(options.get("min", 0.0)), np.float32(options.get("max", 0.0))
    first = np.float32(1 if options.get("narrow_range", False) else 0)
    last = np.float32((1 << options.get("num_bits", 0)) - 1)
    scale = (high - low) / (last - first)
    zero = np.clip(np.floor(first - low / scale + np.float32(0.5)), first, last)
    lowest, highest = float((first - zero) * scale), float((last - zero) * scale)
    steps = (x.max(lowest).min(highest) - lowest) * float(np.float32(1) / scale)
    return ((steps + 0.5).floor() * float(scale) + lowest).value


_SINCE = (10, 13, 19, 21, 23, 24, 25, 28)


@lift_onnx("QuantizeLinear", since=_SINCE)
def _quantize(b: Builder, node: Node) -> Value:
    zero, number = node.optional(2), node.attributes.get("output_dtype", 0)
    dtype = zero.dtype if zero is not None else dtype_from(number) if number else DType.UINT8
    get = node.attributes.get
    return b(
        ops.QuantizeLinear,
        node.operand(0),
        node.operand(1),
        zero,
        dtype=dtype,
        axis=_axis(node),
        block_size=get("block_size", 0),
        saturate=bool(get("saturate", 1)),
    )


@lift_onnx("DequantizeLinear", since=_SINCE)
def _dequantize(b: Builder, node: Node) -> Value:
    number = node.attributes.get("output_dtype", 0)
    return b(
        ops.DequantizeLinear,
        node.operand(0),
        node.operand(1),
        node.optional(2),
        dtype=dtype_from(number) if number else None,
        axis=_axis(node),
        block_size=node.attributes.get("block_size", 0),
    )


def _axis(node: Node) -> int:
    """Means nothing, and may be anything, where there is one scale."""
    scale, rank = node.operand(1).tensor_type, node.operand(0).tensor_type.rank
    axis = int(node.attributes.get("axis", 1))
    if not node.attributes.get("block_size", 0) and scale.shape in ((), (1,)):
        return 0
    return axis if rank is None else normalize_axis(axis, rank)


@lift_onnx("DynamicQuantizeLinear", since=(11,))
def _dynamic(b: Builder, node: Node) -> list[Value]:
    """To uint8, over the range of the numbers and 0; a range of nothing has the scale 1, as in ONNX Runtime."""
    x = Term(b, node.operand(0))
    low = Term(b, b(ops.Reduce, x.value, None, kind="min")).min(0.0)
    high = Term(b, b(ops.Reduce, x.value, None, kind="max")).max(0.0)
    width = high - low
    scale = width.equals(0.0).choose(width.constant(1.0), width / 255.0)
    zero = (0.0 - low / scale).apply(ops.Clamp, 0.0, 255.0).apply(ops.RoundNearestEven).to(DType.UINT8)
    y = b(ops.QuantizeLinear, x.value, scale.value, zero.value, dtype=DType.UINT8, axis=0)
    return [y, scale.value, zero.value]


@lift_tfl("DEQUANTIZE", quantized=True)
def _dequantize_tfl(b: Builder, node: Node) -> Value:
    """Of float16: a conversion. Of constants: by their parameters."""
    x = node.operand(0)
    quantization = x.tensor_type.quantization
    if quantization is None:
        return b(ops.Convert, x, dtype=node.result.dtype)
    if x.data is None or quantization.block is not None:
        raise UnsupportedError("quantized tensors are not converted yet", type_=x.type)
    scales = np.asarray(quantization.scales, np.float32)
    zeros = np.asarray(quantization.zero_points).astype(x.data.dtype.numpy)
    axis = quantization.axis or 0
    if quantization.per_tensor:
        scales, zeros = scales.reshape(()), zeros.reshape(())
    return b(ops.DequantizeLinear, constant(x.data), scales, zeros, axis=axis)


# --- into the core ----------------------------------------------------------------------------------------------------


def _spread(b: Builder, parameter: Value, node: Node) -> Term:
    """Scale or zero point in a shape in which it broadcasts over the operand."""
    x, axis, block = node.operand(0), node.attr("axis"), node.attr("block_size")
    if block:
        return Term(b, _repeated(b, parameter, x, normalize_axis(axis, x.rank), block))
    if parameter.shape in ((), (1,)):
        return Term(b, parameter if x.rank else reshape(b, parameter, []))
    behind = x.rank - 1 - normalize_axis(axis, x.rank)
    return Term(b, unsqueezed(b, parameter, range(1, 1 + behind)))


def _repeated(b: Builder, parameter: Value, x: Value, axis: int, block: int) -> Value:
    """Each entry along `axis` as often as a block is long, up to the operand's size."""
    shape = parameter.shape
    wide = broadcast(
        b, unsqueezed(b, parameter, [axis + 1]), [*shape[: axis + 1], block, *shape[axis + 1 :]], parameter
    )
    whole = reshape(b, wide, [*shape[:axis], shape[axis] * block, *shape[axis + 1 :]], parameter)
    if whole.shape[axis] == x.shape[axis]:
        return whole
    size = x.shape[axis]
    if not isinstance(size, int):
        raise UnsupportedError("blocks along an axis of unknown size", type_=x.type, hint="fix it with --input-shape")
    return sliced(b, whole, {axis: slice(0, size)})


@decompose(ops.QuantizeLinear, "tfl")
def _quantize_formula(b: Builder, node: Node) -> Value | None:
    """round(x / scale) + zero point in float, clamped and converted."""
    dtype: DType = node.attr("dtype")
    if not dtype.is_integer or dtype.bits > 16:
        return None
    x, scale = Term(b, node.operand(0)), _spread(b, node.operand(1), node)
    quotient = x.to(scale.dtype) / scale
    rounded, zero = quotient.apply(ops.RoundNearestEven), node.optional(2)
    if zero is not None and not _is_zero(zero):
        rounded = rounded + _spread(b, zero, node).to(scale.dtype)
    low, high = (-(1 << dtype.bits - 1), (1 << dtype.bits - 1) - 1) if dtype.is_signed else (0, (1 << dtype.bits) - 1)
    return rounded.apply(ops.Clamp, float(low), float(high)).to(dtype).value


@decompose(ops.DequantizeLinear, "tfl")
def _dequantize_formula(b: Builder, node: Node) -> Value | None:
    """(x - zero point) * scale; the difference of 32-bit numbers is taken before they become floats."""
    x, scale, zero = Term(b, node.operand(0)), _spread(b, node.operand(1), node), node.optional(2)
    if not x.dtype.is_integer:
        return _dequantize_floats(b, node, x, scale)
    real = node.attr("dtype") or scale.dtype
    exact = zero is not None and not _is_zero(zero)
    if exact and zero is not None and x.dtype.bits > 16:
        x = x - _spread(b, zero, node)
    numbers = x.to(scale.dtype)
    if exact and zero is not None and x.dtype.bits <= 16:
        numbers = numbers - _spread(b, zero, node).to(scale.dtype)
    return (numbers * scale).to(real).value


def _dequantize_floats(b: Builder, node: Node, x: Term, scale: Term) -> Value:
    numbers = x.to(scale.dtype)
    zero = node.optional(2)
    if zero is not None and not _is_zero(zero):
        numbers = numbers - _spread(b, zero, node).to(scale.dtype)
    return (numbers * scale).to(node.attr("dtype") or scale.dtype).value


def _is_zero(value: Value) -> bool:
    return value.data is not None and value.data.size <= 1 << 16 and not value.numpy().astype(np.float32).any()


# --- back to ONNX -----------------------------------------------------------------------------------------------------


def _block(node: Node, opset: int) -> dict[str, int] | None:
    """The attributes of both ops; None where this opset cannot say them."""
    block = node.attr("block_size")
    if block and opset < 21:
        return None
    axis = {"axis": node.attr("axis")} if node.operand(1).tensor_type.rank else {}
    return axis | ({"block_size": block} if block else {})


@lower_onnx(ops.QuantizeLinear)
def _quantize_onnx(node: Node, opset: int) -> Form | None:
    attributes, zero, dtype = _block(node, opset), node.optional(2), node.attr("dtype")
    if attributes is None:
        return None
    if zero is None and dtype is not DType.UINT8:
        shape = node.operand(1).tensor_type.shape
        if shape is None or not all(isinstance(d, int) for d in shape):
            return None
        zero = constant(np.zeros([int(str(d)) for d in shape], dtype.numpy))
    saturate = {} if node.attr("saturate") or opset < 19 else {"saturate": 0}
    return Form("QuantizeLinear", (node.operand(0), node.operand(1), zero), attributes | saturate)


@lower_onnx(ops.DequantizeLinear)
def _dequantize_onnx(node: Node, opset: int) -> Form | None:
    attributes, dtype = _block(node, opset), node.attr("dtype")
    if attributes is None or dtype not in (None, node.operand(1).dtype):
        return None
    operands = tuple(node.operands) if node.optional(2) is not None else tuple(node.operands[:2])
    return Form("DequantizeLinear", operands, attributes)


@decompose(ops.DequantizeLinear, "onnx")
def _dequantize_then_convert(b: Builder, node: Node) -> Value | None:
    dtype = node.attr("dtype")
    if dtype in (None, node.operand(1).dtype):
        return None
    result = b(ops.DequantizeLinear, *node.operands, **{**node.attributes, "dtype": None})
    return b(ops.Convert, result, dtype=dtype)
