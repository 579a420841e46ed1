"""Resampling of images and feature maps: Resize.

Which axes are spatial is data (`dims`), so a transposed operand is only renumbered.
Source: neutral-ops 3.99; ONNX Resize-19.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from onnxtfl.ir.attributes import Axes, Choice, Flag, Float
from onnxtfl.ir.data import Array
from onnxtfl.ir.dims import Dim, differ, fresh_symbol, is_static
from onnxtfl.ir.dims import Shape as Dims
from onnxtfl.ir.graph import Node, Value
from onnxtfl.ir.op import FLOATS, INDICES, NUMERIC, Attributes, Op, Operand, Pick, SharedAxes
from onnxtfl.ir.resampling import NEAREST, PLACES, Sampling
from onnxtfl.ir.shapes import dims_from


class Resize(Op):
    """Axes resampled to new sizes, one after the other.

    `sizes`: the new size of each axis of `dims`. `scales`: the factor for computing coordinates, if it is
    not new size by old; without `sizes` the new sizes are floor(size * factor). `roi`: the sampled region, starts
    then ends, for tf_crop_and_resize; elements outside of the axis are `extrapolation_value`. Integers are
    resized in float32 and truncated.
    Source: neutral-ops 3.99 (there sizes for all axes; here `dims` and operands of their length, widened).
    """

    core = True
    shared_axes = SharedAxes(attributes=("dims",))
    operands = (
        Operand("input", NUMERIC),
        Operand("sizes", INDICES, optional=True),
        Operand("scales", FLOATS, optional=True, likely=(1, 3)),
        Operand("roi", FLOATS, optional=True),
    )
    attributes = {
        "dims": Axes(),
        "mode": Choice("nearest", "linear", "cubic", default="nearest"),
        "coordinate_transformation_mode": Choice(*PLACES, default="half_pixel"),
        "nearest_mode": Choice(*NEAREST, default="round_prefer_floor"),
        "cubic_coeff_a": Float(-0.75),
        "exclude_outside": Flag(False),
        "antialias": Flag(False),
        "extrapolation_value": Float(0.0),
    }

    @classmethod
    def picks(cls, attributes: Attributes) -> Pick | None:
        if attributes["coordinate_transformation_mode"] == "tf_crop_and_resize":
            return None
        found: dict[str, Pick] = {"nearest": "element", "linear": "mean"}
        return found.get(attributes["mode"])

    @classmethod
    def folds(cls, node: Node) -> bool:
        """Not if sums are truncated: they depend on the order in the runtime's kernel, which rules reproduce."""
        return not (node.operand(0).dtype.is_integer and node.attr("mode") == "linear")

    @classmethod
    def implied(cls, node: Node) -> Mapping[int, Sequence[float]]:
        sizes = [node.result.shape[axis] for axis in node.attr("dims")]
        return {1: sizes} if node.optional(1) is not None and is_static(sizes) else {}

    @staticmethod
    def shape(x: Value, sizes: Value | None, scales: Value | None, roi: Value | None, **attributes: Any) -> Dims:
        dims, shape = attributes["dims"], list(x.shape)
        Sampling.of(attributes)
        if len(set(dims)) != len(dims) or any(not 0 <= d < x.rank for d in dims):
            raise ValueError(f"axes {tuple(dims)} of a tensor of rank {x.rank}")
        after = _new_sizes([shape[d] for d in dims], sizes, scales)
        if after is None or len(after) != len(dims):
            raise ValueError(f"sizes {after} for the axes {tuple(dims)}")
        pairs = list(zip(dims, after, strict=True))
        grown = [(axis, size) for axis, size in pairs if shape[axis] == 0 and differ(size, 0)]
        for axis, size in pairs:
            shape[axis] = size
        if grown and 0 not in shape:
            raise ValueError("axis {} has no elements to make {} of".format(*grown[0]))
        return tuple(shape)

    @staticmethod
    def compute(x: Array, sizes: Array | None, scales: Array | None, roi: Array | None, **attributes: Any) -> Array:
        dims, sampling = attributes["dims"], Sampling.of(attributes)
        if sizes is None:
            assert scales is not None
            sizes = np.floor(np.asarray([x.shape[d] for d in dims], np.float32) * scales)
        result = x if sampling.mode == "nearest" and roi is None else x.astype(np.float32)
        for i, axis in enumerate(dims):
            size, resized = x.shape[axis], int(sizes[i])
            scale = float(scales[i]) if scales is not None else resized / size
            part = (0.0, 1.0) if roi is None else (float(roi[i]), float(roi[len(dims) + i]))
            if resized == size and scale == 1.0:
                continue
            where = sampling.coordinates(size, resized, scale, part)
            result = _along(sampling, result, axis, where, scale)
            if sampling.coordinate_transformation_mode == "tf_crop_and_resize":
                outside = ((where < 0) | (where > size - 1)).reshape([-1 if a == axis else 1 for a in range(x.ndim)])
                result = np.where(outside, result.dtype.type(attributes["extrapolation_value"]), result)
        return result


def _new_sizes(old: Sequence[Dim], sizes: Value | None, scales: Value | None) -> Sequence[Dim] | None:
    """Return the sizes after a Resize; None if their number is unknown."""
    if sizes is not None:
        return dims_from(sizes, len(old))
    if scales is None or not scales.is_constant:
        return [fresh_symbol() for _ in old]
    after = [scaled(n, float(f)) for n, f in zip(old, scales.numpy(), strict=True)]
    return [fresh_symbol() if d is None else d for d in after]


def scaled(size: Dim, factor: float) -> Dim | None:
    """Return floor(size * factor) in float32; for a dynamic size, None unless the factor or its inverse is integral."""
    if isinstance(size, int):
        return int(np.floor(np.float32(size) * np.float32(factor)))
    if factor == int(factor):
        return size * int(factor)
    inverse = round(1 / factor) if factor > 0 else 0
    return size // inverse if inverse and np.float32(1 / inverse) == np.float32(factor) else None


def _along(sampling: Sampling, x: Array, axis: int, where: Array, scale: float) -> Array:
    if sampling.mode == "nearest":
        return np.take(x, sampling.nearest(where, x.shape[axis]), axis=axis)
    matrix = sampling.matrix(where, x.shape[axis], scale)
    return np.moveaxis(np.tensordot(matrix, x, ((1,), (axis,))), 0, axis)
