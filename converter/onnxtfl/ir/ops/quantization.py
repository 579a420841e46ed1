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
from onnxtfl.ir.quantization import spread, to_real, to_stored
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


def _parameters(attributes: Mapping[str, Any], x: Array, scale: Array, zero: Array | None) -> tuple[Array, Array | int]:
    """Scale and zero point so that they broadcast over `x`."""
    block = attributes["block_size"] or None
    axis = None if scale.size == 1 and not block else normalize_axis(attributes["axis"], x.ndim)
    wide = numeric.widened(spread(scale, x.shape, axis, block))
    return wide, 0 if zero is None else spread(zero, x.shape, None if zero.size == 1 and not block else axis, block)


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
        scale, zero = _parameters(attributes, x, scale, rest[0] if rest else None)
        zero = np.asarray(zero, np.float32)
        if dtype.is_integer:
            return to_stored(numeric.widened(x), scale, zero, dtype)
        with np.errstate(all="ignore"):
            return numeric.cast(np.asarray(numeric.widened(x) / scale + zero), dtype, attributes["saturate"])


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
        dtype = attributes["dtype"].numpy if attributes["dtype"] else scale.dtype
        scale, zero = _parameters(attributes, x, scale, rest[0] if rest else None)
        wide = np.int64 if numeric.is_integral(x) else np.float32
        return to_real(x.astype(wide), scale, np.asarray(zero, wide)).astype(dtype)
