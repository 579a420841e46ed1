"""Windows over spatial axes, for convolutions and pools: padding, positions, NumPy views.

Padding is a flat tuple as in ONNX: the beginnings of all spatial axes, then the ends. `auto_pad` is "NOTSET" (explicit
padding), or "SAME_UPPER" or "SAME_LOWER" if the padding depends on sizes that are unknown before run time.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from onnxtfl.ir.budget import check_count
from onnxtfl.ir.data import Array
from onnxtfl.ir.dims import Dim, ceildiv, fresh
from onnxtfl.ir.shapes import window_dim

Index = tuple[Any, ...]
LARGEST_WINDOW = 1 << 31
"""The least size that a window, stride or padding must not have."""
LONGEST_STRIDE = 2**15 - 1
"""The longest stride, and the longest dilation, of LiteRT's convolutions."""


def same_padding(size: int, window: int, stride: int, dilation: int, lower: bool = False) -> tuple[int, int]:
    """The padding for ceil(size / stride) positions (ONNX SAME_UPPER or SAME_LOWER, TFLite SAME = SAME_UPPER)."""
    total = max(0, (-(-size // stride) - 1) * stride + (window - 1) * dilation + 1 - size)
    small = total // 2
    return (total - small, small) if lower else (small, total - small)


def same_padding_of_pool(size: int, window: int, stride: int, lower: bool) -> tuple[int, int]:
    """The same for a pool of ONNX, whose padding may be negative; ``window``: without its dilation.

    Source: ONNX Runtime's LpPool and dilated MaxPool; where it refuses negative padding, ONNX's own evaluator.
    """
    total = (-(-size // stride) - 1) * stride + window - size
    before = math.trunc((total + lower) / 2)
    return before, total - before


@dataclass(frozen=True)
class Window:
    """A window over n spatial axes; every tuple has n entries, `padding` 2n."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    padding: tuple[int, ...]
    auto_pad: str = "NOTSET"
    ceil: bool = False

    def __post_init__(self) -> None:
        rank = len(self.shape)
        if len(self.strides) != rank or len(self.dilations) != rank or len(self.padding) != 2 * rank:
            raise ValueError(
                f"strides {self.strides}, dilations {self.dilations}, padding {self.padding} for {rank} axes"
            )
        numbers = (*self.shape, *self.strides, *self.dilations)
        if any(v < 1 for v in numbers) or any(abs(v) >= LARGEST_WINDOW for v in (*numbers, *self.padding)):
            raise ValueError(f"window {self.shape}, strides {self.strides}, dilations {self.dilations}")
        if self.auto_pad not in ("NOTSET", "SAME_UPPER", "SAME_LOWER"):
            raise ValueError(f"auto_pad {self.auto_pad}")

    @property
    def rank(self) -> int:
        """The number of spatial axes."""
        return len(self.shape)

    @property
    def span(self) -> tuple[int, ...]:
        """The size of the dilated window."""
        return tuple((k - 1) * d + 1 for k, d in zip(self.shape, self.dilations, strict=True))

    @property
    def before(self) -> tuple[int, ...]:
        """The padding before each axis."""
        return self.padding[: self.rank]

    @property
    def after(self) -> tuple[int, ...]:
        """The padding after each axis."""
        return self.padding[self.rank :]

    def same(self, sizes: Sequence[Dim], lower: bool = False) -> tuple[int, ...] | None:
        """The explicit padding of SAME for `sizes`; None if it depends on unknown sizes."""
        pairs = []
        for i, size in enumerate(sizes):
            if not isinstance(size, int) and self.strides[i] != 1 and self.span[i] > 1:
                if lower or self.span[i] > 2:
                    return None
                pairs.append((0, 1))  # of two elements, only the second may be padding
                continue
            known = size if isinstance(size, int) else self.span[i]
            pairs.append(same_padding(known, self.shape[i], self.strides[i], self.dilations[i], lower))
        return tuple(low for low, _ in pairs) + tuple(high for _, high in pairs)

    def explicit(self, sizes: Sequence[Dim]) -> Window:
        """The same window with explicit padding, if `sizes` determine it."""
        if self.auto_pad == "NOTSET":
            return self
        padding = self.same(sizes, self.auto_pad == "SAME_LOWER")
        return self if padding is None else replace(self, padding=padding, auto_pad="NOTSET")

    def counts(self, sizes: Sequence[Dim]) -> tuple[Dim, ...]:
        """The number of positions along each axis; ValueError if the window does not fit."""
        if self.auto_pad != "NOTSET":
            return tuple(ceildiv(size, stride) for size, stride in zip(sizes, self.strides, strict=True))
        return tuple(self._count(i, size) for i, size in enumerate(sizes))

    def _count(self, i: int, size: Dim) -> Dim:
        before, after, span, stride = self.before[i], self.after[i], self.span[i], self.strides[i]
        if isinstance(size, int) and size + before + after < span:
            raise ValueError(f"a window of {span} does not fit into {size} padded by {before} and {after}")
        if self.ceil and not isinstance(size, int) and after + stride > span:
            return fresh()  # whether the last window starts in the padding depends on the size
        return window_dim(size, self.shape[i], stride, before, after, self.dilations[i], self.ceil)

    def static_counts(self, sizes: Sequence[int]) -> list[int]:
        """The number of positions along each axis for known sizes."""
        return [n for n in self.counts(sizes) if isinstance(n, int)]

    def overhang(self, sizes: Sequence[int]) -> tuple[int, ...]:
        """The padding after each axis up to the end of the last window; negative if elements after it are not read."""
        counts = self.static_counts(sizes)
        return tuple((counts[i] - 1) * self.strides[i] + self.span[i] - self.before[i] - n for i, n in enumerate(sizes))

    def pad(self, x: Array, value: Any) -> tuple[Array, list[int]]:
        """Pad `x` (spatial axes last) as far as windows reach; also return the number of windows along each axis."""
        sizes = x.shape[x.ndim - self.rank :]
        window = self.explicit(sizes)
        padded = pad_spatial(x, (*window.before, *(max(0, p) for p in window.overhang(sizes))), value)
        return padded, window.static_counts(sizes)

    def taps(self) -> Iterator[tuple[int, ...]]:
        """The positions inside a window, in C order; UnsupportedError where these are too many."""
        check_count(math.prod(self.shape), "the positions in a window")
        return itertools.product(*(range(k) for k in self.shape))

    def seen(self, tap: Sequence[int], counts: Sequence[int]) -> Index:
        """The index, into the last axes of a padded array, of the elements at position `tap` of all windows."""
        starts = [t * d for t, d in zip(tap, self.dilations, strict=True)]
        ends = [a + (n - 1) * s + 1 for a, n, s in zip(starts, counts, self.strides, strict=True)]
        return (Ellipsis, *(slice(a, e, s) for a, e, s in zip(starts, ends, self.strides, strict=True)))

    def stack(self, x: Array, value: Any) -> Array:
        """All windows of `x` (spatial axes last), padded with `value`: [..., positions..., taps]."""
        padded, counts = self.pad(x, value)
        return np.stack([padded[self.seen(t, counts)] for t in self.taps()], axis=-1)


MOST_BETWEEN = 1 << 26
"""Elements of an image between padding and windows, which may be much larger than operands and result."""


def check_between(shape: Sequence[int]) -> None:
    """Raise NotImplementedError for an intermediate image of too many elements: a kernel computes it in less."""
    if math.prod(shape) > MOST_BETWEEN:
        raise NotImplementedError(f"an intermediate image of {math.prod(shape)} elements")


def pad_spatial(x: Array, padding: Sequence[int], value: Any) -> Array:
    """Pad the last axes of `x` with `value`; negative entries crop. NotImplementedError for too many elements."""
    rank = len(padding) // 2
    spatial = zip(x.shape[x.ndim - rank :], padding[:rank], padding[rank:], strict=True)
    check_between((*x.shape[: x.ndim - rank], *(max(0, n + a + b) for n, a, b in spatial)))
    if not any(padding):
        return x
    pairs = list(zip(padding[:rank], padding[rank:], strict=True))
    lead = x.ndim - rank
    grow = [(0, 0)] * lead + [(max(a, 0), max(b, 0)) for a, b in pairs]
    crop = [slice(None)] * lead + [slice(max(-a, 0), -max(-b, 0) or None) for a, b in pairs]
    return np.pad(x[tuple(crop)], grow, constant_values=value)
