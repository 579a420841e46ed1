"""Windows on any axes: ReduceWindow SelectAndScatter PartialReduce."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial, reduce
from typing import Any

import numpy as np

from onnxtfl.ir.attributes import Axis, Choice
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.computations import COMPUTATIONS, NEUTRAL, Computation, joining, scattered, selected
from onnxtfl.ir.dims import product
from onnxtfl.ir.formula import Term, by_expansion
from onnxtfl.ir.graph import Value
from onnxtfl.ir.op import BOOLS, NUMERIC, Operand, SharedAxes
from onnxtfl.ir.ops.broadcasting import BroadcastTo
from onnxtfl.ir.ops.padding import InteriorPad, Pad
from onnxtfl.ir.ops.reductions import Reduce
from onnxtfl.ir.ops.slicing import END, Slice
from onnxtfl.ir.reshape import dim_value, dim_vector, iota, reshape, stacked_along
from onnxtfl.ir.shapes import check_agree, normalize_axis
from onnxtfl.ir.spatial import Window


@by_expansion(
    Operand("input", NUMERIC | BOOLS),
    Operand("init", NUMERIC | BOOLS, optional=True),
    attributes={"kind": Choice(*NEUTRAL)},
)
def ReduceWindow(
    b: Builder,
    x: Value,
    init: Value | None,
    kind: str,
    window_dimensions: Sequence[int],
    window_strides: Sequence[int] = (),
    window_dilations: Sequence[int] = (),
    base_dilations: Sequence[int] = (),
    padding: Sequence[int] = (),
) -> Value:
    """Each window of the operand reduced (`kind`: sum, prod, max, min; any, all of bools), beginning with `init`.

    Windows, strides, dilations have an entry for each axis, `padding` all lows, then all highs; padding, and the d - 1
    elements that a base dilation d inserts between two, have the value `init` (absent: the neutral element). Reduced
    axis by axis. Source: neutral-ops 3.94 (`kind` is its `computation`); XLA ReduceWindow.
    """
    join, neutral, rank = joining(kind), NEUTRAL[kind], x.rank
    start = init or b.scalar(neutral(x.dtype.numpy), x)
    if any(dilation > 1 for dilation in base_dilations):
        x = b(InteriorPad, x, start, interior_padding=tuple(d - 1 for d in base_dilations))
    window = Window.filled(window_dimensions, window_strides, window_dilations, padding)
    if window.rank != rank:
        raise ValueError(f"windows along {window.rank} of {rank} axes")
    x = _padded(b, x, window, start)
    for axis in range(rank):
        if window.shape[axis] > 1 or window.strides[axis] > 1:
            x = reduce(partial(b, join), window_taps(b, x, [axis], window.along([axis])))
    return x if init is None else b(join, x, init)


def reduce_window_attributes(window: Window) -> dict[str, Any]:
    """Return the attributes of a ReduceWindow with `window` over all axes."""
    names = ("window_dimensions", "window_strides", "window_dilations", "padding")
    return dict(zip(names, (window.shape, window.strides, window.dilations, window.padding), strict=True))


def window_taps(b: Builder, x: Value, dims: Sequence[int], window: Window) -> Iterator[Value]:
    """Yield for each tap (in C order) of an unpadded window over `dims` the elements of `x` that are read there."""
    for tap in window.taps():
        starts, limits, strides = [0] * x.rank, [END] * x.rank, [1] * x.rank
        for i, axis in enumerate(dims):
            starts[axis], strides[axis] = tap[i] * window.dilations[i], window.strides[i]
            limits[axis] = starts[axis] + 1 - window.span[i] or END
        yield b(Slice, x, starts, limits, strides)


def _padded(b: Builder, x: Value, window: Window, value: Value | None) -> Value:
    """Return `x` padded with `value` as `window` over all axes reads it."""
    pairs = np.asarray(window.padding, np.int64).reshape(2, x.rank).T
    return b(Pad, x, pairs, value) if window.is_padded else x


def stacked_windows(b: Builder, x: Value, window: Window, start: Value) -> Value:
    """Return the elements of each window along a new last axis, in C order; padding has the value `start`."""
    taps = window_taps(b, _padded(b, x, window, start), range(x.rank), window)
    return stacked_along(b, taps, x.rank)


@by_expansion(
    *(Operand(name, NUMERIC) for name in ("input", "source", "init_value")),
    attributes={
        "select_type": Choice("GE", "GT", "LE", "LT"),
        "computation": Choice(*COMPUTATIONS, default=Computation.ADD.name),
    },
)
def SelectAndScatter(
    b: Builder,
    x: Value,
    source: Value,
    init_value: Value,
    select_type: str,
    computation: str = "",
    window_dimensions: Sequence[int] = (),
    window_strides: Sequence[int] = (),
    padding: Sequence[int] = (),
) -> Value:
    """Scatter `source`, an element for each window of the operand, to the element that the window selects.

    An element a stays selected against a later one c of the window if a `select_type` c; padding is never selected.
    Elements that no window selects are `init_value`; others combine it with their sources by `computation`, as
    ScatterND does. Windows and strides have an entry for each axis, `padding` all lows, then all highs.
    Source: neutral-ops 3.110; XLA (whose computations are graphs).
    """
    window = Window.filled(window_dimensions, window_strides, (), padding)
    if window.rank != x.rank:
        raise ValueError(f"windows along {window.rank} of {x.rank} axes")
    count = dim_value(b, product(x.shape), x)
    places = reshape(b, iota(b, count), x.shape, x)
    selected = _selected_places(b, x, places, window, select_type)
    spare = selected.compared("LT", 0).choose(Term(b, count), selected)  # of windows without an element
    flat = b(BroadcastTo, init_value, reshape(b, (Term(b, count) + 1).value, (1,)))
    rows, updates = (
        reshape(b, spare.value, (product(source.shape), 1), source),
        reshape(b, source, (product(source.shape),)),
    )
    result = scattered(b, flat, rows, updates, Computation[computation])
    return reshape(b, b(Slice, result, [0], [-1], [1]), x.shape, x)


def _selected_places(b: Builder, x: Value, places: Value, window: Window, select_type: str) -> Term:
    """Return the element of `places` that each window over `x` selects; -1 for a window over padding only."""
    padded = (_padded(b, x, window, None), _padded(b, places, window, b.scalar(-1, places)))
    each = zip(*(window_taps(b, v, range(x.rank), window) for v in padded), strict=True)
    taps = ((Term(b, value), Term(b, place)) for value, place in each)
    best, chosen = next(taps)
    for value, place in taps:
        stays = best.compared(select_type, value) & (chosen >= 0) | (place < 0)
        best, chosen = stays.choose(best, value), stays.choose(chosen, place)
    return chosen


@by_expansion(
    Operand("operands", NUMERIC | BOOLS, variadic=True),
    results=(Operand("outputs", variadic=True),),
    attributes={"kind": Choice(*NEUTRAL, default="max"), "reduction_dim": Axis(-1)},
    shared_axes=SharedAxes(None, ("reduction_dim",)),
)
def PartialReduce(
    b: Builder, *operands: Value, kind: str = "max", reduction_dim: int = -1, log2_reduction: int = 1
) -> list[Value]:
    """Each group of 2 ** `log2_reduction` consecutive elements along `reduction_dim` reduced to one element.

    `operands`: the inputs, of one shape, then the initial value of each, a scalar. One input is reduced by `kind`,
    beginning with its initial value; of several (max, min), each result is the element at the position of the first
    maximum (minimum) of the first input, or the initial values if that is not above (below) the first of these. The
    last group has fewer elements if the size is not a multiple. Source: neutral-ops 3.87, by name only; XLA's custom
    call PartialReduce, the first step of an approximate top-k (operands: values, positions, two initial values). XLA
    leaves open which elements form a group; here they are consecutive.
    """
    count = len(operands) // 2
    inputs, starts = operands[:count], operands[count:]
    if not count or len(operands) % 2:
        raise ValueError(f"{len(operands)} operands: as many initial values as inputs are expected")
    if not 0 <= log2_reduction < 31:
        raise ValueError(f"log2_reduction is {log2_reduction}")
    for x in inputs:
        check_agree(x.shape, inputs[0].shape, "the shape of an input")
    first, axis = inputs[0], normalize_axis(reduction_dim, inputs[0].rank)
    padding = [b.scalar(NEUTRAL[kind](first.dtype.numpy), first), *starts[1:]]
    groups = [_groups(b, x, p, axis, 1 << log2_reduction) for x, p in zip(inputs, padding, strict=True)]
    if count == 1:
        return [b(joining(kind), b(Reduce, groups[0], [axis + 1], kind=kind), starts[0])]
    return selected(b, groups, starts, axis + 1, kind)


def _groups(b: Builder, x: Value, padding: Value, axis: int, size: int) -> Value:
    """Split `axis` into groups of `size` elements, the last of which is filled up with `padding`."""
    count = (x.shape[axis] + size - 1) // size
    missing = count * size - x.shape[axis]
    if missing != 0:
        pairs = dim_vector(b, [missing if i == 2 * axis + 1 else 0 for i in range(2 * x.rank)], x)
        x = b(Pad, x, reshape(b, pairs, (x.rank, 2)), padding)
    return reshape(b, x, (*x.shape[:axis], count, size, *x.shape[axis + 1 :]), x)
