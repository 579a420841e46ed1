"""The padding of windows, of known and of dynamic sizes: SAME, ceil_mode, and padding of the operand."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from onnxtfl.dataclass import dataclass
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.formula import Term
from onnxtfl.ir.graph import Value, constant
from onnxtfl.ir.op import Op
from onnxtfl.ir.ops.arithmetic import Div
from onnxtfl.ir.ops.extremes import Max
from onnxtfl.ir.ops.padding import Pad
from onnxtfl.ir.ops.pooling import AveragePool, pool_attributes
from onnxtfl.ir.reshape import broadcast, dim_vector, spread, stacked_along
from onnxtfl.ir.shapes import static_ints
from onnxtfl.ir.spatial import Window


@dataclass(frozen=True)
class Amounts:
    """Padding along the spatial axes: int64 vectors with an entry for each axis; negative entries crop."""

    before: Term
    after: Term

    @staticmethod
    def of(b: Builder, padding: Sequence[int]) -> Amounts:
        """Return explicit padding: the beginnings of all axes, then the ends."""
        rank = len(padding) // 2
        return Amounts(vector(b, padding[:rank]), vector(b, padding[rank:]))

    def known(self) -> tuple[int, ...] | None:
        """Return the padding as integers; None if it depends on dynamic sizes."""
        before, after = static_ints(self.before.value), static_ints(self.after.value)
        return None if before is None or after is None else (*before, *after)


def pad_axes(
    b: Builder, x: Value, dims: Sequence[int], padding: Sequence[int] | Amounts, value: float | Value | None = None
) -> Value:
    """Pad the axes `dims` of `x` by `padding` (negative: crop) with zeros or `value`."""
    amounts = padding if isinstance(padding, Amounts) else Amounts.of(b, padding)
    if (known := amounts.known()) is not None and not any(known):
        return x
    sides = [spread(b, side.value, dims, x.rank, 0) for side in (amounts.before, amounts.after)]
    table = stacked_along(b, sides, 1)
    return b(Pad, x, table, b.scalar(value, x) if isinstance(value, float) else value)


def vector(b: Builder, entries: Sequence[int]) -> Term:
    """Return an int64 vector."""
    return Term(b, constant(np.asarray(entries, np.int64)))


def _up(a: Term, b: Term) -> Term:
    """Return ceil(a / b)."""
    return -((-a).apply("FloorDiv", b))


def half(a: Term) -> Term:
    """Return floor(a / 2)."""
    return a.apply("FloorDiv", 2)


def missing(b: Builder, x: Value, dims: Sequence[int], window: Window) -> Term:
    """Return how many elements beyond the axes ceil(size / stride) positions read; negative: how many are unread."""
    sizes, strides = Term(b, dim_vector(b, [x.shape[d] for d in dims], x)), vector(b, window.strides)
    return (_up(sizes, strides) - 1) * strides + vector(b, window.span) - sizes


def same_amounts(absent: Term, *, is_lower: bool = False) -> Amounts:
    """Return the padding of SAME for the `missing` elements, the odd one at the end (`is_lower`: at the beginning)."""
    total = absent.max(0)
    before, after = half(total), half(total + 1)
    return Amounts(after, before) if is_lower else Amounts(before, after)


@dataclass(frozen=True)
class PaddedWindow:
    """A neutral window over the axes `dims` of an operand that is first padded by `amounts` (None: not padded)."""

    window: Window
    dims: Sequence[int]
    amounts: Amounts | None = None

    def operand(self, b: Builder, x: Value, value: float | Value | None = None) -> Value:
        """Return `x` padded with zeros or `value` as the window needs it."""
        return x if self.amounts is None else pad_axes(b, x, self.dims, self.amounts, value)

    def pool(self, b: Builder, op: type[Op], x: Value, value: float | None = None, **attributes: Any) -> Value:
        """Return the pool `op` of `x` padded with zeros or `value`."""
        return b(op, self.operand(b, x, value), **pool_attributes(self.window, self.dims), **attributes)

    def mean_of_elements(self, b: Builder, mean: Value, x: Value) -> Value:
        """Return `mean`, the average pool of the padded `x`, over the elements of `x` only.

        The mean of none is 0: a window with gaps may read padding only.
        """
        if self.amounts is None:
            return mean
        ones = broadcast(b, b.scalar(1.0, x), [x.shape[a] if a in self.dims else 1 for a in range(x.rank)], x)
        share = self.pool(b, AveragePool, ones)
        if any(step > 1 for step in self.window.dilations):
            share = b(Max, share, b.scalar(1 / math.prod(self.window.shape), share))
        return b(Div, mean, share)

    def after_padding(self, b: Builder, padding: tuple[int, ...]) -> PaddedWindow:
        """Return the same window over an operand that is already padded by `padding`."""
        own, given = self.amounts or Amounts.of(b, self.window.explicit_padding), Amounts.of(b, padding)
        more = Amounts((own.before - given.before).max(0), (own.after - given.after).max(0))
        return with_amounts(self.window, self.dims, more)


def with_amounts(window: Window, dims: Sequence[int], amounts: Amounts) -> PaddedWindow:
    """Return the window with `amounts` as its padding if they are static, else as padding of its operand."""
    known = amounts.known()
    if known is None:
        return PaddedWindow(window.without_padding(), dims, amounts)
    return PaddedWindow(replace(window, padding=known), dims)


def rounded_up(b: Builder, x: Value, dims: Sequence[int], window: Window) -> PaddedWindow:
    """Return the window with the trailing padding that the last positions of ceil_mode need.

    No position starts in the padding.
    """
    most = [a + s - 1 for a, s in zip(window.after, window.strides, strict=True)]
    sizes = [x.shape[d] for d in dims]
    if all(n < span for n, span in zip(most, window.span, strict=True)):  # no position starts in the padding
        return PaddedWindow(replace(window, padding=(*window.before, *most)).trimmed(sizes), dims)
    before, after, strides, span = (vector(b, v) for v in (window.before, window.after, window.strides, window.span))
    size = Term(b, dim_vector(b, sizes, x))
    more = _up(size + before + after - span, strides)
    started = (size + before - more * strides).max(0).min(1)
    needed = (more + started - 1) * strides + span - before - size
    return with_amounts(window, dims, Amounts(before, needed.max(0)))
