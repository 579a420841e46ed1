"""Ops of the neutral set that stand for a few core ops of a network's layer: each is its one rule into the core."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from onnxtfl.ir.builder import Builder
from onnxtfl.ir.graph import Node, Value
from onnxtfl.ir.op import ANY, FLOATS, NUMERIC, REQUIRED, Op, Operand
from onnxtfl.ir.ops.binary import Add, Clamp, Div, Max, Min, Mul, Sub
from onnxtfl.ir.ops.contraction import DotGeneral
from onnxtfl.ir.ops.derived import END, Derived
from onnxtfl.ir.ops.elementwise import Log, Neg, Sqrt
from onnxtfl.ir.ops.reductions import Reduce
from onnxtfl.ir.ops.shape import BroadcastTo, Concatenate, Pad, Reshape, Shape, Slice
from onnxtfl.ir.shapes import normalize_axes, normalize_axis
from onnxtfl.ir.types import DType

__all__ = [
    "BCELoss",
    "Dot",
    "Dropout",
    "Gemm",
    "GlobalAveragePool",
    "GlobalMaxPool",
    "GroupNorm",
    "ReduceWindow",
]

Attributes = Mapping[str, Any]


def _product(b: Builder, lhs: Value, rhs: Value, lhs_axis: int, rhs_axis: int) -> Value:
    return b(
        DotGeneral, lhs, rhs, lhs_contracting_dimensions=(lhs_axis,), rhs_contracting_dimensions=(rhs_axis,)
    )  # fmt: skip


class Dot(Derived):
    """The last axis of `lhs` against the first of `rhs`, both of rank 1 or 2. Source: neutral-ops 3.37; XLA Dot."""

    operands = (Operand("lhs", NUMERIC), Operand("rhs", NUMERIC))

    @classmethod
    def expand(cls, b: Builder, node: Node) -> list[Value]:
        lhs, rhs = node.operand(0), node.operand(1)
        if not {lhs.rank, rhs.rank} <= {1, 2}:
            raise ValueError(f"vectors or matrices, not ranks {lhs.rank} and {rhs.rank}")
        return [_product(b, lhs, rhs, lhs.rank - 1, 0)]


class Gemm(Derived):
    """alpha * A @ B + beta * C, A and B transposed where the flags say so. Source: neutral-ops 3.55; ONNX Gemm-13."""

    operands = (Operand("a", NUMERIC), Operand("b", NUMERIC), Operand("c", NUMERIC, optional=True))
    defaults: ClassVar[Attributes] = {"alpha": 1.0, "beta": 1.0, "transA": False, "transB": False}

    @classmethod
    def expand(cls, b: Builder, node: Node) -> list[Value]:
        lhs, rhs, c = node.operand(0), node.operand(1), node.optional(2)
        if lhs.rank != 2 or rhs.rank != 2:
            raise ValueError(f"matrices, not ranks {lhs.rank} and {rhs.rank}")
        result = _product(b, lhs, rhs, int(not node.attr("transA")), int(node.attr("transB")))
        result = _scaled(b, result, node.attr("alpha"))
        return [result if c is None else b(Add, result, _scaled(b, c, node.attr("beta")))]


def _scaled(b: Builder, x: Value, factor: float) -> Value:
    return x if factor == 1 else b(Mul, x, b.scalar(factor, x))


class GlobalAveragePool(Derived):
    """The mean over the spatial axes `dims`, which stay with size 1. Source: neutral-ops 3.58."""

    kind: ClassVar[str] = "mean"
    operands = (Operand("input", NUMERIC),)
    defaults: ClassVar[Attributes] = {"dims": REQUIRED}

    @classmethod
    def expand(cls, b: Builder, node: Node) -> list[Value]:
        return [b(Reduce, node.operand(0), list(node.attr("dims")), kind=cls.kind, keepdims=True)]


class GlobalMaxPool(GlobalAveragePool):
    """The maximum over the spatial axes `dims`, which stay with size 1. Source: neutral-ops 3.59."""

    kind = "max"


class GroupNorm(Derived):
    """(x - mean) / sqrt(variance + epsilon) * scale + bias, statistics over each of `num_groups` groups of features.

    Axis 0 is the batch; scale and bias have an entry for each feature. Source: neutral-ops 3.62; ONNX
    GroupNormalization-21.
    """

    operands = tuple(Operand(name, FLOATS) for name in ("input", "scale", "bias"))
    defaults: ClassVar[Attributes] = {"num_groups": REQUIRED, "epsilon": 1e-5, "feature_index": 1}

    @classmethod
    def expand(cls, b: Builder, node: Node) -> list[Value]:
        x, groups = node.operand(0), node.attr("num_groups")
        axis = normalize_axis(node.attr("feature_index"), x.rank)
        features = x.shape[axis]
        if not isinstance(features, int) or features % groups:
            raise ValueError(f"{features} features in {groups} groups")
        sizes = b(Shape, x)
        before, behind = _part(b, sizes, 0, axis), _part(b, sizes, axis + 1, END)
        grouped = b(Concatenate, before, [groups, features // groups], behind, axis=0)
        apart = b(Reshape, x, grouped)
        others = [a for a in range(1, x.rank + 1) if a != axis]
        apart = b(Sub, apart, b(Reduce, apart, others, kind="mean", keepdims=True))
        variance = b(Reduce, b(Mul, apart, apart), others, kind="mean", keepdims=True)
        deviation = b(Sqrt, b(Add, variance, b.scalar(node.attr("epsilon"), x)))
        result = b(Reshape, b(Div, apart, deviation), sizes)
        along = [1] * axis + [features] + [1] * (x.rank - axis - 1)
        scale, bias = (b(Reshape, node.operand(i), along) for i in (1, 2))
        return [b(Add, b(Mul, result, scale), bias)]


def _part(b: Builder, vector: Value, start: int, limit: int) -> Value:
    return b(Slice, vector, [start], [limit], [1])


class Dropout(Derived):
    """At inference nothing is dropped: the operand, and a mask that is true everywhere. Source: neutral-ops 3.40."""

    operands = (Operand("input", ANY),)
    results = (Operand("output"), Operand("mask"))
    defaults: ClassVar[Attributes] = {"ratio": 0.5}

    @classmethod
    def expand(cls, b: Builder, node: Node) -> list[Value]:
        x = node.operand(0)
        return [x, b(BroadcastTo, np.asarray(True), b(Shape, x))]


class BCELoss(Derived):
    """-(target * log(input) + (1 - target) * log(1 - input)) * weight, and its `reduction` (none, sum, mean).

    Logarithms are not below -100. Source: neutral-ops 3.16; torch.nn.BCELoss.
    """

    operands = (Operand("input", FLOATS), Operand("target", FLOATS), Operand("weight", FLOATS, optional=True))
    defaults: ClassVar[Attributes] = {"reduction": "mean"}

    @classmethod
    def expand(cls, b: Builder, node: Node) -> list[Value]:
        x, target, weight = node.operand(0), node.operand(1), node.optional(2)
        one, least = b.scalar(1, x), b.scalar(-100, x)
        yes = b(Mul, target, b(Clamp, b(Log, x), least))
        no = b(Mul, b(Sub, one, target), b(Clamp, b(Log, b(Sub, one, x)), least))
        loss = b(Neg, b(Add, yes, no))
        loss = loss if weight is None else b(Mul, loss, weight)
        reduction = node.attr("reduction")
        if reduction not in ("none", "sum", "mean"):
            raise ValueError(f"no reduction is called {reduction!r}")
        return [loss if reduction == "none" else b(Reduce, loss, kind=reduction)]


class ReduceWindow(Derived):
    """Each window of the operand joined by `computation` (ADD, MUL, MAX, MIN), beginning with `init`.

    Windows, strides, dilations have an entry for each axis, `padding` (or `auto_pad`, `ceil_mode`, where sizes are
    known) all lows, then all highs; what is padded is `init` (absent: what changes nothing). Joined axis by axis.
    Source: neutral-ops 3.94; XLA ReduceWindow.
    """

    operands = (Operand("input", NUMERIC), Operand("init", NUMERIC, optional=True))
    defaults: ClassVar[Attributes] = {
        "computation": REQUIRED,
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
        if node.attr("computation") not in _JOINS or len(windows) != x.rank:
            raise ValueError(f"{node.attr('computation')} over {len(windows)} of {x.rank} axes")
        join = _JOINS[node.attr("computation")]
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


_JOINS: Mapping[str, type[Op]] = {"ADD": Add, "MUL": Mul, "MAX": Max, "MIN": Min}


def _neutral(join: type[Op], dtype: DType) -> float:
    """What changes nothing when it is joined."""
    if join in (Add, Mul):
        return float(join is Mul)
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
