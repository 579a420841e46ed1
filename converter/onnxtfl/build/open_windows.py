"""Windows whose padding depends on sizes known only at run time: it is computed there, and applied by Pad and Slice.

After it the window slides without padding::

    %y = MaxPool(%x: [n, c, h, w]) ceil_mode  ->  MaxPool(Pad(%x, Concatenate(..., overhang(Shape(%x)))))
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.dims import Dim, static
from onnxtfl.ir.formula import Term
from onnxtfl.ir.graph import Value, constant
from onnxtfl.ir.reshape import broadcast, dim_vector, unsqueezed
from onnxtfl.ir.spatial import Window
from onnxtfl.build.sizes import INT32_MAX, sliced, spread


@dataclass(frozen=True)
class Amounts:
    """What to add along the spatial axes: int64 vectors with an entry for each; negative entries take away."""

    before: Term
    after: Term


def ends_at_run_time(window: Window, sizes: Sequence[Dim]) -> bool:
    """Whether the size decides how many windows ceil_mode adds, and it is not known."""
    axes = zip(sizes, window.after, window.strides, window.span, strict=True)
    return window.ceil and any(not isinstance(n, int) and after + s > span for n, after, s, span in axes)


def padding_at_run_time(b: Builder, x: Value, dims: Sequence[int], window: Window) -> Amounts:
    """The padding of SAME; else explicit padding, with as much after it as the windows of ceil_mode need."""
    sizes = Term(b, dim_vector(b, [x.shape[a] for a in dims], x))
    strides, span = _vector(sizes, window.strides), _vector(sizes, window.span)
    if window.auto_pad != "NOTSET":
        total = ((_up(sizes, strides) - 1) * strides + span - sizes).max(0)
        return _halves(total, window.auto_pad == "SAME_LOWER")
    before, after = _vector(sizes, window.before), _vector(sizes, window.after)
    if not window.ceil:
        return Amounts(before, after)
    more = _up(sizes + before + after - span, strides)
    started = (more * strides < sizes + before).apply(ops.Convert, dtype=sizes.dtype)
    needed = (more + started - 1) * strides + span - before - sizes
    return Amounts(before, needed.max(0))


def same_padding_at_run_time(b: Builder, x: Value, window: Window, auto_pad: str, crops: bool) -> Amounts | None:
    """The padding of a SAME pool of ONNX over open sizes where it may be negative or is that of a window without
    dilation. `crops`: what a negative padding means; where it is refused, there is none.
    """
    sizes, dilated = x.shape[2:], window.span != window.shape
    if static(sizes) or not auto_pad.startswith("SAME"):
        return None
    skips = any(s > k for s, k in zip(window.strides, window.shape, strict=True))
    moves = any(s > 1 and not isinstance(n, int) for s, n in zip(window.strides, sizes, strict=True))
    if (skips and (dilated or crops)) or (dilated and moves):
        return _same_padding_of_open_pool(b, x, range(2, x.rank), window, auto_pad == "SAME_LOWER")
    return None


def _same_padding_of_open_pool(b: Builder, x: Value, dims: Sequence[int], window: Window, lower: bool) -> Amounts:
    """The padding of a pool of ONNX, as `same_padding_of_pool` computes it: that of the window without dilation."""
    sizes = Term(b, dim_vector(b, [x.shape[a] for a in dims], x))
    strides = _vector(sizes, window.strides)
    total = (_up(sizes, strides) - 1) * strides + _vector(sizes, window.shape) - sizes
    return _halves(total, lower)


def _halves(total: Term, lower: bool) -> Amounts:
    """The half of `total` before, rounded toward zero (lower: away from zero where positive), and the rest after."""
    bigger = total + int(lower)
    half = (bigger < 0).choose(-((-bigger).apply(ops.FloorDiv, 2)), bigger.apply(ops.FloorDiv, 2))
    return Amounts(half, total - half)


def _up(a: Term, b: Term) -> Term:
    """a / b rounded up."""
    return -((-a).apply(ops.FloorDiv, b))


def _vector(like: Term, entries: Sequence[int]) -> Term:
    """A constant vector."""
    return Term(like.b, constant(np.asarray(entries, np.int64)))


def grown(b: Builder, x: Value, dims: Sequence[int], amounts: Amounts, value: float | None = None) -> Value:
    """`x` padded along `dims` by `amounts` with zeros or `value`."""
    sides = [spread(b, side.max(0).value, dims, x.rank, 0) for side in (amounts.before, amounts.after)]
    table = b(ops.Concatenate, *(unsqueezed(b, side, [1]) for side in sides), axis=1)
    return b(ops.Pad, x, table, None if value is None else b.scalar(value, x), mode="constant")


def cropped(b: Builder, x: Value, dims: Sequence[int], amounts: Amounts) -> Value:
    """`x` without what negative `amounts` take away."""
    sizes = Term(b, dim_vector(b, [x.shape[a] for a in dims], x))
    start, end = (-amounts.before).max(0), sizes + amounts.after.min(0)
    bounds = [spread(b, v.value, dims, x.rank, other) for v, other in ((start, 0), (end, INT32_MAX))]
    return b(ops.Slice, x, *bounds, [1] * x.rank)


def without_unread(b: Builder, x: Value, dims: Sequence[int], window: Window) -> Value:
    """`x` without the elements after the last window of SAME, where open sizes decide whether there are any.

    ONNX Runtime computes a negative padding for them, and refuses it.
    """
    skips = [s > span for s, span in zip(window.strides, window.span, strict=True)]
    axes = [a for a, skip in zip(dims, skips, strict=True) if skip and not isinstance(x.shape[a], int)]
    if window.auto_pad == "NOTSET" or not axes:
        return x
    part = [list(dims).index(a) for a in axes]
    sizes = Term(b, dim_vector(b, [x.shape[a] for a in axes], x))
    strides, span = (_vector(sizes, [values[i] for i in part]) for values in (window.strides, window.span))
    unread = ((_up(sizes, strides) - 1) * strides + span - sizes).min(0)
    return cropped(b, x, axes, Amounts(unread * 0, unread))


def without_skipped(b: Builder, x: Value, window: Window, auto_pad: str) -> Value:
    """`x` [n, c, ...] without the first elements that a convolution of ONNX with auto_pad skips.

    Where a stride is larger than the window, the padding may be negative: ONNX Runtime then begins later, by half of
    that, less a half (SAME_UPPER) or a whole position (measured; ONNX's own evaluator does not begin later).
    """
    least = 1 + (auto_pad == "SAME_LOWER")
    axes = [i for i in range(window.rank) if window.strides[i] - window.shape[i] > least]
    if not auto_pad.startswith("SAME") or not axes or window.span != window.shape:
        return x
    strides, shape = ([values[i] for i in axes] for values in (window.strides, window.shape))
    dims = [i + 2 for i in axes]
    sizes = [x.shape[d] for d in dims]
    if static(sizes):
        totals = [(-(-n // s) - 1) * s + k - n for n, s, k in zip(sizes, strides, shape, strict=True)]
        return sliced(b, x, {d: slice(max((-t - least) // 2, 0), None) for d, t in zip(dims, totals, strict=True)})
    vector = Term(b, dim_vector(b, sizes, x))
    total = (_up(vector, _vector(vector, strides)) - 1) * _vector(vector, strides) + _vector(vector, shape) - vector
    return cropped(b, x, dims, Amounts(-((-total - least).max(0).apply(ops.FloorDiv, 2)), total * 0))


def seen_of_open(window: Window, tap: Sequence[int]) -> list[slice]:
    """What the windows see at `tap` of a padded operand, whose size is open: as `Window.seen`, ends from the end."""
    axes = zip(tap, window.dilations, window.span, window.strides, strict=True)
    return [slice(t * d, t * d + 1 - span or None, s) for t, d, span, s in axes]


def spatial_ones(b: Builder, x: Value, dims: Sequence[int]) -> Value:
    """Ones along the spatial axes `dims` of `x`; the other axes have size 1."""
    return broadcast(b, b.scalar(1.0, x), [x.shape[a] if a in dims else 1 for a in range(x.rank)], x)


def bare(window: Window) -> Window:
    """The window without padding."""
    return replace(window, padding=(0,) * (2 * window.rank), auto_pad="NOTSET", ceil=False)


def fitted(window: Window, sizes: Sequence[Dim], counts_all: bool = False) -> Window:
    """A window that is larger than the padded input, yet has a position, as ONNX Runtime counts: with less taps.

    Its only position sees all of the padded input. ONNX Runtime rounds the number of positions toward zero.
    `counts_all`: with more padding instead, so that a mean has all taps.
    """
    if window.auto_pad != "NOTSET" or not static(sizes):
        return window
    shape, strides, after = list(window.shape), list(window.strides), list(window.after)
    for i, size in enumerate(sizes):
        assert isinstance(size, int)
        room = size + window.before[i] + window.after[i]
        if not 0 < room < window.span[i] < room + strides[i]:
            continue
        if counts_all:
            after[i] += window.span[i] - room
        else:
            shape[i], strides[i] = -(-room // window.dilations[i]), max(strides[i], room)
    return replace(window, shape=tuple(shape), strides=tuple(strides), padding=(*window.before, *after))
