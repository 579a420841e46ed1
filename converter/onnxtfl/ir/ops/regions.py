"""Regions of interest of a feature map: RoiAlign MaxRoiPool.

Source: neutral-ops 3.78, 3.104; ONNX RoiAlign-16, MaxRoiPool.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from onnxtfl.ir.attributes import Choice, Float, Integer
from onnxtfl.ir.budget import check_elements
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.data import Array
from onnxtfl.ir.dims import Shape as Dims
from onnxtfl.ir.dims import differ, known_size
from onnxtfl.ir.formula import Term, by_expansion
from onnxtfl.ir.graph import Value, constant
from onnxtfl.ir.op import FLOATS, INDICES, Attributes, Op, Operand
from onnxtfl.ir.ops.casts import Convert
from onnxtfl.ir.ops.concatenation import Concatenate
from onnxtfl.ir.ops.gathering import Gather
from onnxtfl.ir.ops.reductions import Reduce
from onnxtfl.ir.ops.slicing import END, Slice
from onnxtfl.ir.reshape import reshape
from onnxtfl.ir.types import DType

MOST_SAMPLES = 1 << 16
"""The most samples of a region along one axis."""


class RoiAlign(Op):
    """Each region of interest of input [n, c, h, w], resampled to [c, output_height, output_width] bilinearly.

    `rois` [r, 4] as x1, y1, x2, y2, `batch_indices` [r]. `sampling_ratio` samples along each side of an output cell (0:
    as many as the region has elements a cell), their mean or (`mode` max) the largest weighted term.
    Source: neutral-ops 3.104, ONNX RoiAlign-16.
    """

    core = True
    operands = (Operand("input", FLOATS), Operand("rois", FLOATS), Operand("batch_indices", INDICES))
    attributes = {
        "mode": Choice("avg", "max", default="avg"),
        "coordinate_transformation_mode": Choice("half_pixel", "output_half_pixel", default="half_pixel"),
        "output_height": Integer(1),
        "output_width": Integer(1),
        "sampling_ratio": Integer(0),
        "spatial_scale": Float(1.0),
    }

    widens = True

    @staticmethod
    def shape(x: Value, rois: Value, batch_indices: Value, **attributes: Any) -> Dims:
        if x.rank != 4 or rois.rank != 2:
            raise ValueError(f"regions of shape {rois.shape} of a map of shape {x.shape}")
        numbers = batch_indices.tensor_type.shape
        if numbers is not None and (len(numbers) != 1 or differ(numbers[0], rois.shape[0])):
            raise ValueError(f"regions of shape {rois.shape}, their numbers of shape {numbers}")
        height, width = attributes["output_height"], attributes["output_width"]
        if not (1 <= height <= MOST_SAMPLES and 1 <= width <= MOST_SAMPLES):
            raise ValueError(f"a result of {height} by {width}")
        if not 0 <= attributes["sampling_ratio"] <= MOST_SAMPLES or attributes["spatial_scale"] <= 0:
            raise ValueError(f"sampling_ratio {attributes['sampling_ratio']}, scale {attributes['spatial_scale']}")
        return (rois.shape[0], x.shape[1], height, width)

    @classmethod
    def compute(cls, x: Array, rois: Array, batch_indices: Array, **attributes: Any) -> Array:
        regions = rois * np.float32(attributes["spatial_scale"])
        shape = (len(regions), x.shape[1], attributes["output_height"], attributes["output_width"])
        result = np.zeros(shape, x.dtype)
        for r, region in enumerate(regions):
            result[r] = cls._region(attributes, x[batch_indices[r]], region)
        return result

    @classmethod
    def _region(cls, attributes: Attributes, image: Array, region: Array) -> Array:
        half = attributes["coordinate_transformation_mode"] == "half_pixel"
        x1, y1, x2, y2 = region - (0.5 if half else 0.0)
        height, width = (y2 - y1, x2 - x1) if half else (max(y2 - y1, 1.0), max(x2 - x1, 1.0))
        rows = cls._samples(attributes, y1, height, attributes["output_height"])
        columns = cls._samples(attributes, x1, width, attributes["output_width"])
        terms = bilinear_terms(image, rows.reshape(-1), columns.reshape(-1))
        cells = terms.reshape(4, -1, *rows.shape, *columns.shape)
        if attributes["mode"] == "max":
            return np.asarray(cells.max(axis=(0, 3, 5)))
        return np.asarray(cells.sum(axis=0).mean(axis=(2, 4)))

    @classmethod
    def _samples(cls, attributes: Attributes, start: float, length: float, count: int) -> Array:
        """Return the sample coordinates for each of `count` cells: [count, samples]."""
        cell = length / count
        samples = attributes["sampling_ratio"] or max(1, int(np.ceil(cell)))
        inner = (np.arange(samples) + 0.5) * cell / samples
        return np.asarray(start + np.arange(count)[:, None] * cell + inner, np.float32)


def bilinear_terms(image: Array, rows: Array, columns: Array) -> Array:
    """Return the four weighted neighbors [4, c, rows, columns] of each sample; 0 more than one element outside."""
    sides = []
    for places, size in ((rows, image.shape[1]), (columns, image.shape[2])):
        inside = (places >= -1) & (places <= size)
        clipped = np.clip(places, 0, size - 1)
        low = np.floor(clipped).astype(np.int64)
        rest = clipped - low
        sides.append((low, np.minimum(low + 1, size - 1), (1 - rest) * inside, rest * inside))
    (top, bottom, up, down), (left, right, west, east) = sides
    corners = [(top, left, up, west), (top, right, up, east), (bottom, left, down, west), (bottom, right, down, east)]
    return np.stack([image[:, r][:, :, c] * a[:, None] * z for r, c, a, z in corners]).astype(image.dtype)


@by_expansion(
    Operand("input", FLOATS), Operand("rois", FLOATS), attributes={"layout": Choice("NCHW", "NHWC", default="NCHW")}
)
def MaxRoiPool(
    b: Builder, x: Value, rois: Value, pooled_shape: Sequence[int], spatial_scale: float = 1.0, layout: str = "NCHW"
) -> Value:
    """The maximum of each of `pooled_shape` cells of regions (batch, x1, y1, x2, y2): [regions, c, rows, columns].

    `layout`: of the map and of the result; the map has a static size. Corners are rounded, a cell covers all elements
    it touches, an empty one is 0. Source: neutral-ops 3.78; ONNX MaxRoiPool; ONNX Runtime roi_pool.cc.
    """
    if x.rank != 4 or len(pooled_shape) != 2:
        raise ValueError(f"cells {tuple(pooled_shape)} of a map of rank {x.rank}")
    spatial = (2, 3) if layout == "NCHW" else (1, 2)
    numbers = [Term(b, b(Slice, rois, [0, i], [END, i + 1], [1, 1])) for i in range(5)]
    batch = reshape(b, b(Convert, numbers[0].value, dtype=DType.INT32), (rois.shape[0],))
    corners = [(n * spatial_scale).apply("Round") for n in numbers[1:]]
    image = b(Gather, x, batch, axis=0)
    for axis, cells, start, end in zip(spatial, pooled_shape, corners[1::-1], corners[:1:-1], strict=True):
        image = _cell_maxima(image, axis, known_size(x.shape[axis], "the size of the map"), cells, start, end)
    value = Term(b, image)
    return (value > float(np.finfo(np.float32).min)).choose(value, 0.0).value


def _cell_maxima(image: Value, axis: int, size: int, cells: int, start: Term, end: Term) -> Value:
    """Return the maximum of each cell along an axis; the lowest value of the dtype for an empty cell."""
    b = start.b
    length = (end - start + 1.0).max(1.0) * (1.0 / cells)
    check_elements(size, "the positions along an axis")
    places = constant(np.arange(size, dtype=np.float32)[None])
    parts = []
    for cell in range(cells):
        low = ((length * float(cell)).floor() + start).max(0.0).min(float(size))
        high = ((length * float(cell + 1)).apply("Ceil") + start).max(0.0).min(float(size))
        inside = (low <= Term(b, places)) & (high > Term(b, places))
        shape = [start.value.shape[0], 1, 1, 1]
        shape[axis] = size
        mask = Term(b, reshape(b, inside.value, shape))
        lowest = float(np.finfo(np.float32).min)
        parts.append(b(Reduce, mask.choose(Term(b, image), lowest).value, [axis], kind="max", keepdims=True))
    return parts[0] if cells == 1 else b(Concatenate, *parts, axis=axis)
