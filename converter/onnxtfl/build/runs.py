"""Runs of consecutive positions along an axis, as slices and concatenations, which delegates compute."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.dims import product
from onnxtfl.ir.graph import Value
from onnxtfl.ir.ops.slicing import slice_axes
from onnxtfl.ir.reshape import reshape

MOST_RUNS = 8
"""The most runs that replace one op."""
MOST_JOINED = 5
"""The most tensors that XNNPACK concatenates at once."""
_MOST_AXES = 4
"""The rank up to which axes are not merged for a slice."""


def run_of(b: Builder, x: Value, axis: int, start: int, stop: int) -> Value:
    """The positions from `start` to `stop` of `x` along `axis`, sliced on few axes if the sizes are known."""
    if x.rank <= _MOST_AXES or not x.is_static:
        return slice_axes(b, x, {axis: slice(start, stop)})
    large = next((i for i in range(axis) if x.shape[i] != 1), 0)  # features of one image keep an axis of their own
    ends = sorted({0, min(large + 1, axis), axis, axis + 1, x.rank})
    few = reshape(b, x, [product(x.shape[i:j]) for i, j in itertools.pairwise(ends)])
    part = slice_axes(b, few, {ends.index(axis): slice(start, stop)})
    return reshape(b, part, (*x.shape[:axis], stop - start, *x.shape[axis + 1 :]))


def joined_runs(b: Builder, x: Value, axis: int, places: Sequence[int]) -> Value | None:
    """The slices of runs of consecutive `places` of `x` along `axis`, joined; None if these are many, or unknown."""
    starts = [i for i, place in enumerate(places) if i == 0 or place != places[i - 1] + 1]
    if not places or min(places) < 0 or len(starts) > MOST_RUNS:
        return None
    runs = [places[start:end] for start, end in itertools.pairwise([*starts, len(places)])]
    return joined(b, [run_of(b, x, axis, run[0], run[-1] + 1) for run in runs], axis)


def joined(b: Builder, parts: Sequence[Value], axis: int) -> Value:
    """`parts` one after the other along `axis`."""
    return joined_to(b, parts, axis, 1)[0]


def joined_to(b: Builder, parts: Sequence[Value], axis: int, most: int) -> Sequence[Value]:
    """At most `most` tensors of `parts`, one after the other along `axis`."""
    while len(parts) > most:
        groups = [parts[i : i + MOST_JOINED] for i in range(0, len(parts), MOST_JOINED)]
        parts = [b(ops.Concatenate, *group, axis=axis) if len(group) > 1 else group[0] for group in groups]
    return parts
