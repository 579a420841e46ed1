"""Sampling of a feature map at computed coordinates: GridSample.

Source: neutral-ops 3.61; ONNX GridSample-20.
"""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Sequence

import numpy as np

from onnxtfl.ir.attributes import Choice, Flag
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.dims import Dim, differ, product
from onnxtfl.ir.dims import Shape as Dims
from onnxtfl.ir.formula import Formula, Term
from onnxtfl.ir.graph import Value
from onnxtfl.ir.op import FLOATS, NUMERIC, Operand
from onnxtfl.ir.ops.casts import Convert
from onnxtfl.ir.ops.gathering import Gather
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
        if padding in ("reflection", "centers", "edges"):
            at_centers = corners if padding == "reflection" else padding == "centers"
            places = [mirrored(p, size, at_centers) for p, size in zip(places, self.sizes, strict=True)]
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
    border's element, or that of the map mirrored at the outer elements' `centers` or `edges`, or (reflection) at those
    that are -1 and 1 (as in ONNX Runtime and PyTorch; ONNX's reference moves the coordinate). Integers need mode
    nearest. Source: neutral-ops 3.61, ONNX GridSample-20.
    """

    operands = (Operand("input", NUMERIC), Operand("grid", FLOATS))
    attributes = {
        "mode": Choice("nearest", "linear", "cubic", default="linear"),
        "padding_mode": Choice("zeros", "border", "reflection", "centers", "edges", default="zeros"),
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
