"""Sampling of a feature map at computed coordinates, by Gather: for GridSample, RoiAlign and DeformConv."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.dims import Dim, product
from onnxtfl.ir.formula import Term
from onnxtfl.ir.graph import Value
from onnxtfl.ir.reshape import dim_value, reshape, transposed
from onnxtfl.ir.types import DType

Size = Term | float


class FeatureMap:
    """A map [n, c, spatial...] whose elements are gathered at coordinates.

    `places`: a float term [n, p] for each spatial axis. Gathered elements have shape [n, p, c].
    """

    def __init__(self, b: Builder, x: Value) -> None:
        self.b, self.x = b, x
        last = transposed(b, x, (0, *range(2, x.rank), 1))
        self.flat = reshape(b, last, (x.shape[0], product(x.shape[2:]), x.shape[1]))
        self.sizes = [self._size(d, DType.FLOAT32) for d in x.shape[2:]]
        self._counts = [self._size(d, DType.INT32) for d in x.shape[2:]]

    def _size(self, dim: Dim, dtype: DType) -> Size:
        if isinstance(dim, int):
            return dim if dtype.is_integer else float(dim)
        return Term(self.b, self.b(ops.Convert, dim_value(self.b, dim, self.x), dtype=dtype))

    def at(self, places: Sequence[Term]) -> Term:
        """The elements [n, p, c] at integral `places`, clipped to the map."""
        index: Term | None = None
        for place, size, count in zip(places, self.sizes, self._counts, strict=True):
            clipped = place.max(0.0).min(size - 1)
            whole = Term(self.b, self.b(ops.Convert, clipped.value, dtype=DType.INT32))
            index = whole if index is None else index * count + whole
        assert index is not None
        return Term(self.b, self.b(ops.Gather, self.flat, index.value, axis=1, batch_dims=1))

    def inside(self, places: Sequence[Term]) -> Term:
        """1.0 where integral `places` are inside the map, else 0.0; [n, p]."""
        mask: Term | None = None
        for place, size in zip(places, self.sizes, strict=True):
            on = (place >= 0.0) & (place <= size - 1)
            mask = on if mask is None else mask & on
        assert mask is not None
        return Term(self.b, self.b(ops.Convert, mask.value, dtype=self.x.dtype))


def neighbours(rank: int, offsets: Sequence[int]) -> list[tuple[int, ...]]:
    """All combinations of `offsets` along `rank` axes."""
    return list(itertools.product(offsets, repeat=rank))


def along_channels(weight: Term) -> Term:
    """Reshape weights [n, p] to [n, p, 1]."""
    value = weight.value
    return Term(weight.b, reshape(weight.b, value, (*value.shape, 1)))
