"""Reductions over windows on any axes: ReduceWindow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from onnxtfl.ir import numeric
from onnxtfl.ir.attributes import Choice
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.formula import by_expansion
from onnxtfl.ir.graph import Value
from onnxtfl.ir.op import BOOLS, NUMERIC, OPS, Op, Operand
from onnxtfl.ir.ops.padding import Pad
from onnxtfl.ir.ops.slicing import END, Slice
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
            x = _join_windows(b, join, x, axis, window.shape[axis], strides[axis], dilations[axis])
    return x if init is None else b(join, x, init)


def _join_windows(b: Builder, join: type[Op], x: Value, axis: int, window: int, stride: int, dilation: int) -> Value:
    """Reduce the taps of the window along `axis`, each a slice by `stride`; all have the same length."""

    def place(index: int) -> Value:
        after = (window - 1 - index) * dilation
        starts, limits, strides = [0] * x.rank, [END] * x.rank, [1] * x.rank
        starts[axis], limits[axis], strides[axis] = index * dilation, -after or END, stride
        return b(Slice, x, starts, limits, strides)

    result = place(0)
    for index in range(1, window):
        result = b(join, result, place(index))
    return result
