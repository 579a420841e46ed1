"""Quantization by explicit operands: QuantizeLinear DequantizeLinear."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from onnxtfl.ir import numeric
from onnxtfl.ir.attributes import Axis, ElementType, Flag, Integer
from onnxtfl.ir.data import Array
from onnxtfl.ir.dims import Shape as Dims
from onnxtfl.ir.dims import ceildiv, differ
from onnxtfl.ir.divisions import Division, along
from onnxtfl.ir.graph import Node, Value
from onnxtfl.ir.op import FLOATS, NUMERIC, Attributes, Op, Operand, Permutation, Permuted, SharedAxes
from onnxtfl.ir.permutations import physical_axes
from onnxtfl.ir.quantization import broadcastable, exact_type, to_real, to_stored
from onnxtfl.ir.shapes import broadcast_shapes, normalize_axis
from onnxtfl.ir.types import DType, rank_of

_SCALE = Operand("scale", FLOATS, parameter=True)


class Linear(Op, register=False):
    """The base of both: one scale and zero point for the tensor, for each index of `axis`, or for each block of
    `block_size` along `axis`.
    """

    results = (Operand("output", like="dtype"),)
    core = True
    widens = True
    shared_axes = SharedAxes()

    @staticmethod
    def shape(x: Value, scale: Value, zero_point: Value | None, *, axis: int, block_size: int) -> Dims | None:
        shape, parameters = x.tensor_type.shape, [v.tensor_type.shape for v in (scale, zero_point) if v is not None]
        broadcast_shapes(*parameters)
        if block_size < 0:
            raise ValueError(f"blocks of {block_size} elements")
        if block_size and shape is not None:
            _check_blocks(shape, parameters, normalize_axis(axis, len(shape)), block_size)
        for given in parameters:
            if given is not None and len(given) > 1 and not block_size:
                raise ValueError(f"scales or zero points of rank {len(given)}")
            if shape is not None and given is not None and not block_size and len(given) == 1 != given[0]:
                size = shape[normalize_axis(axis, len(shape))]
                if differ(size, given[0]):
                    raise ValueError(f"{given[0]} scales or zero points for an axis of size {size}")
        return shape

    @classmethod
    def divisions(cls, attributes: Attributes, operands: Sequence[Array | None]) -> Iterator[Division]:
        """All axes, with the parameters along them; but not through blocks."""
        x, *parameters = operands
        assert x is not None
        blocked = normalize_axis(attributes["axis"], x.ndim) if attributes["block_size"] else None
        for axis, size in enumerate(x.shape):
            if axis != blocked:
                found = [_place(x, v, axis, attributes["axis"]) for v in parameters]
                yield along(axis, size, (axis, *found))

    @classmethod
    def permuted(cls, node: Node, index: int, permutation: Permutation) -> Permuted | None:
        """Blockwise parameters have the axes of the operand."""
        permuted = super().permuted(node, index, permutation)
        if permuted is None or rank_of(node.operand(1).type) == 0:
            return permuted
        permuted = replace(permuted, attributes={"axis": physical_axes(node.attr("axis"), permutation)})
        if not node.attr("block_size"):
            return permuted
        return replace(permuted, operands=tuple(None if v is None else permutation for v in node.operands))


def _check_blocks(shape: Dims, parameters: Sequence[Dims | None], axis: int, block: int) -> None:
    """Raise ValueError if the shape of blockwise parameters does not fit that of the operand."""
    for given in parameters:
        if given is not None and len(given) != len(shape):
            raise ValueError(f"scales or zero points of rank {len(given)} for blocks of a tensor of rank {len(shape)}")
        if given is not None and differ(given[axis], ceildiv(shape[axis], block)):
            text = f"for an axis of size {shape[axis]} in blocks of {block}"
            raise ValueError(f"{given[axis]} scales or zero points {text}")


def _place(x: Array, parameter: Array | None, axis: int, along_axis: int) -> int | None:
    """The axis of a scale or zero point that is `axis` of `x`; None if it is the same for all indices."""
    if parameter is None or parameter.size == 1:
        return None
    if parameter.ndim == x.ndim > 1:
        return axis
    return 0 if axis == normalize_axis(along_axis, x.ndim) else None


def _parameters(x: Array, scale: Array, zero: Array | None, axis: int, block_size: int) -> tuple[Array, Array | int]:
    """Scale and zero point so that they broadcast over `x`."""
    block = block_size or None
    along = None if scale.size == 1 and not block else normalize_axis(axis, x.ndim)
    wide = broadcastable(scale, x.shape, along, block)
    return wide, 0 if zero is None else broadcastable(
        zero, x.shape, None if zero.size == 1 and not block else along, block
    )


class QuantizeLinear(Linear):
    """saturate(round_half_even(input / scale) + zero_point) in the element type `dtype`; not rounded for float32.

    Source: ONNX QuantizeLinear (added); `saturate` as for Convert.
    """

    operands = (Operand("input", NUMERIC), _SCALE, Operand("zero_point", optional=True))
    attributes = {"dtype": ElementType(), "axis": Axis(1), "block_size": Integer(0), "saturate": Flag(True)}

    @staticmethod
    def compute(
        x: Array, scale: Array, zero: Array | None, *, dtype: DType, axis: int, block_size: int, saturate: bool
    ) -> Array:
        scale, offset = _parameters(x, scale, zero, axis, block_size)
        offset = np.asarray(offset, np.float32)
        if dtype.is_integer:
            return to_stored(x, scale, offset, dtype)
        return numeric.cast(np.asarray(x / scale + offset), dtype, saturate)


class DequantizeLinear(Linear):
    """(input - zero_point) * scale in the element type `dtype` (None: the scale's).

    Source: ONNX DequantizeLinear (added).
    """

    operands = (Operand("input"), _SCALE, Operand("zero_point", optional=True))
    attributes = {"dtype": ElementType(None), "axis": Axis(1), "block_size": Integer(0)}

    @classmethod
    def result_dtype(cls, index: int, given: Sequence[Any], attributes: Mapping[str, Any]) -> Any:
        return attributes["dtype"] or given[1].dtype

    @staticmethod
    def compute(x: Array, scale: Array, zero: Array | None, *, axis: int, block_size: int) -> Array:
        scale, offset = _parameters(x, scale, zero, axis, block_size)
        wide = exact_type(x, scale) if numeric.is_integral(x) else np.float32
        return to_real(x.astype(wide), scale, np.asarray(offset, wide))
