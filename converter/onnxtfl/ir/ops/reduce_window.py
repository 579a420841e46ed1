"""Windows on any axes: ReduceWindow SelectAndScatter."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial, reduce
from typing import Any

import numpy as np

from onnxtfl.ir import numeric
from onnxtfl.ir.attributes import Choice
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.dims import product
from onnxtfl.ir.formula import Term, by_expansion
from onnxtfl.ir.graph import Value
from onnxtfl.ir.op import BOOLS, NUMERIC, OPS, Op, Operand
from onnxtfl.ir.ops.broadcasting import BroadcastTo
from onnxtfl.ir.ops.padding import Pad
from onnxtfl.ir.ops.scattering import ScatterElements
from onnxtfl.ir.ops.slicing import END, Slice
from onnxtfl.ir.reshape import dim_value, iota, reshape
from onnxtfl.ir.spatial import Window

_NEUTRAL: dict[str, Callable[[np.dtype[Any]], Any]] = {
    "sum": lambda _: 0,
    "prod": lambda _: 1,
    "max": numeric.lowest,
    "min": numeric.highest,
    "any": lambda _: False,
    "all": lambda _: True,
}
"""The neutral elements of reductions."""


def joining(kind: str) -> type[Op]:
    """Return the binary op of a reduction of this kind."""
    return next(op for op in OPS.values() if op.reduction == kind)


@by_expansion(
    Operand("input", NUMERIC | BOOLS),
    Operand("init", NUMERIC | BOOLS, optional=True),
    attributes={"kind": Choice(*_NEUTRAL)},
)
def ReduceWindow(
    b: Builder,
    x: Value,
    init: Value | None,
    kind: str,
    window_dimensions: Sequence[int],
    window_strides: Sequence[int] = (),
    window_dilations: Sequence[int] = (),
    padding: Sequence[int] = (),
) -> Value:
    """Each window of the operand reduced (`kind`: sum, prod, max, min; any, all of bools), beginning with `init`.

    Windows, strides, dilations have an entry for each axis, `padding` all lows, then all highs; padding has the
    value `init` (absent: the neutral element). Reduced axis by axis.
    Source: neutral-ops 3.94 (`kind` is its `computation`); XLA ReduceWindow.
    """
    join, neutral, ones, rank = joining(kind), _NEUTRAL[kind], (1,) * x.rank, x.rank
    strides, dilations = tuple(window_strides) or ones, tuple(window_dilations) or ones
    window = Window(tuple(window_dimensions), strides, dilations, tuple(padding) or (0,) * (2 * rank))
    if window.rank != rank:
        raise ValueError(f"windows along {window.rank} of {rank} axes")
    if window.is_padded:
        pairs = np.asarray(window.padding, np.int64).reshape(2, rank).T
        x = b(Pad, x, pairs, init or b.scalar(neutral(x.dtype.numpy), x))
    for axis in range(rank):
        if window.shape[axis] > 1 or strides[axis] > 1:
            x = reduce(partial(b, join), window_taps(b, x, [axis], window.along([axis])))
    return x if init is None else b(join, x, init)


def window_taps(b: Builder, x: Value, dims: Sequence[int], window: Window) -> Iterator[Value]:
    """Yield for each tap (in C order) of an unpadded window over `dims` the elements of `x` that are read there."""
    for tap in window.taps():
        starts, limits, strides = [0] * x.rank, [END] * x.rank, [1] * x.rank
        for i, axis in enumerate(dims):
            starts[axis], strides[axis] = tap[i] * window.dilations[i], window.strides[i]
            limits[axis] = starts[axis] + 1 - window.span[i] or END
        yield b(Slice, x, starts, limits, strides)


_SCATTERS = {"update": "none", "add": "add", "mul": "mul", "min": "min", "max": "max"}


@by_expansion(
    *(Operand(name, NUMERIC) for name in ("input", "source", "init_value")),
    attributes={"select_type": Choice("GE", "GT", "LE", "LT"), "computation": Choice(*_SCATTERS, default="add")},
)
def SelectAndScatter(
    b: Builder,
    x: Value,
    source: Value,
    init_value: Value,
    select_type: str,
    computation: str = "add",
    window_dimensions: Sequence[int] = (),
    window_strides: Sequence[int] = (),
    padding: Sequence[int] = (),
) -> Value:
    """Scatter `source`, an element for each window of the operand, to the element that the window selects.

    An element a stays selected against a later one c of the window if a `select_type` c; padding is never selected.
    Elements that no window selects are `init_value`; others combine it with their sources by `computation` (`update`:
    the last source). Windows and strides have an entry for each axis, `padding` all lows, then all highs.
    Source: neutral-ops 3.110; XLA (whose computations are graphs). Other computations are not there:
    no runtime scatters by them.
    """
    strides = tuple(window_strides) or (1,) * x.rank
    window = Window(tuple(window_dimensions), strides, (1,) * x.rank, tuple(padding) or (0,) * (2 * x.rank))
    if window.rank != x.rank:
        raise ValueError(f"windows along {window.rank} of {x.rank} axes")
    count = dim_value(b, product(x.shape), x)
    places = reshape(b, iota(b, count), x.shape, x)
    selected = _selected_places(b, x, places, window, select_type)
    spare = selected.compared("LT", 0).choose(Term(b, count), selected)  # of windows without an element
    flat = b(BroadcastTo, init_value, reshape(b, (Term(b, count) + 1).value, (1,)))
    indices, updates = (reshape(b, v, (product(v.shape),), v) for v in (spare.value, source))
    result = b(ScatterElements, flat, indices, updates, axis=0, kind=_SCATTERS[computation])
    return reshape(b, b(Slice, result, [0], [-1], [1]), x.shape, x)


def _selected_places(b: Builder, x: Value, places: Value, window: Window, select_type: str) -> Term:
    """Return the element of `places` that each window over `x` selects; -1 for a window over padding only."""
    if window.is_padded:
        pairs = np.asarray(window.padding, np.int64).reshape(2, x.rank).T
        x, places = b(Pad, x, pairs, None), b(Pad, places, pairs, b.scalar(-1, places))
    each = zip(*(window_taps(b, v, range(x.rank), window) for v in (x, places)), strict=True)
    taps = ((Term(b, value), Term(b, place)) for value, place in each)
    best, chosen = next(taps)
    for value, place in taps:
        stays = best.compared(select_type, value) & (chosen >= 0) | (place < 0)
        best, chosen = stays.choose(best, value), stays.choose(chosen, place)
    return chosen
