"""Sampling of a feature map at computed coordinates: GridSample.

Source: neutral-ops 3.61; ONNX GridSample-20.
"""

from __future__ import annotations

import functools
import itertools
import math
import operator
from collections.abc import Iterator, Sequence

import numpy as np

from onnxtfl.ir.attributes import Choice, Flag
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.dims import Dim, differ, is_static, product
from onnxtfl.ir.dims import Shape as Dims
from onnxtfl.ir.formula import Formula, Term
from onnxtfl.ir.graph import Value
from onnxtfl.ir.op import FLOATS, NUMERIC, Operand
from onnxtfl.ir.ops.casts import Convert
from onnxtfl.ir.ops.concatenation import Concatenate
from onnxtfl.ir.ops.gathering import Gather
from onnxtfl.ir.ops.slicing import slice_axes
from onnxtfl.ir.ops.splitting import Split
from onnxtfl.ir.reshape import dim_value, reshape, transposed, with_unit_axis
from onnxtfl.ir.types import DType

_Size = Term | float


def size_in(b: Builder, dim: Dim, source: Value, dtype: DType) -> _Size:
    """Return the size `dim` of `source` in `dtype`; a vector of one entry if dynamic."""
    if isinstance(dim, int):
        return dim if dtype.is_integer else float(dim)
    return Term(b, b(Convert, dim_value(b, dim, source), dtype=dtype))


_TAPS = {"nearest": (0,), "linear": (0, 1), "cubic": (-1, 0, 1, 2)}
"""The elements that a mode reads along an axis, from the one at floor(coordinate)."""
_FEW_CHANNELS = 16
"""For up to so many channels, the time of a gather depends on the number of places."""


class FeatureMap:
    """A map [n, c, spatial...] that is sampled at coordinates, as [n, p, c].

    `places`: a float term [n, p] for each spatial axis.
    """

    def __init__(self, x: Term) -> None:
        self.b = x.b
        self.last = Term(x.b, transposed(x.b, x.value, (0, *range(2, x.rank), 1)))
        self.sizes = [size_in(x.b, d, x.value, DType.FLOAT32) for d in x.value.shape[2:]]

    def sampled(self, places: Sequence[Term], mode: str, padding: str = "zeros", corners: bool = False) -> Term:
        """Sample the map at `places` (integral for mode nearest), with the modes of :class:`GridSample`."""
        first, last = _TAPS[mode][0], _TAPS[mode][-1]
        if padding == "zeros":
            low = max(1, last)  # from places further outside, no element is read
            around = _Elements.between_zeros(self.last, low - first, 1 - first + last)
            inside = [p.max(-float(low)).min(n - float(first)) for p, n in self._with_sizes(places)]
            return self._summed(around, inside, mode)
        if padding == "border" and mode != "cubic":
            around = _Elements.between_zeros(self.last, 0, last)
            return self._summed(around, [p.max(0.0).min(n - 1) for p, n in self._with_sizes(places)], mode)
        return self._extended(_Weights(mode, places), padding, corners)

    def _with_sizes(self, places: Sequence[Term]) -> Iterator[tuple[Term, _Size]]:
        return zip(places, self.sizes, strict=True)

    def _summed(self, elements: _Elements, places: Sequence[Term], mode: str) -> Term:
        """Sample `elements` at places all of whose taps are there."""
        weights = _Weights(mode, places)
        if elements.pays_blocks(weights):
            blocks = elements.blocks(weights.taps)
            joined = blocks.at(blocks.index(weights.bases))
            taken = [Term(self.b, v) for v in self.b.many(Split, joined.value, axis=2, count=len(weights.taps))]
        else:
            index = elements.index(weights.bases)
            taken = [elements.at(index + elements.offset(tap) if any(tap) else index) for tap in weights.taps]
        return functools.reduce(operator.add, map(weights.times, taken, weights.taps))

    def _extended(self, weights: _Weights, padding: str, corners: bool) -> Term:
        """Sample the map, each tap outside being that at the border or where `padding` mirrors it."""
        elements, found = _Elements(self.last), []
        for tap in weights.taps:
            places = [base + float(t) for base, t in zip(weights.bases, tap, strict=True)]
            if padding != "border":
                at_centers = corners if padding == "reflection" else padding == "centers"
                places = [mirrored(p, n, at_centers) for p, n in self._with_sizes(places)]
            index = elements.index([p.max(0.0).min(n - 1) for p, n in self._with_sizes(places)])
            found.append(weights.times(elements.at(index), tap))
        return functools.reduce(operator.add, found)


class _Weights:
    """The weights of the elements that are read for each place: of `taps`, offsets from `bases`."""

    def __init__(self, mode: str, places: Sequence[Term]) -> None:
        self.mode, self.taps = mode, list(itertools.product(_TAPS[mode], repeat=len(places)))
        self.bases = list(places) if mode == "nearest" else [p.floor() for p in places]
        self._rests = [p - base for p, base in zip(places, self.bases, strict=True)] if mode != "nearest" else []

    def times(self, taken: Term, tap: Sequence[int]) -> Term:
        """Return the elements [n, p, c] of a tap times its weight."""
        if self.mode == "nearest":
            return taken
        weights = (tap_weight(self.mode, rest, t) for rest, t in zip(self._rests, tap, strict=True))
        return taken * along_channels(functools.reduce(operator.mul, weights))


class _Elements:
    """The elements of a map [n, spatial..., c], of which the first `before` along each spatial axis are added zeros."""

    def __init__(self, last: Term, before: int = 0) -> None:
        self.b, self.last, self.before = last.b, last, before
        batch, *spatial, channels = last.value.shape
        self._flat = reshape(self.b, last.value, (batch, product(spatial), channels), last.value)
        self._counts = [size_in(self.b, d, last.value, DType.INT32) for d in spatial]

    @classmethod
    def between_zeros(cls, last: Term, before: int, after: int) -> _Elements:
        """Return the elements of a map with zeros before and after it along each spatial axis."""
        rows = np.asarray([[0, 0], *[[before, after]] * (last.rank - 2), [0, 0]], np.int64)
        return cls(last.apply("Pad", rows) if before or after else last, before)

    def index(self, places: Sequence[Term]) -> Term:
        """Return the positions [n, p] of elements at integral places, which are here."""
        index: Term | None = None
        for place, count in zip(places, self._counts, strict=True):
            whole = (place + float(self.before) if self.before else place).to(DType.INT32)
            index = whole if index is None else index * count + whole
        assert index is not None
        return index

    def offset(self, tap: Sequence[int]) -> _Size:
        """Return how far the element that is `tap` after another is from that one."""
        offset: _Size = 0
        for count, step in zip(self._counts, tap, strict=True):
            offset = offset * count + step
        return offset

    def at(self, index: Term) -> Term:
        """Return the elements [n, p, c] at positions."""
        return Term(self.b, self.b(Gather, self._flat, index.value, axis=1, batch_dims=1))

    def pays_blocks(self, weights: _Weights) -> bool:
        """Whether one gather of all taps is faster than one of each: few channels, and about as many places."""
        sizes, places = self.last.value.shape, weights.bases[0].value.shape
        if weights.mode != "linear" or not is_static(sizes) or not is_static(places) or sizes[-1] > _FEW_CHANNELS:
            return False
        return 2 * math.prod(places) >= math.prod(sizes[:-1])

    def blocks(self, taps: Sequence[Sequence[int]]) -> _Elements:
        """Return the elements with those of `taps` (0 or 1 along each axis) joined to them along the channels."""
        parts = []
        for tap in taps:
            ends = [n - 1 + t for n, t in zip(self.last.value.shape[1:-1], tap, strict=True)]
            cut = {axis: slice(*ends) for axis, ends in enumerate(zip(tap, ends, strict=True), 1)}
            parts.append(slice_axes(self.b, self.last.value, cut))
        return _Elements(Term(self.b, self.b(Concatenate, *parts, axis=self.last.rank - 1)), self.before)


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
