"""Typical nodes: ops with several forms, and ops whose kernels depend on the axis order."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from onnxtfl.ir import ops
from onnxtfl.ir.op import Op
from onnxtfl.ir.ops.convolution import channels_last_attributes, window_attributes
from onnxtfl.ir.spatial import Window
from onnxtfl.ir.types import DType

Shape = tuple[int, ...]
FEATURE_MAPS = (
    (1, 56, 56, 64),
    (1, 14, 14, 256),
    (4, 32, 32, 32),
    (1, 8, 8, 16),
    (2, 6, 4, 8),
    (1, 4, 6, 2),
    (1, 24, 60, 4),
    (1, 64, 56, 56),
    (1, 3, 256, 256),
    (1, 256, 256, 3),
    (1, 197, 4, 32),
    (1, 32, 8, 64),
)
_ALL = np.iinfo(np.int32).max


@dataclass(frozen=True)
class Sample:
    """A node to measure: tuples among `operands` are shapes of computed float operands, others are constants."""

    op: type[Op]
    operands: Sequence[Any]
    attributes: Mapping[str, Any] = field(default_factory=dict)


def samples() -> Iterator[Sample]:
    """All samples."""
    yield from products()
    yield from convolutions()
    yield from parts()
    for shape in FEATURE_MAPS:
        yield from data_movement(shape)
        yield from elementwise(shape)
        yield from along_axes(shape)


_ATTENTION = ((4, 197, 32, 197), (4, 197, 197, 32), (8, 49, 49, 32), (8, 49, 32, 49), (2, 256, 16, 64), (4, 32, 32, 32))
"""Heads, positions, and the sizes of the products of an attention."""


def products() -> Iterator[Sample]:
    """Matrix products: one and many rows, the second operand constant and computed, each axis contracted."""
    sizes = ((1, 64, 10), (8, 16, 16), (1, 256, 256), (16, 64, 64), (128, 128, 128), (1, 1024, 512), (64, 512, 32))
    for m, k, n in (*sizes, (200, 96, 384)):
        for weight, (i, j) in itertools.product((True, False), itertools.product((0, 1), repeat=2)):
            lhs, rhs = ((m, k), (k, m))[i == 0], ((k, n), (n, k))[j]
            axes = {"lhs_contracting_dimensions": (i,), "rhs_contracting_dimensions": (j,)}
            yield Sample(ops.DotGeneral, [lhs, _weight(rhs) if weight else rhs], axes)
    for b, m, k, n in ((1, 16, 64, 64), (1, 128, 128, 128), (4, 16, 96, 64), (2, 128, 64, 256)):
        for weight, j in itertools.product((True, False), (0, 1)):
            rhs = ((k, n), (n, k))[j]
            axes = {"lhs_contracting_dimensions": (2,), "rhs_contracting_dimensions": (j,)}
            yield Sample(ops.DotGeneral, [(b, m, k), _weight(rhs) if weight else rhs], axes)
    for b, m, k, n in (*_ATTENTION, (8, 64, 64, 64), (12, 128, 32, 128), (4, 1, 64, 200)):
        for i, j in itertools.product((1, 2), repeat=2):
            lhs, rhs = ((b, m, k), (b, k, m))[i == 1], ((b, k, n), (b, n, k))[j == 2]
            axes = {f"{side}_batching_dimensions": (0,) for side in ("lhs", "rhs")}
            axes |= {"lhs_contracting_dimensions": (i,), "rhs_contracting_dimensions": (j,)}
            yield Sample(ops.DotGeneral, [lhs, rhs], axes)
    for heads, s, e, d in itertools.product((4,), (16, 197), (64, 384), (8, 24, 32, 64)):
        axes = {f"{side}_batching_dimensions": (0,) for side in ("lhs", "rhs")}
        axes |= {"lhs_contracting_dimensions": (2,), "rhs_contracting_dimensions": (1,)}
        yield Sample(ops.DotGeneral, [(1, s, e), _weight((heads, e, d))], axes)


def convolutions() -> Iterator[Sample]:
    """Convolutions of few and many features and taps; depthwise ones of more taps than XNNPACK's kernels take."""
    maps = ((32, 32, 8), (32, 32, 32), (14, 14, 96), (7, 7, 256), (64, 64, 16))
    for (height, width, features), out, taps in itertools.product(maps, (4, 16, 24, 64), (1, 3, 5)):
        yield _convolution((1, height, width, features), (out, taps, taps, features), 1)
    for (height, width, features), taps in itertools.product(maps, ((3, 3), (5, 5), (1, 9), (7, 7), (5, 6), (9, 9))):
        yield _convolution((1, height + 8, width + 8, features), (1, *taps, features), features)


def _convolution(shape: Shape, kernel: Shape, groups: int) -> Sample:
    numbers = channels_last_attributes(2, 3, 0, (1, 2)) if groups == 1 else channels_last_attributes(2, 0, 3, (1, 2))
    window = window_attributes(Window.of(kernel[1:3], (1, 1), (1, 1), (0, 0, 0, 0)))
    bias = np.ones(kernel[0] if groups == 1 else kernel[-1], np.float32)
    if kernel[1] > shape[1] or kernel[2] > shape[2]:
        raise ValueError(f"a kernel {kernel} for {shape}")
    return Sample(ops.Conv, [shape, _weight(kernel), bias], {**numbers, **window, "feature_group_count": groups})


def parts() -> Iterator[Sample]:
    """Concatenations of many parts, as the steps of a recurrent layer, and splits into few.

    More parts than XNNPACK makes are slices: these take 0 to 22 % less time in models, of 5 to 64 parts of 128 to 32768
    floats, although the fitted costs of single ops are higher.
    """
    for shape, axis in (((25, 1, 128), 0), ((25, 1, 512), 0), ((10, 2, 64), 0), ((1, 16, 16, 64), 3), ((8, 40, 32), 0)):
        size = shape[axis]
        for count in (count for count in (2, 4, 5, 8, 10, 16, 25) if size % count == 0):
            if count < 5:
                yield Sample(ops.Split, [shape, np.full(count, size // count)], {"axis": axis})
            part = (*shape[:axis], size // count, *shape[axis + 1 :])
            yield Sample(ops.Concatenate, [part] * count, {"axis": axis})


def elementwise(shape: Shape) -> Iterator[Sample]:
    """Arithmetic on one tensor, on two, and on one and a vector."""
    for op in (ops.Add, ops.Sub, ops.Mul, ops.Div, ops.Max, ops.Min):
        yield Sample(op, [shape, shape])
        yield Sample(op, [shape, _weight(shape[-1:])])
    for op in (ops.Exp, ops.Sigmoid, ops.Tanh, ops.Sqrt, ops.Rsqrt, ops.Neg, ops.Abs, ops.Log, ops.Sign):
        yield Sample(op, [shape])


def _weight(shape: Shape) -> Any:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def data_movement(shape: Shape) -> Iterator[Sample]:
    """Ops that copy elements without arithmetic."""
    yield Sample(ops.Copy, [shape])
    yield Sample(ops.Reshape, [shape, np.asarray([shape[0] * shape[1], -1])])
    for order in itertools.permutations(range(4)):
        large = [axis for axis in order if shape[axis] != 1]
        if large != sorted(large):  # else no element moves
            yield Sample(ops.Transpose, [shape], {"permutation": order})
    for axis in (1, 2, 3):
        size = shape[axis]
        yield Sample(ops.Concatenate, [shape, shape], {"axis": axis})
        for part in (size // 2, 1):
            yield Sample(ops.Split, [shape, np.asarray([part, size - part])], {"axis": axis})
        for start, limit in ((1, size // 2 + 1), (0, -(-size // 8)), (size // 8, size)):
            yield _slice(shape, axis, start, limit)
        yield Sample(ops.Pad, [shape, _pads(axis), np.float32(0)])
        yield Sample(ops.Pad, [shape, _pads(axis)], {"mode": "symmetric"})
        yield Sample(ops.Gather, [shape, np.arange(0, size, 2)], {"axis": axis})
        yield Sample(ops.Reverse, [shape], {"dimensions": (axis,)})
    yield Sample(ops.Pad, [shape, _pads(1, 2), np.float32(0)])
    yield Sample(ops.Pad, [shape, _pads(2, 3), np.float32(0)])
    yield Sample(ops.Pad, [shape, _pads(1, 2)], {"mode": "symmetric"})


def _slice(shape: Shape, axis: int, start: int, limit: int) -> Sample:
    starts, limits = np.zeros(4, np.int64), np.full(4, _ALL, np.int64)
    starts[axis], limits[axis] = start, limit
    return Sample(ops.Slice, [shape, starts, limits, np.ones(4, np.int64)])


def _pads(*axes: int) -> Any:
    return np.asarray([[int(a in axes)] * 2 for a in range(4)])


def along_axes(shape: Shape) -> Iterator[Sample]:
    """Ops that compute along axes."""
    for axes, kind in itertools.product(((1,), (2,), (3,), (1, 2), (2, 3)), ("mean", "sum", "max", "min", "prod")):
        yield Sample(ops.Reduce, [shape, np.asarray(axes)], {"kind": kind, "keepdims": True})
    for axis in (1, 2, 3):
        yield Sample(ops.Softmax, [shape], {"axis": axis})
        yield Sample(ops.LogSoftmax, [shape], {"axis": axis})
        yield Sample(ops.CumSum, [shape, np.asarray(axis)])
        for op, dtype in itertools.product((ops.ArgMax, ops.ArgMin), (DType.INT32, DType.INT64)):
            yield Sample(op, [shape], {"axis": axis, "dtype": dtype, "keepdims": False})
