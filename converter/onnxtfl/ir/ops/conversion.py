"""Changes of element type: Convert, BitcastConvert, quantization by explicit operands, parts of complex numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from onnxtfl.ir.data import Array
from onnxtfl.ir.dims import Shape
from onnxtfl.ir.graph import Node
from onnxtfl.ir.op import FLOATS, NUMERIC, REQUIRED, Elementwise, Op, Operand, Permutation, Relabeled
from onnxtfl.ir.ops import numeric
from onnxtfl.ir.ops.permutations import moved
from onnxtfl.ir.shapes import broadcast_shapes, normalize_axis, same_type
from onnxtfl.ir.types import DType, TensorType, Type

__all__ = [
    "BitcastConvert",
    "Complex",
    "Convert",
    "DequantizeLinear",
    "Imag",
    "QuantizeLinear",
    "Real",
]

_COMPLEX = {DType.COMPLEX64: DType.FLOAT32, DType.COMPLEX128: DType.FLOAT64}
_FLOAT8 = frozenset(d for d in DType if d.value.startswith("float8") and d is not DType.FLOAT8E8M0)


class Convert(Elementwise):
    """The numbers in the element type `dtype` as a C cast gives them: fractions cut off, integers wrapped, bool: != 0.

    `saturate`: floats beyond a float8 type's range become its largest rather than NaN or infinity. Source: neutral-ops
    3.30, ONNX Cast. Strings can be converted by `evaluate` only: no TFLite kernel does it.
    """

    operands = (Operand("input"),)
    defaults = {"dtype": REQUIRED, "saturate": True}
    core = True
    follows_values = True

    @classmethod
    def infer(cls, node: Node) -> Sequence[Type]:
        return [TensorType(node.attr("dtype"), node.operand(0).tensor_type.shape)]

    @classmethod
    def evaluate(cls, attributes: Mapping[str, Any], *operands: Array | None) -> Array:
        (x,) = operands
        assert x is not None
        dtype: DType = attributes["dtype"]
        if x.dtype == object:
            return _from_objects(x, dtype)
        if dtype is DType.STRING:
            return np.asarray([_text(v) for v in x.reshape(-1).tolist()], object).reshape(x.shape)
        with np.errstate(all="ignore"):
            return _numbers(x, dtype, attributes["saturate"])


def _numbers(x: Array, dtype: DType, saturate: bool) -> Array:
    if dtype is DType.BOOL:
        return np.asarray(numeric.widened(x) != 0)
    if dtype in _FLOAT8 and saturate:
        import ml_dtypes

        limit = float(ml_dtypes.finfo(dtype.numpy).max)
        wide = x.astype(np.float32)
        x = np.where(np.isnan(wide), wide, np.clip(wide, -limit, limit))
    if dtype.bits < 8 and dtype.is_integer:
        return _small_integers(x, dtype)
    if dtype.is_integer and not numeric.is_integral(x) and x.dtype.kind != "b":
        whole = np.trunc(numeric.widened(x))
        return whole.astype(np.uint64 if dtype is DType.UINT64 else np.int64).astype(dtype.numpy)
    return x.astype(dtype.numpy)


def _small_integers(x: Array, dtype: DType) -> Array:
    """Without their fraction, the low bits."""
    import ml_dtypes

    limits = ml_dtypes.iinfo(dtype.numpy)
    whole = x if numeric.is_integral(x) or x.dtype.kind == "b" else np.trunc(numeric.widened(x))
    low = whole.astype(np.int64) & ((1 << dtype.bits) - 1)
    return np.where(low > limits.max, low - (1 << dtype.bits), low).astype(np.int8).astype(dtype.numpy)


def _from_objects(x: Array, dtype: DType) -> Array:
    """Strings as numbers; dims stay dims."""
    items = x.reshape(-1).tolist()
    if not any(isinstance(v, str) for v in items):
        if not dtype.is_integer:
            raise TypeError("dims are integers")
        return x
    if dtype is DType.STRING:
        return x
    numbers = np.asarray([float(v) for v in items], np.float64).reshape(x.shape)
    return _numbers(numbers, dtype, True)


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "1" if value else "0"
    return f"{value:.9g}".replace("inf", "INF").replace("nan", "NaN") if isinstance(value, float) else str(value)


class BitcastConvert(Op):
    """The same bits read as `dtype`.

    An element of another width is read as several along a new last axis, or takes the whole last axis; low bits come
    first. Source: neutral-ops 3.17, ONNX BitCast, TFLite BITCAST.
    """

    operands = (Operand("input"),)
    defaults = {"dtype": REQUIRED}
    core = True

    @classmethod
    def infer(cls, node: Node) -> Sequence[Type]:
        x, dtype = node.operand(0).tensor_type, node.attr("dtype")
        if x.shape is None or x.dtype.bits == dtype.bits:
            return [TensorType(dtype, x.shape)]
        if x.dtype.bits > dtype.bits:
            return [TensorType(dtype, (*x.shape, x.dtype.bits // dtype.bits))]
        if not x.shape or x.shape[-1] not in (dtype.bits // x.dtype.bits,):
            raise ValueError(f"the last axis of {x.shape} does not hold the bytes of {dtype.value}")
        return [TensorType(dtype, x.shape[:-1])]

    @classmethod
    def evaluate(cls, attributes: Mapping[str, Any], *operands: Array | None) -> Array:
        (x,) = operands
        assert x is not None
        dtype = attributes["dtype"].numpy
        x = np.ascontiguousarray(x).reshape(x.shape)
        if x.dtype.itemsize == dtype.itemsize:
            return x.view(dtype)
        if x.dtype.itemsize > dtype.itemsize:
            return x[..., None].view(dtype)
        return np.asarray(x.view(dtype)[..., 0])

    @classmethod
    def relabel(cls, node: Node, index: int, permutation: Permutation) -> Relabeled | None:
        same = node.operand(0).dtype.bits == node.attr("dtype").bits
        return Relabeled((permutation,), (permutation,)) if same else None


class Linear(Op, register=False):
    """What QuantizeLinear and DequantizeLinear share: scale and zero point, for the tensor, by index of `axis`, or by
    blocks of `block_size` along `axis`.
    """

    core = True

    @classmethod
    def check(cls, node: Node) -> Shape | None:
        """The result's shape; ValueError where scale or zero point do not fit."""
        shape, scale = node.operand(0).tensor_type.shape, node.operand(1).tensor_type.shape
        zero = node.optional(2)
        if zero is not None and scale is not None and zero.tensor_type.shape is not None:
            broadcast_shapes(scale, zero.tensor_type.shape)
        for given in (scale, None if zero is None else zero.tensor_type.shape):
            if shape is not None and given is not None and not node.attr("block_size") and len(given) == 1 != given[0]:
                broadcast_shapes((shape[normalize_axis(node.attr("axis"), len(shape))],), given)
        return shape

    @classmethod
    def relabel(cls, node: Node, index: int, permutation: Permutation) -> Relabeled | None:
        scale = node.operand(1).tensor_type.rank
        if scale is None or index not in (0, -1):
            return None
        axis = moved(node.attr("axis"), permutation) if scale else 0
        small = permutation if node.attr("block_size") else None
        operands = (permutation, *(small if v is not None else None for v in node.operands[1:]))
        return Relabeled(operands, (permutation,), {"axis": axis})


def spread(parameter: Array, x: Array, attributes: Mapping[str, Any]) -> Array:
    """Scales or zero points in the shape in which they broadcast over `x`."""
    if parameter.size == 1 and not attributes["block_size"]:
        return parameter.reshape(())
    axis = normalize_axis(attributes["axis"], x.ndim)
    if attributes["block_size"]:
        return np.repeat(parameter, attributes["block_size"], axis).take(np.arange(x.shape[axis]), axis)
    return parameter.reshape([-1 if i == axis else 1 for i in range(x.ndim)])


class QuantizeLinear(Linear):
    """saturate(round_half_even(input / scale) + zero_point) in the element type `dtype`.

    Source: ONNX QuantizeLinear (added); `saturate` as for Convert.
    """

    operands = (Operand("input", NUMERIC), Operand("scale", FLOATS), Operand("zero_point", optional=True))
    defaults = {"dtype": REQUIRED, "axis": 1, "block_size": 0, "saturate": True}

    @classmethod
    def infer(cls, node: Node) -> Sequence[Type]:
        return [TensorType(node.attr("dtype"), cls.check(node))]

    @classmethod
    def evaluate(cls, attributes: Mapping[str, Any], *operands: Array | None) -> Array:
        x, scale, *rest = operands
        assert x is not None and scale is not None
        dtype: DType = attributes["dtype"]
        zero = rest[0] if rest else None
        with np.errstate(all="ignore"):
            quotient = numeric.widened(x) / numeric.widened(spread(scale, x, attributes))
            offset = 0 if zero is None else spread(zero, x, attributes).astype(np.float32)
            if not dtype.is_integer:
                return _numbers(np.asarray(quotient + offset), dtype, attributes["saturate"])
            low, high = (0, 1 << dtype.bits) if not dtype.is_signed else (-(1 << dtype.bits - 1), 1 << dtype.bits - 1)
            return np.clip(np.rint(quotient) + offset, low, high - 1).astype(np.int32).astype(dtype.numpy)


class DequantizeLinear(Linear):
    """(input - zero_point) * scale in the element type `dtype` (None: the scale's).

    Source: ONNX DequantizeLinear (added).
    """

    operands = (Operand("input"), Operand("scale", FLOATS), Operand("zero_point", optional=True))
    defaults = {"dtype": None, "axis": 1, "block_size": 0}

    @classmethod
    def infer(cls, node: Node) -> Sequence[Type]:
        return [TensorType(node.attr("dtype") or node.operand(1).dtype, cls.check(node))]

    @classmethod
    def evaluate(cls, attributes: Mapping[str, Any], *operands: Array | None) -> Array:
        x, scale, *rest = operands
        assert x is not None and scale is not None
        zero = rest[0] if rest else None
        numbers = x.astype(np.int64 if numeric.is_integral(x) else np.float32)
        if zero is not None:
            numbers = numbers - spread(zero, x, attributes).astype(numbers.dtype)
        result = numbers.astype(np.float32) * numeric.widened(spread(scale, x, attributes))
        return np.asarray(result).astype(attributes["dtype"].numpy if attributes["dtype"] else scale.dtype)


class Part(Elementwise, register=False):
    """A real part of complex numbers; real operands have themselves and 0."""

    operands = (Operand("input", FLOATS | frozenset(_COMPLEX)),)
    core = True

    @classmethod
    def infer(cls, node: Node) -> Sequence[Type]:
        type_ = node.operand(0).tensor_type
        return [TensorType(_COMPLEX.get(type_.dtype, type_.dtype), type_.shape)]


class Real(Part):
    """The real part. Source: neutral-ops 3.91."""

    @classmethod
    def evaluate(cls, attributes: Mapping[str, Any], *operands: Array | None) -> Array:
        (x,) = operands
        assert x is not None
        return np.real(x).copy()


class Imag(Part):
    """The imaginary part. Source: neutral-ops 3.67."""

    @classmethod
    def evaluate(cls, attributes: Mapping[str, Any], *operands: Array | None) -> Array:
        (x,) = operands
        assert x is not None
        return np.imag(x).copy()


class Complex(Elementwise):
    """lhs + i * rhs. Source: neutral-ops 3.25. No TFLite kernel makes complex numbers of parts."""

    operands = (Operand("lhs", FLOATS), Operand("rhs", FLOATS))

    @classmethod
    def infer(cls, node: Node) -> Sequence[Type]:
        a, b = node.operand(0).tensor_type, node.operand(1).tensor_type
        dtype = DType.COMPLEX128 if a.dtype is DType.FLOAT64 else DType.COMPLEX64
        return [same_type(a.with_dtype(dtype), broadcast_shapes(a.shape, b.shape))]

    @classmethod
    def evaluate(cls, attributes: Mapping[str, Any], *operands: Array | None) -> Array:
        a, b = operands
        assert a is not None and b is not None
        return np.asarray(a + 1j * b).astype(np.complex128 if a.dtype == np.float64 else np.complex64)
