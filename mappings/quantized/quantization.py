"""QuantizeLinear and DequantizeLinear, and formulas for those without a TFLite form."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from onnxtfl.build.dtypes import dtype_from
from onnxtfl.build.qlinear import MICROSOFT, quantized_over_range
from onnxtfl.build.qoperator import linear_domain
from onnxtfl.build.sizes import slice_axes, with_dtype
from onnxtfl.build.stored import unpack_constant
from onnxtfl.errors import UnsupportedError
from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.dims import known_size
from onnxtfl.ir.formula import Term
from onnxtfl.ir.graph import Node, Value, constant
from onnxtfl.ir.quantization import limits
from onnxtfl.ir.reshape import broadcast, reshape, unsqueezed
from onnxtfl.ir.shapes import normalize_axis
from onnxtfl.ir.types import DType
from onnxtfl.rewriting.registry import Form, decompose, lift_onnx, lift_tfl, lower_onnx


@lift_tfl("FAKE_QUANT")
def _fake_quant(b: Builder, node: Node) -> Value:
    """Quantize and dequantize. Source: LiteRT kernels/internal/quantization_util.cc."""
    x, options = Term(b, node.operand(0)), node.attributes
    if x.dtype is not DType.FLOAT32 or x.value.is_quantized:
        raise UnsupportedError("TFLite's kernel takes float32", type_=node.operand(0).type)
    if not 0 <= (bits := options.get("num_bits", 0)) < 31:
        raise UnsupportedError(f"num_bits {bits}; the kernel counts steps in int32", hint="set 2 to 16")
    low, high = np.float32(options.get("min", 0.0)), np.float32(options.get("max", 0.0))
    first = np.float32(1 if options.get("narrow_range", False) else 0)
    last = np.float32((1 << bits) - 1)
    scale = (high - low) / (last - first)
    zero = np.clip(np.floor(first - low / scale + np.float32(0.5)), first, last)
    lowest, highest = float((first - zero) * scale), float((last - zero) * scale)
    steps = (x.max(lowest).min(highest) - lowest) * float(np.float32(1) / scale)
    return ((steps + 0.5).floor() * float(scale) + lowest).value


_SINCE = (10, 13, 19, 21, 23, 24, 25, 28)


@lift_onnx("QuantizeLinear", since=_SINCE)
@lift_onnx("QuantizeLinear", since=(1,), domain=MICROSOFT)
@lift_onnx("DequantizeLinear", since=_SINCE)
@lift_onnx("DequantizeLinear", since=(1,), domain=MICROSOFT)
def _linear(b: Builder, node: Node) -> Value:
    """The zero point of 8-bit and 4-bit floats is ignored, as in ONNX Runtime (quantize_linear.cc)."""
    (x, scale, zero), get = (node.optional(i) for i in range(3)), node.attributes.get
    dtype = dtype_from(number) if (number := get("output_dtype", 0)) else None
    if scale is not None and (scale.dtype.is_integer or scale.dtype is DType.FLOAT8E8M0):
        scale = b(ops.Convert, scale, dtype=DType.FLOAT32)
    attributes = {"axis": _axis(node), "block_size": get("block_size", 0), "dtype": dtype}
    if node.op.name == "onnx.DequantizeLinear":
        return b(ops.DequantizeLinear, x, scale, zero, **attributes)
    attributes["dtype"] = dtype = zero.dtype if zero is not None else dtype or DType.UINT8
    zero = None if dtype.is_float else zero
    return b(ops.QuantizeLinear, x, scale, zero, **attributes, saturate=bool(get("saturate", 1)))


def _axis(node: Node) -> int:
    """Return the axis of the scales; 0 for a single scale, for which any axis is allowed."""
    scale, rank = node.operand(1).tensor_type, node.operand(0).tensor_type.rank
    axis = int(node.attributes.get("axis", 1))
    if not node.attributes.get("block_size", 0) and scale.shape in ((), (1,)):
        return 0
    return axis if rank is None else normalize_axis(axis, rank)


@lift_onnx("DynamicQuantizeLinear", since=(11,))
def _dynamic(b: Builder, node: Node) -> list[Value]:
    """Quantize to uint8 over the range of the values and 0; an empty tensor gets scale 1, as in ONNX Runtime."""
    return list(quantized_over_range(b, node.operand(0)))


@lift_tfl("DEQUANTIZE", "QUANTIZE")
def _from_tfl(b: Builder, node: Node) -> Value:
    """QUANTIZE and DEQUANTIZE: the types define both quantizations (or float16); scales are float32."""
    x = node.operand(0)
    if x.dtype.is_integer and not x.is_quantized and node.result.is_quantized:  # the kernel reads scale 0
        message = f"TFLite's kernel reads {x.dtype.value} as quantized, and this tensor has no scale"
        raise UnsupportedError(message, type_=x.type, code="E-QUANT-001")
    if x.dtype is DType.FLOAT16 and node.result.is_quantized:
        x = b(ops.Convert, x, dtype=DType.FLOAT32)
    return b(ops.Convert, x, dtype=node.result.dtype)


# --- into the core ----------------------------------------------------------------------------------------------------


def _grouped(b: Builder, node: Node) -> tuple[Term, Callable[[Value], Term]]:
    """Split the axis of blocks of the operand, and reshape the parameters to broadcast to it.

    ::

        x [2, 12], scale [2, 3], blocks of 4 along axis 1    ->    x [2, 3, 4], scale [2, 3, 1]
    """
    x, axis, block = node.operand(0), node.attr("axis"), node.attr("block_size")
    if not block:
        return Term(b, x), partial(_spread, b, node=node)
    axis = normalize_axis(axis, x.rank)
    count = node.operand(1).shape[axis]
    if x.shape[axis] != count * block:
        return Term(b, x), lambda parameter: Term(b, _repeated(b, parameter, x, axis, block))
    grouped = reshape(b, x, [*x.shape[:axis], count, block, *x.shape[axis + 1 :]], x)
    return Term(b, grouped), lambda parameter: Term(b, unsqueezed(b, parameter, [axis + 1]))


def _spread(b: Builder, parameter: Value, node: Node) -> Term:
    """Reshape a scale or zero point, for the tensor or along an axis, to broadcast to the operand."""
    x, axis = node.operand(0), node.attr("axis")
    if parameter.shape in ((), (1,)):
        return Term(b, parameter if x.rank else reshape(b, parameter, []))
    trailing = x.rank - 1 - normalize_axis(axis, x.rank)
    return Term(b, unsqueezed(b, parameter, range(1, 1 + trailing)))


def _repeated(b: Builder, parameter: Value, x: Value, axis: int, block: int) -> Value:
    """Repeat each entry along `axis` for its block, and crop to the size of the operand."""
    shape = parameter.shape
    wide = broadcast(
        b, unsqueezed(b, parameter, [axis + 1]), [*shape[: axis + 1], block, *shape[axis + 1 :]], parameter
    )
    whole = reshape(b, wide, [*shape[:axis], shape[axis] * block, *shape[axis + 1 :]], parameter)
    if whole.shape[axis] == x.shape[axis]:
        return whole
    size = x.shape[axis]
    size = known_size(size, "an axis of blocks")
    return slice_axes(b, whole, {axis: slice(0, size)})


@decompose(ops.QuantizeLinear, "tfl")
def _quantize_formula(b: Builder, node: Node) -> Value | None:
    """Return clamp(round(x / scale) + zero point), computed in float; not rounded if the result is float32."""
    dtype: DType = node.attr("dtype")
    if dtype is not DType.FLOAT32 and (not dtype.is_integer or dtype.bits > 16):
        return None
    x, spread = _grouped(b, node)
    scale = spread(node.operand(1))
    zero = None if _has_no_zero(node) else spread(node.operand(2))
    steps = x.to(scale.dtype) / scale
    if dtype is DType.FLOAT32:
        return _ungrouped(b, steps if zero is None else steps + zero, node)
    rounded = steps.apply(ops.RoundNearestEven)
    if zero is not None:
        rounded = rounded + zero.to(scale.dtype)
    low, high = limits(dtype)
    if not _is_finite(node.operand(1)):
        rounded = rounded.is_nan().choose(rounded.constant(float(low)), rounded)
    stored = rounded.clamp(float(low), float(high)).to(dtype).value
    return reshape(b, stored, node.operand(0).shape, node.operand(0))


@decompose(ops.DequantizeLinear, "onnx", when=lambda node: not _has_other_type(node), benefit=1)
@decompose(ops.DequantizeLinear, "tfl")
def _dequantize_formula(b: Builder, node: Node) -> Value | None:
    """Return (x - zero point) * scale; 32-bit integers are subtracted before the conversion to float."""
    fields = unpack_constant(b, node.operand(0))
    if fields is not None:
        return _dequantized_fields(b, node, *fields)
    x, spread = _grouped(b, node)
    scale = spread(node.operand(1))
    zero = None if _has_no_zero(node) else node.operand(2)
    if zero is not None and x.dtype.is_integer and x.dtype.bits > 16:
        x, zero = x - spread(zero), None
    real = x.to(scale.dtype) if zero is None else x.to(scale.dtype) - spread(_as_real(b, zero, scale.dtype))
    return _ungrouped(b, (real * scale).to(node.attr("dtype") or scale.dtype), node)


def _ungrouped(b: Builder, real: Term, node: Node) -> Value:
    return reshape(b, real.value, node.operand(0).shape, node.operand(0))


def _dequantized_fields(b: Builder, node: Node, x: Term, offset: int) -> Value:
    """Return (x - zero point) * scale for elements stored as floats with an offset, which the zero point includes."""
    zero = node.optional(2)
    attributes = {k: node.attr(k) for k in ("axis", "block_size", "dtype")}
    if zero is not None and not zero.is_constant:
        zero = (Term(b, zero).to(DType.FLOAT32) + float(offset)).value
    else:
        zeros = np.asarray(offset if zero is None else zero.numpy().astype(np.int16) + offset)
        uniform = bool((zeros == zeros.flat[0]).all()) if zeros.size else True
        zero = None if uniform else constant(zeros.astype(np.uint8))
        x = x - float(zeros.flat[0]) if uniform and zeros.size and zeros.flat[0] else x
    return b(ops.DequantizeLinear, x.value, node.operand(1), zero, **attributes)


def _as_real(b: Builder, zero: Value, dtype: DType) -> Value:
    """Return a zero point as floats; constants of any dtype, also of those without a cast."""
    if zero.is_constant and zero.dtype.bits < 8:
        return constant(zero.numpy().astype(dtype.numpy))
    return b(ops.Convert, zero, dtype=dtype)


def _has_no_zero(node: Node) -> bool:
    """Whether the zero point is absent or zero."""
    zero = node.optional(2)
    return zero is None or _is_zero(zero)


def _is_finite(scale: Value) -> bool:
    """Whether the scale may be finite (inf / inf is NaN, which becomes the lowest value)."""
    return scale.data is None or bool(np.isfinite(scale.numpy()).all())


def _is_zero(value: Value) -> bool:
    return value.data is not None and value.data.size <= 1 << 16 and not value.numpy().astype(np.float32).any()


# --- back to ONNX -----------------------------------------------------------------------------------------------------


def _block(node: Node) -> dict[str, int]:
    """Return the attributes that both ops share."""
    axis = {"axis": node.attr("axis")} if node.operand(1).tensor_type.rank else {}
    return axis | ({"block_size": block} if (block := node.attr("block_size")) else {})


@lower_onnx(ops.QuantizeLinear)
def _quantize_onnx(node: Node, opset: int) -> Form | None:
    zero, dtype = node.optional(2), node.attr("dtype")
    if zero is None and dtype is not DType.UINT8:
        if not node.operand(1).is_static:
            return None
        zero = constant(np.zeros([int(d) for d in node.operand(1).shape], dtype.numpy))
    saturate = {} if node.attr("saturate") or opset < 19 else {"saturate": 0}
    operands, attributes = (node.operand(0), node.operand(1), zero), _block(node) | saturate
    return Form("QuantizeLinear", operands, attributes, domain=linear_domain(dtype, opset))


@lower_onnx(ops.DequantizeLinear)
def _dequantize_onnx(node: Node, opset: int) -> Form | None:
    if _has_other_type(node):
        return None
    domain = linear_domain(node.operand(0).dtype, opset)
    return Form("DequantizeLinear", tuple(node.present_operands), _block(node), domain=domain)


@decompose(ops.QuantizeLinear, "onnx", when=lambda node: node.operand(0).dtype is not node.operand(1).dtype)
def _quantize_in_type_of_scale(b: Builder, node: Node) -> list[Value]:
    x, scale, *rest = node.operands
    assert x is not None and scale is not None
    return b.remade(node, b(ops.Convert, x, dtype=scale.dtype), scale, *rest)


def _has_other_type(node: Node) -> bool:
    return node.attr("dtype") not in (None, node.operand(1).dtype)


decompose(ops.DequantizeLinear, "onnx")(partial(with_dtype, dtype=None))
