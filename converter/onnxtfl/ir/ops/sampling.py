"""Sampling a feature map at computed places: GridSample, RoiAlign.

Source: neutral-ops 3.61, 3.104; ONNX GridSample-20, RoiAlign-16."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from onnxtfl.ir.data import Array
from onnxtfl.ir.dims import Shape
from onnxtfl.ir.graph import Value
from onnxtfl.ir.op import FLOATS, INDICES, Attributes, Op, Operand
from onnxtfl.ir.shapes import broadcast_dim


class GridSample(Op):
    """input [n, c, spatial...] sampled at the places grid [n, out..., rank]: the result is [n, c, out...].

    A place names the last spatial axis first; -1 and 1 are the outer elements' centers (`align_corners`) or their
    edges. `mode`: nearest (halves to even), linear, cubic (a = -0.75). `padding_mode`: a neighbour outside is zero, the
    border's element, or that of the mirrored map (as in ONNX Runtime and PyTorch; ONNX's reference moves the place).
    Source: neutral-ops 3.61, ONNX GridSample-20.
    """

    core = True
    operands = (Operand("input", FLOATS), Operand("grid", FLOATS))
    defaults: ClassVar[Attributes] = {"mode": "linear", "padding_mode": "zeros", "align_corners": False}

    choices = {"mode": ("nearest", "linear", "cubic"), "padding_mode": ("zeros", "border", "reflection")}
    widens = True

    @staticmethod
    def shape(x: Value, grid: Value) -> Shape:
        if grid.rank != x.rank or x.rank < 3 or grid.shape[-1] != x.rank - 2:
            raise ValueError(f"a grid of shape {grid.shape} for a map of shape {x.shape}")
        return (*x.shape[:2], *grid.shape[1:-1])

    @classmethod
    def compute(cls, x: Array, grid: Array, **attributes: Any) -> Array:
        places = [cls._place(attributes, grid[..., -1 - i], size) for i, size in enumerate(x.shape[2:])]
        if attributes["mode"] == "nearest":
            return cls._taken(attributes, x, places)
        bases = [np.floor(p) for p in places]
        offsets = (0, 1) if attributes["mode"] == "linear" else (-1, 0, 1, 2)
        total = np.zeros((*x.shape[:2], *grid.shape[1:-1]), x.dtype)
        for tap in itertools.product(offsets, repeat=len(places)):
            weight = np.ones(grid.shape[:-1], x.dtype)
            for place, base, t in zip(places, bases, tap, strict=True):
                weight = weight * tap_weight(attributes["mode"], np.abs(place - base - t))
            total += weight[:, None] * cls._taken(attributes, x, [b + t for b, t in zip(bases, tap, strict=True)])
        return total

    @classmethod
    def _place(cls, attributes: Attributes, where: Array, size: int) -> Array:
        """Where along an axis a grid's number points."""
        place = (where + 1) / 2 * (size - 1) if attributes["align_corners"] else ((where + 1) * size - 1) / 2
        return np.rint(place) if attributes["mode"] == "nearest" else place

    @classmethod
    def _taken(cls, attributes: Attributes, x: Array, places: Sequence[Array]) -> Array:
        """The elements at whole places, [n, c, out...]."""
        inside = np.ones(places[0].shape, bool)
        index: list[Any] = [np.arange(x.shape[0]).reshape(-1, *[1] * (places[0].ndim - 1)), slice(None)]
        for place, size in zip(places, x.shape[2:], strict=True):
            if attributes["padding_mode"] == "zeros":
                inside &= (place >= 0) & (place <= size - 1)
            reflects = attributes["padding_mode"] == "reflection"
            whole = mirrored(place, *_bounds(attributes, size)) if reflects else place
            index.append(np.clip(whole, 0, size - 1).astype(np.int64))
        taken: Array = np.moveaxis(x[tuple(index)], -1, 1)
        return np.where(inside[:, None], taken, x.dtype.type(0))


def _bounds(attributes: Attributes, size: int) -> tuple[float, float]:
    """The ends of an axis, at which it is mirrored."""
    return (0.0, size - 1.0) if attributes["align_corners"] else (-0.5, size - 0.5)


def mirrored(place: Array, low: float, high: float) -> Array:
    """`place` reflected at the bounds until it lies between them."""
    span = high - low
    if span <= 0:
        return np.full_like(place, low)
    rest = np.mod(np.abs(place - low), 2 * span)
    return low + np.where(rest > span, 2 * span - rest, rest)


def tap_weight(mode: str, distance: Array) -> Array:
    """The weight of an element at `distance` under linear or cubic (a = -0.75) interpolation."""
    if mode == "linear":
        return 1 - distance
    near = (1.25 * distance - 2.25) * distance * distance + 1
    far = ((-0.75 * distance + 3.75) * distance - 6) * distance + 3
    return np.where(distance <= 1, near, far)


MOST_SAMPLES = 1 << 16
"""The most that a region is cut into along one axis."""


class RoiAlign(Op):
    """Each region of interest of input [n, c, h, w] brought to [c, output_height, output_width] by bilinear samples.

    `rois` [r, 4] as x1, y1, x2, y2, `batch_indices` [r]. `sampling_ratio` samples along each side of an output cell (0:
    as many as the region has elements a cell), their mean or (`mode` max) the largest weighted term.
    Source: neutral-ops 3.104, ONNX RoiAlign-16.
    """

    core = True
    operands = (Operand("input", FLOATS), Operand("rois", FLOATS), Operand("batch_indices", INDICES))
    defaults: ClassVar[Attributes] = {
        "mode": "avg",
        "coordinate_transformation_mode": "half_pixel",
        "output_height": 1,
        "output_width": 1,
        "sampling_ratio": 0,
        "spatial_scale": 1.0,
    }

    widens = True

    @staticmethod
    def shape(x: Value, rois: Value, batch_indices: Value, **attributes: Any) -> Shape:
        if x.rank != 4 or rois.rank != 2:
            raise ValueError(f"regions of shape {rois.shape} of a map of shape {x.shape}")
        numbers = batch_indices.tensor_type.shape
        if numbers is not None and (len(numbers) != 1 or broadcast_dim(numbers[0], rois.shape[0]) != rois.shape[0]):
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
        """The places sampled for each of `count` cells: [count, samples]."""
        cell = length / count
        samples = attributes["sampling_ratio"] or max(1, int(np.ceil(cell)))
        inner = (np.arange(samples) + 0.5) * cell / samples
        return np.asarray(start + np.arange(count)[:, None] * cell + inner, np.float32)


def bilinear_terms(image: Array, rows: Array, columns: Array) -> Array:
    """The four weighted neighbours [4, c, rows, columns] at each place; beyond one element outside they are zeros."""
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
