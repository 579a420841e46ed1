"""Quantization by explicit operands: QuantizeLinear DequantizeLinear."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from onnxtfl.ir import numeric
from onnxtfl.ir.data import Array
from onnxtfl.ir.dims import Shape
from onnxtfl.ir.graph import Node
from onnxtfl.ir.op import FLOATS, NUMERIC, REQUIRED, Op, Operand, Permutation, Relabeled
from onnxtfl.ir.permutations import moved
from onnxtfl.ir.shapes import broadcast_shapes, normalize_axis
from onnxtfl.ir.types import DType, TensorType, Type


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
                return numeric.cast(np.asarray(quotient + offset), dtype, attributes["saturate"])
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
