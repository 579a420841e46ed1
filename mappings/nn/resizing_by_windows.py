"""Quantized Resize as repeated elements and a convolution, for NPUs that scale images by few factors.

Linear interpolation by a factor p / q is a mean over a window of elements that are repeated p times, at every q-th of
them. With half pixels and an odd p + q the window has p + 1 weights, of which the first and last are half as large;
else p equal weights. All are small integers, so that results are rounded once::

    Resize(%x: [1,2], factor 4)    ->    Conv(Pad(%x repeated 4 times, 2 on each side), [1,2,2,2,1] / 8)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from onnxtfl.mappings.nn.repeated_elements import repeats_of

from onnxtfl.build.sizes import slice_axes
from onnxtfl.dataclass import dataclass
from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.dims import product
from onnxtfl.ir.graph import Node, Value, constant
from onnxtfl.ir.op import attributes_of
from onnxtfl.ir.ops.convolution import channels_first_attributes, channels_last_attributes
from onnxtfl.ir.quantization import Quantization
from onnxtfl.ir.quantized import quantization_of
from onnxtfl.ir.resampling import Sampling
from onnxtfl.ir.reshape import reshape
from onnxtfl.ir.spatial import Window
from onnxtfl.ir.types import DType, TensorType
from onnxtfl.rewriting.registry import decompose

_MOST_REPEATS = 16
"""The most repetitions of an element along an axis: windows have as many weights."""
_SCALED = (8, 4, 2)
"""The factors by which the NPU repeats the rows and columns of one image."""


@dataclass(frozen=True)
class _Axis:
    """One resized axis: each element `repeats` times, then windows of integer `weights`, from `start` on."""

    repeats: int
    weights: tuple[int, ...]
    stride: int
    start: int

    def padding(self, size: int, resized: int) -> tuple[int, int]:
        """The elements that windows read before and after those repeated."""
        end = (resized - 1) * self.stride + self.start + len(self.weights)
        return max(0, -self.start), max(0, end - size * self.repeats)


def _axis(sampling: Sampling, size: int, resized: int, scale: float | None) -> _Axis | None:
    """The windows along an axis; None if linear interpolation needs other weights."""
    factor = resized / size if scale is None else scale
    where = sampling.coordinates(size, resized, factor)
    for centers, ratio in ((True, Fraction(factor)), (False, Fraction(factor)), (False, _of_corners(size, resized))):
        near = ratio.limit_denominator(_MOST_REPEATS)
        p, q = near.numerator, near.denominator
        places = (np.arange(resized) + 0.5 * centers) * q / p - 0.5 * centers if p else np.full(resized, np.inf)
        if p <= _MOST_REPEATS and np.allclose(where, places, rtol=0, atol=2e-6 * size):
            return _windows(p, q, centers)
    return None


def _of_corners(size: int, resized: int) -> Fraction:
    """The factor for aligned first and last elements."""
    return Fraction(resized - 1, size - 1) if size > 1 < resized else Fraction(0)


def _windows(p: int, q: int, centers: bool) -> _Axis:
    if centers and (p + q) % 2:
        return _Axis(p, (1, *[2] * (p - 1), 1), q, (q - 1 - p) // 2)
    return _Axis(p, (1,) * p, q, (q - p) // 2 if centers else 0)


def _is_resized_image(node: Node) -> bool:
    """Whether images of one quantization are resized to known sizes."""
    x, quantization = node.operand(0), quantization_of(node.operand(0))
    is_known = x.is_static and node.result.is_static and node.optional(3) is None
    scales = node.optional(2)
    is_image = is_known and x.rank == 4 and tuple(node.attr("dims")) in ((1, 2), (2, 3))
    return is_image and quantization is not None and quantization.per_tensor and (scales is None or scales.is_constant)


def _sizes(node: Node) -> list[tuple[int, int, float | None]]:
    """The size, new size and factor of each axis."""
    x, y, scales = node.operand(0), node.result, node.optional(2)
    factors = [None, None] if scales is None else [float(v) for v in scales.numpy()]
    return [(x.size(d), y.size(d), f) for d, f in zip(node.attr("dims"), factors, strict=True)]


@decompose(ops.Resize, "ethos-u", when=_is_resized_image, benefit=1)
def _resized_by_windows(b: Builder, node: Node) -> Value | None:
    """Interpolate linearly by a mean over repeated elements."""
    sampling = Sampling.of(attributes_of(node))
    if sampling.mode != "linear" or sampling.antialias:
        return None
    x, dims, sizes = node.operand(0), node.attr("dims"), _sizes(node)
    axes = [_axis(sampling, *each) for each in sizes]
    known = [axis for axis in axes if axis is not None]
    if len(known) < len(axes) or product(x.shape) == 0:
        return None
    x = _repeated(b, x, dims, [axis.repeats for axis in known])
    rows = np.zeros((4, 2), np.int64)
    rows[list(dims)] = [axis.padding(*each[:2]) for axis, each in zip(known, sizes, strict=True)]
    if rows.any():
        x = b(ops.Pad, x, rows, None, mode="symmetric")
    starts = {d: slice(axis.start, None) for d, axis in zip(dims, known, strict=True) if axis.start > 0}
    x = slice_axes(b, x, starts) if starts else x
    return _weighted(b, x, dims, known, [each[1] for each in sizes])


def _weighted(b: Builder, x: Value, dims: Sequence[int], axes: Sequence[_Axis], sizes: Sequence[int]) -> Value:
    """The mean over each window of an image."""
    strides = tuple(axis.stride for axis in axes)
    if all(len(axis.weights) == 1 for axis in axes):
        ends = [(size - 1) * s + 1 for size, s in zip(sizes, strides, strict=True)]
        return slice_axes(b, x, {d: slice(0, end, s) for d, end, s in zip(dims, ends, strides, strict=True)})
    weights = np.outer(axes[0].weights, axes[1].weights).astype(np.int8)
    window = Window(weights.shape, strides, (1, 1), (0,) * 4)
    feature = 1 if tuple(dims) == (2, 3) else 3
    groups = x.size(feature)
    shape = (groups, 1, *window.shape) if feature == 1 else (1, *window.shape, groups)
    stored = np.broadcast_to(weights if feature == 1 else weights[..., None], shape)
    quantization = Quantization("int8", (float(np.float32(1 / weights.sum(dtype=np.int64))),), (0,))
    kernel = constant(np.ascontiguousarray(stored), type_=TensorType(DType.FLOAT32, shape, quantization))
    numbers: Mapping[str, Any] = channels_first_attributes(window, groups)
    if feature == 3:
        numbers = {**numbers, **channels_last_attributes(2, 0, 3, (1, 2))}
    return b(ops.Conv, x, kernel, None, **numbers)


def _repeated(b: Builder, x: Value, dims: Sequence[int], counts: Sequence[int]) -> Value:
    """`x` with each element repeated along the axes `dims`."""
    if all(count == 1 for count in counts):
        return x
    sizes = np.asarray([x.size(d) * count for d, count in zip(dims, counts, strict=True)], np.int32)
    places = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    made = b(ops.Resize, x, sizes, dims=tuple(dims), mode="nearest", **places)
    made.type = made.tensor_type.stored_as(quantization_of(x))
    return made


@decompose(ops.Resize, "ethos-u", when=_is_resized_image)
def _repeated_by_broadcasting(b: Builder, node: Node) -> Value | None:
    """Repeat elements: by 8 and the rest, or along new axes by BroadcastTo."""
    x, dims, counts = node.operand(0), node.attr("dims"), repeats_of(node)
    if counts is None:
        return None
    most = next((k for k in _SCALED if counts[0] % k == 0), 1)
    if most > 1 and counts[0] == counts[1] > most and x.shape[0] == 1:
        rest = counts[0] // most
        return _repeated(b, _repeated(b, x, dims, [most, most]), dims, [rest, rest])
    first, second = dims
    shape = [*x.shape[: first + 1], 1, x.shape[second], 1, *x.shape[second + 1 :]]
    wide = list(shape)
    wide[first + 1], wide[second + 2] = counts
    return reshape(b, b(ops.BroadcastTo, reshape(b, x, shape), np.asarray(wide, np.int64)), node.result.shape)
