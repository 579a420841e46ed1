"""Windows over spatial axes, for convolutions and pools: padding, positions, NumPy views.

Padding is explicit, a flat tuple as in ONNX (the beginnings of all spatial axes, then the ends), or `SAME`: as much as
ceil(size / stride) positions need, the odd one at the end (SAME_UPPER of ONNX, SAME of TFLite). SAME stays only where
it depends on sizes that are unknown before run time.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from onnxtfl.dataclass import dataclass
from onnxtfl.ir.attributes import SAME
from onnxtfl.ir.budget import check_count
from onnxtfl.ir.data import Array
from onnxtfl.ir.dims import Dim, at_most, ceildiv, exceeds, is_static, known_sizes, size_or

Index = tuple[Any, ...]
LARGEST_WINDOW = 1 << 31
"""The least size that a window, stride or padding must not have."""
LONGEST_STRIDE = 2**15 - 1
"""The longest stride, and the longest dilation, of LiteRT's convolutions."""


@dataclass(frozen=True)
class Window:
    """A window over n spatial axes; every tuple has n entries, explicit `padding` 2n."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    padding: tuple[int, ...] | str

    def __post_init__(self) -> None:
        explicit = (0,) * (2 * self.rank) if isinstance(self.padding, str) else self.padding
        if not 2 * self.rank == 2 * len(self.strides) == 2 * len(self.dilations) == len(explicit):
            raise ValueError(
                f"strides {self.strides}, dilations {self.dilations}, padding {self.padding} for {self.rank} axes"
            )
        numbers = (*self.shape, *self.strides, *self.dilations)
        if isinstance(self.padding, str) and self.padding != SAME:
            raise ValueError(f"padding {self.padding}")
        if any(v < 1 for v in numbers) or any(abs(v) >= LARGEST_WINDOW for v in (*numbers, *explicit)):
            raise ValueError(f"window {self.shape}, strides {self.strides}, dilations {self.dilations}")

    @classmethod
    def of(cls, shape: Sequence[int], strides: Sequence[int], dilations: Sequence[int], padding: Any) -> Window:
        """The window with these attributes of a neutral op."""
        explicit = padding if isinstance(padding, str) else tuple(padding)
        return _window(tuple(shape), tuple(strides), tuple(dilations), explicit)

    @classmethod
    def filled(
        cls, shape: Sequence[int], strides: Sequence[int], dilations: Sequence[int], padding: Sequence[int]
    ) -> Window:
        """The window with these lists, of which empty ones mean ones, or no padding."""
        ones = (1,) * len(shape)
        return cls.of(shape, strides or ones, dilations or ones, padding or (0,) * (2 * len(shape)))

    @property
    def rank(self) -> int:
        """The number of spatial axes."""
        return len(self.shape)

    @property
    def is_same(self) -> bool:
        """Whether the padding is SAME, not explicit."""
        return isinstance(self.padding, str)

    @property
    def is_padded(self) -> bool:
        """Whether there is any padding."""
        return any(self.padding)

    @property
    def is_dilated(self) -> bool:
        """Whether the window skips elements."""
        return self.span != self.shape

    @property
    def span(self) -> tuple[int, ...]:
        """The size of the dilated window."""
        return tuple((k - 1) * d + 1 for k, d in zip(self.shape, self.dilations, strict=True))

    @property
    def before(self) -> tuple[int, ...]:
        """The explicit padding before each axis."""
        return self.explicit_padding[: self.rank]

    @property
    def after(self) -> tuple[int, ...]:
        """The explicit padding after each axis."""
        return self.explicit_padding[self.rank :]

    @property
    def explicit_padding(self) -> tuple[int, ...]:
        """The padding before all axes, then after them. Raises ValueError if it is SAME."""
        if isinstance(self.padding, str):
            raise ValueError("the padding SAME depends on sizes")
        return self.padding

    @property
    def may_miss_the_input(self) -> bool:
        """Whether explicit padding along an axis is as large as the window, which may then read padding only."""
        return any(p >= k for p, k in zip(self.explicit_padding, 2 * self.shape, strict=True))

    def without_padding(self) -> Window:
        """The same window over an operand that is padded already."""
        return replace(self, padding=(0,) * (2 * self.rank))

    def along(self, axes: Sequence[int]) -> Window:
        """The same window over some of its axes, by their places."""
        sides = (self.shape, self.strides, self.dilations)
        shape, strides, dilations = (tuple(side[i] for i in axes) for side in sides)
        if isinstance(self.padding, str):
            return Window(shape, strides, dilations, self.padding)
        return Window(shape, strides, dilations, tuple(side[i] for side in (self.before, self.after) for i in axes))

    def with_unit_axis(self) -> Window:
        """The same window over one more axis, the first, of size 1."""
        padding = self.padding if isinstance(self.padding, str) else (0, *self.before, 0, *self.after)
        return Window((1, *self.shape), (1, *self.strides), (1, *self.dilations), padding)

    def same(self, sizes: Sequence[Dim] | None) -> Window:
        """The window with the padding SAME, explicit if `sizes` determine it."""
        found = replace(self, padding=SAME)
        return found if sizes is None else found.explicit(sizes)

    def explicit(self, sizes: Sequence[Dim]) -> Window:
        """The same window with explicit padding, if `sizes` determine it.

        A window of one or two elements needs one padding for all sizes: a second element that is padding and is not
        read makes no other position.
        """
        if not self.is_same:
            return self
        totals = []
        for size, span, stride in zip(sizes, self.span, self.strides, strict=True):
            missing = (ceildiv(size, stride) - 1) * stride + span - size
            if span > 2 and not is_static((missing,)):
                return self
            totals.append(max(0, size_or(missing, span - 1)))
        return replace(self, padding=(*(t // 2 for t in totals), *(t - t // 2 for t in totals)))

    def trimmed(self, sizes: Sequence[Dim]) -> Window:
        """The same window without padding after its last position, positive or negative, where `sizes` tell it."""
        if self.is_same:
            return self
        after = list(self.after)
        for i, (size, stride) in enumerate(zip(sizes, self.strides, strict=True)):
            bare = size + self.before[i] - self.span[i]
            unread = (bare + after[i]) % stride
            if after[i] < 0:
                after[i] = 0 if (bare + after[i]) // stride == bare // stride else after[i]
            elif isinstance(unread, int) and self._count(i, size) != 0:
                after[i] = max(0, after[i] - unread)
        return replace(self, padding=(*self.before, *after))

    def counts(self, sizes: Sequence[Dim]) -> tuple[Dim, ...]:
        """The number of positions along each axis: 0 where the window does not fit.

        ValueError where it is too large by two strides, which both runtimes refuse.
        """
        if self.is_same:
            return tuple(ceildiv(size, stride) for size, stride in zip(sizes, self.strides, strict=True))
        return tuple(self._count(i, size) for i, size in enumerate(sizes))

    def known_counts(self, sizes: Sequence[int]) -> list[int]:
        """`counts` of known sizes."""
        return known_sizes(self.counts(sizes))

    def _count(self, i: int, size: Dim) -> Dim:
        before, after, span, stride = self.before[i], self.after[i], self.span[i], self.strides[i]
        room = size + (before + after - span)
        if not exceeds(0, room):
            return room // stride + 1
        if at_most(room, -2 * stride):
            raise ValueError(f"a window of {span} does not fit into {size} padded by {before} and {after}")
        return 0

    def pad(self, x: Array, value: Any) -> tuple[Array, list[int]]:
        """Pad `x` (spatial axes last) as far as windows reach; also return the number of windows along each axis."""
        sizes = x.shape[x.ndim - self.rank :]
        window = self.explicit(sizes).trimmed(sizes)
        return pad_spatial(x, window.explicit_padding, value), window.known_counts(sizes)

    def part(self, i: int, size: int, start: int, stop: int) -> tuple[tuple[int, int], Window]:
        """Return the range of axis `i`, of `size`, that positions `start` to `stop` read, and the window over it.

        The padding is explicit.
        """
        low = start * self.strides[i] - self.before[i]
        high = (stop - 1) * self.strides[i] - self.before[i] + self.span[i]
        first = min(max(low, 0), size)
        last = max(first, min(high, size))
        before, after = list(self.before), list(self.after)
        before[i], after[i] = (first - low, high - last) if last > first else (high - low, 0)
        return (first, last), replace(self, padding=(*before, *after))

    def taps(self) -> Iterator[tuple[int, ...]]:
        """The positions inside a window, in C order. Raises UnsupportedError if these are too many."""
        check_count(math.prod(self.shape), "the positions in a window")
        return itertools.product(*(range(k) for k in self.shape))

    def seen(self, tap: Sequence[int], counts: Sequence[int]) -> Index:
        """The index, into the last axes of a padded array, of the elements at position `tap` of all windows."""
        starts = [t * d for t, d in zip(tap, self.dilations, strict=True)]
        ends = [a + (n - 1) * s + 1 if n else a for a, n, s in zip(starts, counts, self.strides, strict=True)]
        return (Ellipsis, *(slice(a, e, s) for a, e, s in zip(starts, ends, self.strides, strict=True)))

    def stack(self, x: Array, value: Any) -> Array:
        """All windows of `x` (spatial axes last), padded with `value`: [..., positions..., taps]."""
        padded, counts = self.pad(x, value)
        return np.stack([padded[self.seen(t, counts)] for t in self.taps()], axis=-1)

    def accumulate(self, combine: np.ufunc, x: Array, value: Any) -> Array:
        """Each window of `x` (spatial axes last), padded with `value`, combined by a ufunc: [..., positions...]."""
        padded, counts = self.pad(x, value)
        taps = self.taps()
        result = padded[self.seen(next(taps), counts)].copy()
        for tap in taps:
            combine(result, padded[self.seen(tap, counts)], out=result)
        return result

    def elements(self, sizes: Sequence[int]) -> Array:
        """How many elements each position reads, without padding: [positions...]."""
        return self.accumulate(np.add, np.ones(sizes), 0.0)


@functools.lru_cache(1024)
def _window(
    shape: tuple[int, ...], strides: tuple[int, ...], dilations: tuple[int, ...], padding: tuple[int, ...] | str
) -> Window:
    """A window; the convolutions of a deep network share their few windows."""
    return Window(shape, strides, dilations, padding)


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
