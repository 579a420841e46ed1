"""Conversions of the element type."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np

from onnxtfl.build.dtypes import dtype_from, number_of
from onnxtfl.build.operands import formula
from onnxtfl.build.qoperator import linear_domain
from onnxtfl.build.rows import Number, ResultType, row
from onnxtfl.build.stored import stored_dequantized, stored_in_bytes
from onnxtfl.build.uint64 import SMALLEST_INT64, on_signed, split_words
from onnxtfl.errors import UnsupportedError
from onnxtfl.ir import ops
from onnxtfl.ir.assumptions import assume
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.dims import is_static
from onnxtfl.ir.formula import Term
from onnxtfl.ir.graph import Node, Value, constant
from onnxtfl.ir.matching import is_between
from onnxtfl.ir.op import OPS
from onnxtfl.ir.packed import is_packed
from onnxtfl.ir.quantization import limits, shifted_to_int8
from onnxtfl.ir.quantized import quantization_of, scale_and_zero_point
from onnxtfl.ir.reshape import reshape, stacked_along, unsqueezed
from onnxtfl.ir.source_names import shown_name
from onnxtfl.ir.types import DType
from onnxtfl.rewriting.registry import Form, decompose, lift_onnx, lift_tfl, lower_onnx, lower_tfl, requires_opset


def _same_width(node: Node) -> bool:
    """Whether ONNX Runtime has such a BitCast: no bools, equal widths."""
    types = (node.operand(0).dtype, node.attr("dtype"))
    return types[0].bits == types[1].bits and DType.BOOL not in types


@requires_opset(ops.BitcastConvert)
def _opset_of_bits(node: Node) -> int:
    """Integers are reinterpreted by arithmetic, and float32 is assembled from its bits; for other floats, opset 26 has
    BitCast. The bits of float32 are computed by many ops at a lower opset that is asked for.
    """
    x, dtype = node.operand(0).dtype, node.attr("dtype")
    return 26 if x.is_float or (dtype.is_float and not _is_composed(x, dtype)) else 0


def _is_composed(x: DType, dtype: DType) -> bool:
    return x in (DType.INT32, DType.UINT32) and dtype is DType.FLOAT32


row(ops.BitcastConvert, tfl="BITCAST", tfl_options={"dtype": ResultType("")}, lifts=False)
row(ops.BitcastConvert, onnx="BitCast", attributes={"dtype": Number("to")}, when=_same_width, lifts=False)
_NAMES = {"FLOAT": DType.FLOAT32, "DOUBLE": DType.FLOAT64}


@lift_onnx("Cast", since=(1, 6, 9, 13, 19, 21, 23, 24, 25, 28))
def _cast(b: Builder, node: Node) -> Value:
    """Cast-1 and early files of Cast-6 have the name of the element type, later ones its code."""
    wanted = node.attributes["to"]
    return _converted(b, node, _named(wanted) if isinstance(wanted, str) else dtype_from(wanted))


def _named(name: str) -> DType:
    dtype = _NAMES.get(name.upper()) or DType.__members__.get(name.upper())
    if dtype is None:
        raise ValueError(f"unknown element type {name!r}")
    return dtype


@lift_onnx("CastLike", since=(15, 19, 21, 23, 24, 25))
def _cast_like(b: Builder, node: Node) -> Value:
    return _converted(b, node, node.operand(1).dtype)


def _converted(b: Builder, node: Node, dtype: DType) -> Value:
    x = node.operand(0)
    if dtype is x.dtype:
        return x
    rounding = node.attributes.get("round_mode", "up") if dtype is DType.FLOAT8E8M0 else "nearest"
    if rounding not in ops.Convert.attributes["rounding"].choices:
        raise ValueError(f"unknown round_mode {rounding!r}")
    return b(ops.Convert, x, dtype=dtype, saturate=bool(node.attributes.get("saturate", 1)), rounding=rounding)


@lift_onnx("BitCast", since=(26,))
def _bit_cast(b: Builder, node: Node) -> Value:
    x, dtype = node.operand(0), dtype_from(node.attributes["to"])
    if x.dtype.bits != dtype.bits:
        raise ValueError(f"{x.dtype.value} and {dtype.value} differ in width")
    return x if dtype is x.dtype else b(ops.BitcastConvert, x, dtype=dtype)


@lift_tfl("BITCAST")
def _bitcast_tfl(b: Builder, node: Node) -> Value:
    """BITCAST to the type of the result; to a wider type, the last axis has the parts of an element."""
    x, dtype = node.operand(0), node.result.dtype
    if x.dtype.is_complex or dtype.is_complex:
        return _bits_of_complex(b, x, dtype)
    count = dtype.bits // x.dtype.bits
    if count > 1 and not is_static(x.shape[-1:]):
        assume(f"the last axis of an operand of {shown_name(node)} has {count} elements")
        x = b(ops.Gather, x, np.arange(count), axis=x.rank - 1)
    return x if dtype is x.dtype else b(ops.BitcastConvert, x, dtype=dtype)


def _bits_of_complex(b: Builder, x: Value, dtype: DType) -> Value:
    """Reinterpret complex numbers as pairs of floats, the real part first."""
    if x.dtype is dtype:
        return x
    if x.dtype.is_complex and dtype.is_complex:
        raise UnsupportedError(f"bits of {x.dtype.value} as {dtype.value}", code="E-TYPE-002")
    half = DType.FLOAT32 if DType.COMPLEX64 in (x.dtype, dtype) else DType.FLOAT64
    if x.dtype.is_complex:
        bits = Term(b, stacked_along(b, [b(op, x) for op in (ops.Real, ops.Imag)], x.rank)).bits(dtype).value
        if dtype.bits >= half.bits:
            return bits
        return reshape(b, bits, (*x.shape, 2 * half.bits // dtype.bits), x)
    if x.dtype.bits < half.bits:
        x = reshape(b, x, (*x.shape[:-1], 2, half.bits // x.dtype.bits), x)
    floats = Term(b, x).bits(half)
    return floats.at(0, floats.rank - 1).apply(ops.Complex, floats.at(1, floats.rank - 1)).value


@lift_tfl("CAST", "STABLEHLO_CONVERT")
def _cast_tfl(b: Builder, node: Node) -> Value:
    """CAST to the type of the result; the options may be absent.

    Floats saturate to the integer range (SafeCast in LiteRT kernels/cast.cc); ONNX leaves that undefined.
    Casts to 4 and 2 bits then truncate (castFloatToInt4 there).
    """
    x, dtype = Term(b, node.operand(0)), node.result.dtype
    if x.dtype.is_complex and not dtype.is_complex:
        x = x.apply(ops.Real)
    if x.dtype is DType.BFLOAT16 and dtype.is_integer:
        x = x.to(DType.FLOAT32)
    if x.dtype.is_float and dtype.is_integer and (dtype.bits < 32 or not dtype.is_signed):
        lowest, highest = limits(dtype)
        exact = dtype.bits < 16 or (dtype.bits == 16 and x.dtype is not DType.FLOAT16)
        x = x.clamp(float(lowest), float(highest) if exact else None)
    if x.dtype.is_float and dtype.is_integer and dtype.bits < 8:  # the kernel truncates, ONNX rounds
        x = x.to(DType.INT8 if dtype.is_signed else DType.UINT8)
    if dtype.is_complex and not x.dtype.is_complex:
        real = DType.FLOAT32 if dtype is DType.COMPLEX64 else DType.FLOAT64
        return x.to(real).apply(ops.Complex, x.constant(0).to(real)).value
    return x.value if dtype is x.dtype else x.to(dtype).value


@lower_tfl(ops.Convert)
def _half_weights(node: Node) -> Form | None:
    """Keep constants in float16 in the file; delegates read them through DEQUANTIZE."""
    half = node.operand(0).is_constant and node.operand(0).dtype is DType.FLOAT16
    return Form("DEQUANTIZE", (node.operand(0),)) if half and node.attr("dtype") is DType.FLOAT32 else None


@lower_tfl(ops.Convert)
def _quantized_tfl(node: Node) -> Form | None:
    """Conversion to or from a quantized type, defined by the types."""
    x, result = node.operand(0), node.result
    if result.is_quantized:
        return Form("QUANTIZE", (x,))
    return Form("DEQUANTIZE", (x,)) if x.is_quantized else None


@lower_tfl(ops.Convert, rank=1)
def _convert_tfl(node: Node) -> Form | None:
    before, after = node.operand(0).dtype, node.attr("dtype")
    if node.operand(0).is_quantized or node.result.is_quantized:
        return None
    if DType.STRING in (before, after):
        return None
    return Form("CAST", (node.operand(0),), {"in_data_type": before.name, "out_data_type": after.name})


@lower_onnx(ops.Convert)
def _convert_onnx(node: Node, opset: int) -> Form | None:
    dtype = node.attr("dtype")
    if node.operand(0).is_quantized or node.result.is_quantized:
        return _quantized_onnx(node, opset)
    saturates = node.attr("saturate") or opset < 19 or not dtype.value.startswith("float8")
    more: dict[str, object] = {} if saturates else {"saturate": 0}
    if dtype is DType.FLOAT8E8M0:
        more["round_mode"] = node.attr("rounding")
    return Form("Cast", (node.operand(0),), {"to": number_of(dtype), **more})


_OF_2_BITS = (DType.INT2, DType.UINT2)


def _quantized_onnx(node: Node, opset: int) -> Form | None:
    """Conversion to or from a quantized type; None for both at once, and for blocks before opset 21."""
    x, result = node.operand(0), node.result
    quantization = result.tensor_type.quantization or x.tensor_type.quantization
    if quantization is None or (x.is_quantized and result.is_quantized):
        return None
    if quantization.dtype in _OF_2_BITS and x.data is not None:  # ONNX has these since opset 25
        wide = DType.INT4 if opset >= 21 else DType.INT8
        quantization = replace(quantization, storage=wide.value)
        x = constant(x.data.cast(wide), type_=x.tensor_type.stored_as(quantization))
    axis = {} if quantization.axis is None else {"axis": quantization.axis}
    blocks = None
    if quantization.block is not None:
        if opset < 21 or not x.is_static:
            return None
        blocks, axis["block_size"] = quantization.blocked(x.shape), quantization.block
    name = "QuantizeLinear" if result.is_quantized else "DequantizeLinear"
    operands = (x, *scale_and_zero_point(quantization, blocks))
    return Form(name, operands, axis, domain=linear_domain(quantization.dtype, opset))


@formula(ops.BitcastConvert, "onnx")
def _bitcast_for_onnx(x: Term, *, dtype: DType) -> Term | None:
    """Decompose bit casts that ONNX lacks: BitCast keeps the width, and older opsets have none.

    Integers are split, joined and reinterpreted by arithmetic; a float32 is assembled from sign, exponent, fraction, or
    divided into these.
    """
    if DType.BOOL in (x.dtype, dtype):
        return x.to(DType.UINT8).bits(dtype) if x.dtype is DType.BOOL else _as_bool(x)
    if _is_composed(x.dtype, dtype):
        return _float_of_bits(x)
    if _is_composed(dtype, x.dtype):
        return _bits_of_float(x).to(dtype)
    if not {x.dtype.bits, dtype.bits} <= set(_UNSIGNED):
        return None
    if x.dtype.bits != dtype.bits and (x.dtype.is_float or dtype.is_float):
        return x.bits(_UNSIGNED[x.dtype.bits]).bits(_UNSIGNED[dtype.bits]).bits(dtype)
    if not (x.dtype.is_integer and dtype.is_integer):
        return None
    if x.dtype.bits == dtype.bits:
        return x.to(dtype)
    return _split_bits(x, dtype) if x.dtype.bits > dtype.bits else _joined_bits(x, dtype)


_UNSIGNED = {8: DType.UINT8, 16: DType.UINT16, 32: DType.UINT32, 64: DType.UINT64}


def _as_bool(x: Term) -> Term:
    return x.bits(DType.UINT8).differs(0)


def _split_bits(x: Term, dtype: DType) -> Term:
    """Split each element into `count` elements of a narrower type, low bits first: [...] -> [..., count]."""
    whole, count = x.to(DType.INT64), x.dtype.bits // dtype.bits
    shifted = [whole.apply(ops.ShiftRightArithmetic, i * dtype.bits, in_range=True) for i in range(1, count)]
    low, *others = (Term(x.b, unsqueezed(x.b, part.to(dtype).value, [x.rank])) for part in (whole, *shifted))
    return low.apply(ops.Concatenate, *others, axis=x.rank)


def _joined_bits(x: Term, dtype: DType) -> Term:
    """Invert `_split_bits`: [..., count] -> [...]. Sums wrap around, so the last part may be signed."""
    count, unsigned = dtype.bits // x.dtype.bits, _UNSIGNED[x.dtype.bits]
    parts = [x.at(i, x.rank - 1).to(unsigned).to(DType.INT64) for i in range(count)]
    total = parts[0]
    for i, part in enumerate(parts[1:], 1):
        total = total + part * (1 << i * x.dtype.bits)
    return total.to(dtype)


def _float_of_bits(x: Term) -> Term:
    """Return the float32 with the bits of `x`: a fraction of 23 bits times a power of 2 from a table.

    Exact, also for subnormals; all NaN become the same NaN.
    """
    whole = x.to(DType.INT64)
    word = whole % (1 << 31)
    exponent, fraction = word.apply(ops.Div, 1 << 23), word % (1 << 23)
    with np.errstate(over="ignore"):
        powers = np.ldexp(1.0, np.maximum(np.arange(256), 1) - 150).astype(np.float32)
    powers[255] = np.inf
    power = Term(x.b, x.b(ops.Gather, constant(powers), exponent.value, axis=0))
    leading = (exponent > 0).to(DType.INT64) * (1 << 23)
    size = (fraction + leading).to(DType.FLOAT32) * power
    is_nan = (exponent.equals(255)).apply(ops.And, fraction > 0)
    negative = (whole % (1 << 32)) >= (1 << 31)
    sign = negative.to(DType.FLOAT32) * -2.0 + 1.0  # a product, since ONNX Runtime's Where drops the sign of 0
    return is_nan.choose(size.constant(np.nan), size) * sign


def _bits_of_float(x: Term) -> Term:
    """Return the bits of float32 `x` in int64; the inverse of `_float_of_bits`. Each NaN becomes 0x7FC00000.

    Steps of 64, 32, ... 1 scale the absolute value to [1, 2), which is exact; they add up to the exponent.
    """
    size, zero = x.abs(), x.equals(0.0)
    scaled, exponent = size, zero.to(DType.INT64) * 0
    for step, is_too_large in product((64, 32, 16, 8, 4, 2, 1), (True, False)):
        moves = scaled >= 2.0**step if is_too_large else scaled < 2.0 ** (1 - step)
        scaled = moves.choose(scaled * 2.0 ** (-step if is_too_large else step), scaled)
        exponent = exponent + moves.to(DType.INT64) * (step if is_too_large else -step)
    fraction = (scaled - 1.0) * 2.0**23
    normal = (exponent + 127) * (1 << 23) + fraction.to(DType.INT64)
    subnormal = (size * 2.0**126 * 2.0**23).to(DType.INT64)
    bits = (size < 2.0**-126).choose(subnormal, normal)
    bits = (size >= float("inf")).choose(bits.constant(255 << 23), bits)
    bits = x.is_nan().choose(bits.constant(0x1FF << 22), bits)
    negative = (x < 0.0).apply(ops.Or, zero.apply(ops.And, (x.constant(1.0) / x) < 0.0))
    return bits + negative.to(DType.INT64) * (1 << 31)


@formula(ops.BitcastConvert, "tfl")
def _bitcast_to_other_width(x: Term, *, dtype: DType) -> Term | None:
    """BITCAST keeps the width, except of 64 bits; bools are stored as 0 and 1."""
    if DType.BOOL in (x.dtype, dtype):
        return x.to(DType.UINT8).bits(dtype) if x.dtype is DType.BOOL else _as_bool(x)
    if x.dtype.bits == dtype.bits or not {x.dtype.bits, dtype.bits} <= set(_UNSIGNED):
        return None
    if x.dtype.is_float or dtype.is_float:
        return x.bits(_UNSIGNED[x.dtype.bits]).bits(_UNSIGNED[dtype.bits]).bits(dtype)
    return _split_bits(x, dtype) if x.dtype.bits > dtype.bits else _joined_bits(x, dtype)


# --- element types that casts do not accept ---------------------------------------------------------------------------


def _requantizes(node: Node) -> bool:
    return node.operand(0).is_quantized and node.result.is_quantized


def _leaves_the_delegate(node: Node) -> bool:
    """Whether XNNPACK leaves a requantization between other ops to another kernel: one to a much larger scale."""
    before, after = quantization_of(node.operand(0)), quantization_of(node.result)
    return (
        before is not None and after is not None and is_between(node) and min(before.scales) * 256 < max(after.scales)
    )


@decompose(ops.Convert, "xnnpack", when=_leaves_the_delegate)
@decompose(ops.Convert, None, "elements", when=_requantizes)
def _by_real_values(b: Builder, node: Node) -> Value:
    """Dequantize and quantize."""
    real = b(ops.Convert, node.operand(0), dtype=node.operand(0).dtype)
    made = b(ops.Convert, real, dtype=real.dtype)
    made.type = node.result.type
    return made


def _stores_bytes(node: Node) -> bool:
    stored = node.result.tensor_type.quantization
    return stored is not None and stored.storage == "uint8" and not node.operand(0).is_quantized


@decompose(ops.Convert, None, "elements", when=_stores_bytes)
def _by_int8(b: Builder, node: Node) -> Value:
    """Quantize to int8 first, with the same scale: TFLite Micro has no kernel from real values to uint8."""
    quantization = node.result.tensor_type.quantization
    assert quantization is not None
    shifted = b(ops.Convert, node.operand(0), dtype=node.result.dtype)
    shifted.type = node.result.tensor_type.stored_as(shifted_to_int8(quantization))
    made = b(ops.Convert, shifted, dtype=node.result.dtype)
    made.type = node.result.type
    return made


def _is_known_half(node: Node) -> bool:
    x = node.operand(0)
    return x.data is not None and x.dtype is DType.FLOAT16 and not node.result.is_quantized


@decompose(ops.Convert, None, "elements", when=_is_known_half, benefit=1)
def _converted_half(b: Builder, node: Node) -> Value:
    return constant(node.operand(0).numpy().astype(node.result.dtype.numpy), node.result.dtype)


_FOUR_BITS = (DType.INT4, DType.UINT4)


def _stored(node: Node) -> DType | None:
    """Return the integer type of a dequantized constant; None for other values."""
    x = node.operand(0)
    return x.tensor_type.storage if x.is_quantized and x.data is not None and not node.result.is_quantized else None


@decompose(ops.Convert, None, "elements", when=lambda node: _stored(node) in _FOUR_BITS)
def _from_bytes(b: Builder, node: Node) -> Value:
    return b(ops.Convert, stored_in_bytes(node.operand(0)), dtype=node.operand(0).dtype)


def _has_kernel_type(node: Node) -> bool:
    stored = _stored(node)
    return stored is not None and stored not in _FOUR_BITS and stored.bits <= 32


@decompose(ops.Convert, None, "elements", when=_has_kernel_type)
def _from_stored(b: Builder, node: Node) -> Value:
    """Keep the stored integers of a constant."""
    return stored_dequantized(b, node.operand(0))


@decompose(ops.Convert, None, "elements", when=lambda node: _stored(node) in (DType.INT64, DType.UINT64))
def _from_known_bias(b: Builder, node: Node) -> Value:
    return constant(node.operand(0).numpy(), node.operand(0).dtype)


@decompose(ops.Convert, "tfl", "elements")
def _from_packed_bytes(b: Builder, node: Node) -> Value | None:
    """Keep a large constant of fewer than 8 bits packed, and unpack it by arithmetic."""
    return (
        stored_dequantized(b, node.operand(0)) if node.operand(0).is_quantized and is_packed(node.operand(0)) else None
    )


@formula(ops.Convert, "tfl")
def _convert(x: Term, *, dtype: DType) -> Term | None:
    """Decompose casts of uint64 and from uint16, which have no kernels, by reinterpreting the bits as signed."""
    if dtype is DType.UINT64:
        return _to_uint64(x) if x.dtype.is_float else x.to(DType.INT64).bits(dtype)
    if x.dtype is DType.UINT64:
        return _from_uint64(x, dtype) if dtype.is_float else x.bits(DType.INT64).to(dtype)
    if x.dtype is DType.UINT16:
        return (x.bits(DType.INT16).to(DType.INT32) % (1 << 16)).to(dtype)
    return None


def _to_uint64(x: Term) -> Term:
    half = 2.0**63
    shifted = (x >= half).choose(x - half, x).to(DType.INT64)
    return (x >= half).choose(shifted + SMALLEST_INT64, shifted).bits(DType.UINT64)


def _from_uint64(x: Term, dtype: DType) -> Term:
    low, high = (word.bits(DType.UINT32).to(dtype) for word in split_words(x))
    return high * 2.0**32 + low


for _op in OPS.values():
    if _op.moves is not None or _op.integers is not None:
        decompose(_op, "tfl", "elements")(on_signed)
