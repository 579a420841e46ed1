"""Reductions over windows on any axes: ReduceWindow."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from onnxtfl.ir.define import *
from onnxtfl.ir.ops.arithmetic import Add, Max, Min, Mul
from onnxtfl.ir.ops.logic import And, Or
from onnxtfl.ir.ops.padding import Pad
from onnxtfl.ir.ops.slicing import END, Slice


class ReduceWindow(Derived):
    """Each window of the operand reduced (`kind`: sum, prod, max, min; any, all of bools), beginning with `init`.

    Windows, strides, dilations have an entry for each axis, `padding` (or `auto_pad`, `ceil_mode`, where sizes are
    known) all lows, then all highs; what is padded is `init` (absent: what changes nothing). Joined axis by axis.
    Source: neutral-ops 3.94 (`kind` is its `computation`); XLA ReduceWindow.
    """

    operands = (Operand("input", NUMERIC | BOOLS), Operand("init", NUMERIC | BOOLS, optional=True))
    defaults = {
        "kind": REQUIRED,
        "window_dimensions": REQUIRED,
        "window_strides": (),
        "window_dilations": (),
        "padding": (),
        "auto_pad": "NOTSET",
        "ceil_mode": False,
    }

    @classmethod
    def expand(cls, b: Builder, node: Node) -> list[Value]:
        x, windows = node.operand(0), tuple(node.attr("window_dimensions"))
        if node.attr("kind") not in _JOINS or len(windows) != x.rank:
            raise ValueError(f"{node.attr('kind')} over {len(windows)} of {x.rank} axes")
        join = _JOINS[node.attr("kind")]
        strides = tuple(node.attr("window_strides")) or (1,) * x.rank
        dilations = tuple(node.attr("window_dilations")) or (1,) * x.rank
        init = node.optional(1)
        spans = [(w - 1) * d + 1 for w, d in zip(windows, dilations, strict=True)]
        padding = _window_padding(node, x, spans, strides)
        if any(map(any, padding)):
            x = b(Pad, x, np.asarray(padding, np.int64), init or b.scalar(_neutral(join, x.dtype), x))
        for axis in normalize_axes([a for a in range(x.rank) if windows[a] > 1 or strides[a] > 1], x.rank):
            x = _join_windows(b, join, x, axis, windows[axis], strides[axis], dilations[axis])
        return [x if init is None else b(join, x, init)]


_JOINS: Mapping[str, type[Op]] = {"sum": Add, "prod": Mul, "max": Max, "min": Min, "any": Or, "all": And}


def _neutral(join: type[Op], dtype: DType) -> float:
    """What changes nothing when it is joined."""
    if join in (Add, Mul, Or, And):
        return float(join in (Mul, And))
    if dtype.is_float:
        return -math.inf if join is Max else math.inf
    limits = np.iinfo(dtype.numpy)
    return int(limits.min if join is Max else limits.max)


def _window_padding(node: Node, x: Value, spans: Sequence[int], strides: Sequence[int]) -> list[tuple[int, int]]:
    """Low and high padding of each axis."""
    given, mode, rank = tuple(node.attr("padding")), node.attr("auto_pad"), x.rank
    if mode in ("SAME_UPPER", "SAME_LOWER"):
        totals = [
            max((-(-_size(d) // s) - 1) * s + w - _size(d), 0) for d, w, s in zip(x.shape, spans, strides, strict=True)
        ]
        return [(t // 2, t - t // 2) if mode == "SAME_UPPER" else (t - t // 2, t // 2) for t in totals]
    pairs = list(zip(given[:rank], given[rank:], strict=True)) if given and mode == "NOTSET" else [(0, 0)] * rank
    if not node.attr("ceil_mode"):
        return pairs
    rests = [(_size(d) + sum(p) - w) % s for d, p, w, s in zip(x.shape, pairs, spans, strides, strict=True)]
    return [(low, high + (s - r) % s) for (low, high), r, s in zip(pairs, rests, strides, strict=True)]


def _size(dim: object) -> int:
    if not isinstance(dim, int):
        raise ValueError("sizes have to be known where windows are padded to fit")
    return dim


def _join_windows(b: Builder, join: type[Op], x: Value, axis: int, window: int, stride: int, dilation: int) -> Value:
    """One operand a place in the window, each a slice by `stride`, all of one length whatever the size is."""

    def place(index: int) -> Value:
        behind = (window - 1 - index) * dilation
        starts, limits, strides = [0] * x.rank, [END] * x.rank, [1] * x.rank
        starts[axis], limits[axis], strides[axis] = index * dilation, -behind or END, stride
        return b(Slice, x, starts, limits, strides)

    result = place(0)
    for index in range(1, window):
        result = b(join, result, place(index))
    return result
