"""AffineGrid 20, Det 11 22, DeformConv 19 22, MaxUnpool 9 11 22, by elementary ops in TFLite."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np

from onnxtfl.errors import UnsupportedError
from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.data import Array
from onnxtfl.ir.dims import Dim, product, static
from onnxtfl.ir.graph import Node, Value, constant
from onnxtfl.ir.shapes import static_ints
from onnxtfl.rules import (
    FeatureMap,
    Term,
    along_channels,
    dim_vector,
    kernel_sizes,
    lift_onnx,
    neighbours,
    onnx_window,
    reshape,
    transposed,
)

LARGEST_DETERMINANT = 6
_END = int(np.iinfo(np.int32).max)


@lift_onnx("AffineGrid", since=(20,))
def _affine_grid(b: Builder, node: Node) -> Value:
    """theta [n, r, r + 1] applied to the places of a map of `size` [n, c, spatial...]: [n, spatial..., r]."""
    theta, size, corners = node.operand(0), node.operand(1), bool(node.attr("align_corners", 0))
    known, rank = static_ints(size), theta.shape[1]
    if not isinstance(rank, int):
        raise UnsupportedError("the rank of an affine grid is not known", hint="give --input-shape")
    if known is None:
        return _open_grid(b, theta, size, rank, corners)
    places = np.meshgrid(*(_places(n, corners) for n in known[2:]), indexing="ij")
    table = np.stack([*(p.reshape(-1) for p in reversed(places)), np.ones(places[0].size)], axis=1)
    axes = {"lhs_contracting_dimensions": (2,), "rhs_contracting_dimensions": (1,), "output_permutation": (0, 2, 1)}
    grid = b(ops.DotGeneral, theta, table.astype(theta.dtype.numpy), **axes)
    return reshape(b, grid, (theta.shape[0], *known[2:], rank))


def _places(count: int, corners: bool) -> Array:
    """The centers of `count` elements between -1 and 1, the outer ones on these if `corners`."""
    if corners:
        return np.asarray(np.linspace(-1, 1, count))
    return (np.arange(count) * 2 + 1) / count - 1


def _open_grid(b: Builder, theta: Value, size: Value, rank: int, corners: bool) -> Value:
    """The same for a size known at run time: one broadcast product for each column of theta."""
    total = _column(b, theta, rank, rank)
    for axis in range(rank):
        length = reshape(b, b(ops.Gather, size, [2 + axis], axis=0), ())
        count = Term(b, b(ops.Convert, length, dtype=theta.dtype))
        steps = b(ops.Range, b.scalar(0, length), length, b.scalar(1, length))
        x = Term(b, b(ops.Convert, steps, dtype=theta.dtype))
        place = x * 2.0 / (count - 1.0).max(1.0) - 1.0 if corners else (x * 2.0 + 1.0) / count - 1.0
        shape: list[Dim] = [1] * (rank + 2)
        shape[1 + axis] = place.value.shape[0]
        along = Term(b, reshape(b, place.value, shape))
        total = total + along * _column(b, theta, rank - 1 - axis, rank)
    return total.value


def _column(b: Builder, theta: Value, index: int, rank: int) -> Term:
    """A column of theta as [n, 1..., r]."""
    column = b(ops.Gather, theta, np.asarray(index), axis=2)
    return Term(b, reshape(b, column, (theta.shape[0], *[1] * rank, rank)))


@lift_onnx("Det", since=(11, 22))
def _det(b: Builder, node: Node) -> Value:
    """By minors, each made once: n 2^n products."""
    x = node.operand(0)
    n = x.shape[-1]
    if not isinstance(n, int) or n > LARGEST_DETERMINANT:
        raise UnsupportedError(f"determinants of matrices over {LARGEST_DETERMINANT} x {LARGEST_DETERMINANT}")

    @functools.cache
    def element(i: int, j: int) -> Term:
        row = b(ops.Gather, x, np.asarray(i), axis=x.rank - 2)
        return Term(b, b(ops.Gather, row, np.asarray(j), axis=x.rank - 2))

    @functools.cache
    def minor(row: int, columns: tuple[int, ...]) -> Term:
        if len(columns) == 1:
            return element(row, columns[0])
        total: Term | None = None
        for k, column in enumerate(columns):
            term = element(row, column) * minor(row + 1, (*columns[:k], *columns[k + 1 :]))
            total = term if total is None else total - term if k % 2 else total + term
        assert total is not None
        return total

    return minor(0, tuple(range(n))).value


@lift_onnx("MaxUnpool", since=(9, 11, 22))
def _max_unpool(b: Builder, node: Node) -> Value:
    """The elements put back at their numbers in a map of zeros, which `output_shape` may grow at its ends."""
    x, indices, wanted = node.operand(0), node.operand(1), node.optional(2)
    kernel = tuple(node.attr("kernel_shape"))
    strides, pads = tuple(node.attr("strides", ())) or (1,) * len(kernel), node.attr("pads", (0,) * (2 * len(kernel)))
    sizes = [(x.shape[2 + i] - 1) * strides[i] + k - pads[i] - pads[len(kernel) + i] for i, k in enumerate(kernel)]
    shape = (*x.shape[:2], *sizes)
    if not static(shape):
        raise UnsupportedError("unpooling to a size that is not known", hint="give --input-shape")
    count = product(x.shape)
    places, values = reshape(b, indices, (count, 1)), reshape(b, x, (count,))
    flat = b(ops.ScatterND, None, places, values, dim_vector(b, [product(shape)]), kind="none")
    full = reshape(b, flat, shape)
    if wanted is None:
        return full
    more = b(ops.Sub, wanted, dim_vector(b, shape))
    columns = reshape(b, more, (len(shape), 1))
    table = b(ops.Concatenate, np.zeros((len(shape), 1), np.int64), columns, axis=1)
    return b(ops.Pad, full, table, None, mode="constant")


@lift_onnx("DeformConv", since=(19, 22))
def _deform_conv(b: Builder, node: Node) -> Value:
    """Bilinear samples at the window's taps moved by `offset`, times `mask`, times the kernel.

    Source: ONNX DeformConv-19; outside of the map are zeros.
    """
    x, kernel, offset, bias, mask = (node.optional(i) for i in range(5))
    assert x is not None and kernel is not None and offset is not None
    sizes, groups = kernel_sizes(node, kernel), int(node.attr("offset_group", 1))
    spatial = [d for d in offset.shape[2:] if isinstance(d, int)]
    if len(sizes) != 2 or len(spatial) != 2 or not isinstance(x.shape[1], int):
        raise UnsupportedError("a deformable convolution over other than two axes of known size")
    window = onnx_window(node, sizes, x.shape[2:])
    taps, count = list(window.taps()), spatial[0] * spatial[1]
    base = [
        [(np.arange(n) * s - p + t[i] * d) for t in taps]
        for i, (n, s, p, d) in enumerate(zip(spatial, window.strides, window.before, window.dilations, strict=True))
    ]
    rows = np.stack([np.repeat(r, spatial[1]) for r in base[0]]).reshape(1, -1)
    columns = np.stack([np.tile(c, spatial[0]) for c in base[1]]).reshape(1, -1)
    lines = [line.astype(x.dtype.numpy) for line in (rows, columns)]
    moved = reshape(b, offset, (x.shape[0], groups, len(taps), 2, count))
    depth, parts = x.shape[1] // groups, []
    for g in range(groups):
        part = FeatureMap(b, _between(b, x, 1, g * depth, (g + 1) * depth))
        places = [_moved(b, moved, g, i, constant(line)) for i, line in enumerate(lines)]
        sampled = _bilinear(part, places)
        if mask is not None:
            own = _between(b, mask, 1, g * len(taps), (g + 1) * len(taps))
            sampled = sampled * along_channels(Term(b, reshape(b, own, (x.shape[0], len(taps) * count))))
        parts.append(reshape(b, sampled.value, (x.shape[0], len(taps), count, depth)))
    joined = parts[0] if groups == 1 else b(ops.Concatenate, *parts, axis=3)
    result = _contracted(b, joined, kernel, int(node.attr("group", 1)))
    image = transposed(b, reshape(b, result, (x.shape[0], *spatial, kernel.shape[0])), (0, 3, 1, 2))
    return image if bias is None else b(ops.Add, image, reshape(b, bias, (*bias.shape, 1, 1)))


def _between(b: Builder, x: Value, axis: int, start: int, stop: int) -> Value:
    if start == 0 and x.shape[axis] == stop:
        return x
    starts, limits = [0] * x.rank, [_END] * x.rank
    starts[axis], limits[axis] = start, stop
    return b(ops.Slice, x, starts, limits, [1] * x.rank)


def _moved(b: Builder, offsets: Value, group: int, axis: int, base: Value) -> Term:
    """The places along one axis: [n, taps * positions]."""
    own = b(ops.Gather, b(ops.Gather, offsets, np.asarray(group), axis=1), np.asarray(axis), axis=2)
    flat = reshape(b, own, (offsets.shape[0], product(offsets.shape[2:3]) * product(offsets.shape[4:])))
    return Term(b, b(ops.Add, flat, base))


def _bilinear(part: FeatureMap, places: Sequence[Term]) -> Term:
    """The map between its elements, zeros outside: [n, p, c]."""
    bases = [p.floor() for p in places]
    rests = [p - base for p, base in zip(places, bases, strict=True)]
    total: Term | None = None
    for tap in neighbours(2, (0, 1)):
        at = [base + float(t) if t else base for base, t in zip(bases, tap, strict=True)]
        down, right = (rest if t else 1.0 - rest for rest, t in zip(rests, tap, strict=True))
        term = part.at(at) * along_channels(down * right * part.inside(at))
        total = term if total is None else total + term
    assert total is not None
    return total


def _contracted(b: Builder, samples: Value, kernel: Value, groups: int) -> Value:
    """samples [n, taps, p, c] times kernel [o, c / groups, taps...]: [n, p, o]."""
    out, depth = (int(str(d)) for d in kernel.shape[:2])
    flat = reshape(b, kernel, (out, depth, product(kernel.shape[2:])))
    parts = []
    for g in range(groups):
        own = _between(b, samples, 3, g * depth, (g + 1) * depth)
        rows = _between(b, flat, 0, g * (out // groups), (g + 1) * (out // groups))
        axes = {"lhs_contracting_dimensions": (1, 3), "rhs_contracting_dimensions": (2, 1)}
        parts.append(b(ops.DotGeneral, own, rows, **axes))
    return parts[0] if groups == 1 else b(ops.Concatenate, *parts, axis=2)
