"""Changes of the element type."""

from __future__ import annotations

import numpy as np

from onnxtfl.rules import *

_NAMES = {"FLOAT": DType.FLOAT32, "DOUBLE": DType.FLOAT64}


@lift_onnx("Cast", since=(1, 6, 9, 13, 19, 21, 23, 24, 25, 28))
def _cast(b: Builder, node: Node) -> Value:
    """Cast-1, and early files of Cast-6, name the element type; later ones give its number."""
    wanted = node.attributes["to"]
    return _converted(b, node, _named(wanted) if isinstance(wanted, str) else dtype_from(wanted))


def _named(name: str) -> DType:
    dtype = _NAMES.get(name.upper()) or DType.__members__.get(name.upper())
    if dtype is None:
        raise InvalidModelError(f"no element type is called {name!r}")
    return dtype


@lift_onnx("CastLike", since=(15, 19, 21, 23, 24, 25))
def _cast_like(b: Builder, node: Node) -> Value:
    return _converted(b, node, node.operand(1).dtype)


def _converted(b: Builder, node: Node, dtype: DType) -> Value:
    x = node.operand(0)
    if dtype is x.dtype:
        return x
    if dtype is DType.FLOAT8E8M0 and node.attributes.get("round_mode", "up") != "nearest":
        raise UnsupportedError("rounding of float8e8m0 other than to the nearest")
    return b(ops.Convert, x, dtype=dtype, saturate=bool(node.attributes.get("saturate", 1)))


@lift_onnx("BitCast", since=(26,))
def _bit_cast(b: Builder, node: Node) -> Value:
    x, dtype = node.operand(0), dtype_from(node.attributes["to"])
    if x.dtype.bits != dtype.bits:
        raise InvalidModelError(f"{x.dtype.value} and {dtype.value} differ in width")
    return x if dtype is x.dtype else b(ops.BitcastConvert, x, dtype=dtype)


@lift_tfl("CAST")
def _cast_tfl(b: Builder, node: Node) -> Value:
    """The result's own type says what to cast to; the options may be left out."""
    dtype = node.result.dtype
    return node.operand(0) if dtype is node.operand(0).dtype else b(ops.Convert, node.operand(0), dtype=dtype)


@lift_tfl("BITCAST")
def _bitcast_tfl(b: Builder, node: Node) -> Value:
    return b(ops.BitcastConvert, node.operand(0), dtype=node.result.dtype)


@lower_tfl(ops.Convert)
def _half_weights(node: Node) -> Form | None:
    """Constants stay float16 in the file; delegates read them through DEQUANTIZE."""
    half = node.operand(0).is_constant and node.operand(0).dtype is DType.FLOAT16
    return Form("DEQUANTIZE", (node.operand(0),)) if half and node.attr("dtype") is DType.FLOAT32 else None


@lower_tfl(ops.Convert, rank=1)
def _convert_tfl(node: Node) -> Form | None:
    before, after = node.operand(0).dtype, node.attr("dtype")
    if DType.STRING in (before, after):
        return None
    return Form("CAST", (node.operand(0),), {"in_data_type": before.name, "out_data_type": after.name})


@lower_tfl(ops.BitcastConvert)
def _bitcast_form(node: Node) -> Form:
    return Form("BITCAST", (node.operand(0),))


@lower_onnx(ops.Convert)
def _convert_onnx(node: Node, opset: int) -> Form:
    dtype = node.attr("dtype")
    saturate = {} if node.attr("saturate") or opset < 19 else {"saturate": 0}
    return Form("Cast", (node.operand(0),), {"to": number_of(dtype), **saturate})


@lower_onnx(ops.BitcastConvert)
def _bitcast_onnx(node: Node, opset: int) -> Form | None:
    if node.operand(0).dtype.bits != node.attr("dtype").bits:
        return None
    return Form("BitCast", (node.operand(0),), {"to": number_of(node.attr("dtype"))})


@decompose(ops.BitcastConvert, "onnx")
def _bitcast_of_integers(b: Builder, node: Node) -> Value | None:
    """Before ONNX had BitCast: integers of one width wrap when they are cast; words are split off by 2**32."""
    x, dtype = Term(b, node.operand(0)), node.attr("dtype")
    if not (x.dtype.is_integer and dtype.is_integer):
        return None
    if x.dtype.bits == dtype.bits:
        return x.to(dtype).value
    if (x.dtype.bits, dtype.bits) == (64, 32):
        whole = x.to(DType.INT64)
        parts = (whole.to(dtype), whole.apply(ops.ShiftRightArithmetic, 32, in_range=True).to(dtype))
        return b(ops.Concatenate, *(unsqueezed(b, p.value, [p.value.rank]) for p in parts), axis=x.value.rank)
    if (x.dtype.bits, dtype.bits) == (32, 64):
        last = x.value.rank - 1
        low, high = (Term(b, b(ops.Gather, x.value, np.asarray(i), axis=last)) for i in (0, 1))
        return (high.to(DType.INT64) * (1 << 32) + low.to(DType.UINT32).to(DType.INT64)).to(dtype).value
    return None


@decompose(ops.BitcastConvert, "tfl")
def _bitcast_of_bools(b: Builder, node: Node) -> Value | None:
    """Bools are stored as 0 and 1."""
    x, dtype = Term(b, node.operand(0)), node.attr("dtype")
    if x.dtype is DType.BOOL and dtype.is_integer and dtype.bits == 8:
        return x.to(dtype).value
    return x.to(DType.BOOL).value if dtype is DType.BOOL and x.dtype.is_integer and x.dtype.bits == 8 else None


# --- element types that casts do not take -----------------------------------------------------------------------------


@decompose(ops.Convert, "tfl")
def _convert(b: Builder, node: Node) -> Value | None:
    """uint64 has no casts, uint16 none that reads it: their bits are read as signed numbers."""
    x, dtype = Term(b, node.operand(0)), node.attr("dtype")
    if dtype is DType.UINT64:
        return (_to_uint64(x) if x.dtype.is_float else x.to(DType.INT64).bits(dtype)).value
    if x.dtype is DType.UINT64:
        return (_from_uint64(x, dtype) if dtype.is_float else x.bits(DType.INT64).to(dtype)).value
    if x.dtype is DType.UINT16:
        return (x.bits(DType.INT16).to(DType.INT32) % (1 << 16)).to(dtype).value
    return None


def _to_uint64(x: Term) -> Term:
    half = 2.0**63
    shifted = (x >= half).choose(x - half, x).to(DType.INT64)
    return (x >= half).choose(shifted + SMALLEST_INT64, shifted).bits(DType.UINT64)


def _from_uint64(x: Term, dtype: DType) -> Term:
    low, high = (word.bits(DType.UINT32).to(dtype) for word in words(x))
    return high * 2.0**32 + low
