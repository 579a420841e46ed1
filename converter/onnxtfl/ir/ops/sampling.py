"""Sampling of a feature map at computed coordinates: GridSample RoiAlign MaxRoiPool.

Source: neutral-ops 3.61, 3.104; ONNX GridSample-20, RoiAlign-16."""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from onnxtfl.ir.attributes import Choice, Flag, Float, Integer
from onnxtfl.ir.budget import check_elements
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.data import Array
from onnxtfl.ir.dims import Dim, differ, known_size, product
from onnxtfl.ir.dims import Shape as Dims
from onnxtfl.ir.formula import Formula, Term, by_expansion
from onnxtfl.ir.graph import Value, constant
from onnxtfl.ir.op import FLOATS, INDICES, NUMERIC, Attributes, Op, Operand
from onnxtfl.ir.ops.casts import Convert
from onnxtfl.ir.ops.concatenation import Concatenate
from onnxtfl.ir.ops.gathering import Gather
from onnxtfl.ir.ops.reductions import Reduce
from onnxtfl.ir.ops.slicing import END, Slice
from onnxtfl.ir.reshape import dim_value, reshape, transposed, with_unit_axis
from onnxtfl.ir.types import DType

_Size = Term | float


def size_in(b: Builder, dim: Dim, source: Value, dtype: DType) -> _Size:
    """Return the size `dim` of `source` in `dtype`; a vector of one entry if dynamic."""
    if isinstance(dim, int):
        return dim if dtype.is_integer else float(dim)
    return Term(b, b(Convert, dim_value(b, dim, source), dtype=dtype))


class FeatureMap:
    """A map [n, c, spatial...] whose elements are gathered at coordinates, as [n, p, c].

    `places`: a float term [n, p] for each spatial axis.
    """

    def __init__(self, x: Term) -> None:
        self.b, self.x = x.b, x.value
        last = transposed(x.b, x.value, (0, *range(2, x.rank), 1))
        batch, channels, *spatial = x.value.shape
        self.flat = reshape(x.b, last, (batch, product(spatial), channels))
        self.sizes = [size_in(x.b, d, x.value, DType.FLOAT32) for d in spatial]
        self._counts = [size_in(x.b, d, x.value, DType.INT32) for d in spatial]

    def at(self, places: Sequence[Term]) -> Term:
        """Return the elements at integral `places`, clipped to the map."""
        index: Term | None = None
        for place, size, count in zip(places, self.sizes, self._counts, strict=True):
            whole = place.max(0.0).min(size - 1).to(DType.INT32)
            index = whole if index is None else index * count + whole
        assert index is not None
        return Term(self.b, self.b(Gather, self.flat, index.value, axis=1, batch_dims=1))

    def inside(self, places: Sequence[Term]) -> Term:
        """Return 1.0 where integral `places` are inside the map, else 0.0; [n, p]."""
        on = ((p >= 0.0) & (p <= size - 1) for p, size in zip(places, self.sizes, strict=True))
        return functools.reduce(operator.and_, on).to(self.x.dtype)

    def sampled(self, places: Sequence[Term], mode: str, padding: str = "zeros", corners: bool = False) -> Term:
        """Sample the map at `places` (integral for mode nearest), with the modes of :class:`GridSample`."""
        if mode == "nearest":
            return self._weighted(places, None, padding, corners)
        bases = [p.floor() for p in places]
        rests = [p - base for p, base in zip(places, bases, strict=True)]
        taps = itertools.product((0, 1) if mode == "linear" else (-1, 0, 1, 2), repeat=len(places))
        return functools.reduce(operator.add, (self._tap(mode, bases, rests, tap, padding, corners) for tap in taps))

    def _tap(
        self, mode: str, bases: Sequence[Term], rests: Sequence[Term], tap: Sequence[int], padding: str, corners: bool
    ) -> Term:
        weight = functools.reduce(operator.mul, (tap_weight(mode, r, t) for r, t in zip(rests, tap, strict=True)))
        return self._weighted([p + float(t) for p, t in zip(bases, tap, strict=True)], weight, padding, corners)

    def _weighted(self, places: Sequence[Term], weight: Term | None, padding: str, corners: bool) -> Term:
        """Return the elements at integral `places`, extended by `padding`, times their weight."""
        if padding == "reflection":
            places = [mirrored(p, size, corners) for p, size in zip(places, self.sizes, strict=True)]
        taken = self.at(places)
        if padding == "zeros":
            inside = self.inside(places)
            weight = inside if weight is None else weight * inside
        return taken if weight is None else taken * along_channels(weight)


def along_channels(weight: Term) -> Term:
    """Reshape weights [n, p] to [n, p, 1]."""
    return Term(weight.b, with_unit_axis(weight.b, weight.value, weight.rank))


def mirrored(place: Term, size: _Size, corners: bool) -> Term:
    """Reflect `place` at the centers of the outer elements (`corners`) or at their edges until it is inside."""
    low, high = (0.0, size - 1) if corners else (-0.5, size - 0.5)
    span = high - low
    if isinstance(span, float) and span <= 0:
        return place * 0.0
    rest = (place - low).abs() % (span * 2.0)
    return (rest > span).choose(span * 2.0 - rest, rest) + low


def tap_weight(mode: str, rest: Term, tap: int) -> Term:
    """Return the weight of the element `tap` positions after floor(coordinate), whose fraction is `rest`."""
    if mode == "linear":
        return rest if tap else 1.0 - rest
    distance = (rest - float(tap)).abs()
    if tap in (0, 1):
        return (distance * 1.25 - 2.25) * distance * distance + 1.0
    return ((distance * -0.75 + 3.75) * distance - 6.0) * distance + 3.0


class GridSample(Formula):
    """input [n, c, spatial...] sampled at coordinates grid [n, out..., rank]: the result is [n, c, out...].

    Coordinates have the last spatial axis first; -1 and 1 are the outer elements' centers (`align_corners`) or edges.
    `mode`: nearest (halves to even), linear, cubic (a = -0.75). `padding_mode`: a neighbor outside is zero, the
    border's element, or that of the mirrored map (as in ONNX Runtime and PyTorch; ONNX's reference moves the
    coordinate). Integers need mode nearest. Source: neutral-ops 3.61, ONNX GridSample-20.
    """

    operands = (Operand("input", NUMERIC), Operand("grid", FLOATS))
    attributes = {
        "mode": Choice("nearest", "linear", "cubic", default="linear"),
        "padding_mode": Choice("zeros", "border", "reflection", default="zeros"),
        "align_corners": Flag(False),
    }

    @staticmethod
    def shape(x: Value, grid: Value) -> Dims:
        if grid.rank < 3:
            raise ValueError(f"a grid of rank {grid.rank}")
        if grid.rank != x.rank or x.rank < 3 or differ(grid.shape[-1], x.rank - 2):
            raise ValueError(f"a grid of rank {grid.rank} of places of {grid.shape[-1]} for a map of rank {x.rank}")
        return (*x.shape[:2], *grid.shape[1:-1])

    @classmethod
    def formula(cls, x: Term, grid: Term, mode: str, padding_mode: str, align_corners: bool) -> Term:
        batch, *out, _ = grid.value.shape
        rank = x.rank - 2
        if not x.dtype.is_float and mode != "nearest":
            raise ValueError(f"interpolated integers, mode {mode}")
        points = reshape(
            x.b, grid.to(x.dtype if x.dtype.is_float else DType.FLOAT32).value, (batch, product(out), rank)
        )
        feature_map = FeatureMap(x)
        known = _known(Term(x.b, points)).value
        columns = [Term(x.b, x.b(Gather, known, np.asarray(rank - 1 - i), axis=2)) for i in range(rank)]
        places = [_place(c, size, mode, align_corners) for c, size in zip(columns, feature_map.sizes, strict=True)]
        sampled = feature_map.sampled(places, mode, padding_mode, align_corners).value
        shaped = reshape(x.b, sampled, (x.value.shape[0], *out, x.value.shape[1]), x.value, grid.value)
        return Term(x.b, transposed(x.b, shaped, (0, x.rank - 1, *range(1, x.rank - 1))))


_FARTHEST = 1e15
"""The largest valid coordinate; ONNX Runtime's limit, which depends on the size of the map, is larger."""


def _known(points: Term) -> Term:
    """Replace NaN, infinite and huge coordinates, which have no index, by -1, as in ONNX Runtime 1.32."""
    farthest = _FARTHEST if points.dtype.bits >= 32 else 3e4
    return (points.abs() < farthest).choose(points, -1.0)


def _place(x: Term, size: _Size, mode: str, corners: bool) -> Term:
    """Return the coordinate along an axis for a normalized coordinate."""
    place = (x + 1.0) * 0.5 * (size - 1) if corners else ((x + 1.0) * size - 1.0) * 0.5
    return place.apply("RoundNearestEven") if mode == "nearest" else place


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
