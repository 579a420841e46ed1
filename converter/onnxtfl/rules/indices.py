"""Indices that mapping rules need: counted from the front, as rows of coordinates, as single positions."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from onnxtfl.errors import UnsupportedError
from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.data import Array
from onnxtfl.ir.dims import Dim
from onnxtfl.ir.graph import Value, constant
from onnxtfl.ir.ranges import never_negative
from onnxtfl.ir.reshape import as_int64, dim_value, dim_vector, reshape


def nonnegative(b: Builder, indices: Value, size: Dim, *sources: Value) -> Value:
    """`indices` in [-size, size) brought to [0, size); free where they are constant or seen not to be negative."""
    if indices.is_constant and isinstance(size, int):
        numbers = _inside(indices.numpy(), [size])
        if not (numbers < 0).any():
            return indices
        return constant(np.where(numbers < 0, numbers + size, numbers).astype(numbers.dtype))
    if never_negative(indices):
        return indices
    bound = dim_value(b, size, *sources)
    if bound.dtype is not indices.dtype:
        bound = b(ops.Convert, bound, dtype=indices.dtype)
    return b(ops.FloorMod, indices, bound if indices.rank else b(ops.Reshape, bound, np.zeros(0, np.int64)))


def _inside(numbers: Array, sizes: Sequence[Dim]) -> Array:
    """Indices of axes of `sizes`, the last axis running over these; ValueError where one lies outside."""
    wide, limits = numbers.astype(np.int64), np.asarray(sizes, np.int64)
    outside = (wide >= limits) | (wide < -limits)
    if outside.any():
        raise ValueError(f"the index {wide[outside][0]} lies outside of axes of sizes {', '.join(map(str, sizes))}")
    return numbers


def strides_of(sizes: Sequence[Dim]) -> Array:
    """How far apart neighbours along each axis lie in C order, in elements; all sizes but the first have to be ints."""
    inner = [int(str(d)) for d in sizes[1:]]
    return np.asarray([math.prod(inner[i:]) for i in range(len(sizes))], np.int64)


def resolved_rows(b: Builder, x: Value, indices: Value, batch: int) -> Value:
    """Rows of positions of the axes of `x` behind `batch`, those counted from the end resolved."""
    depth = indices.shape[-1]
    if not isinstance(depth, int) or x.tensor_type.shape is None:
        raise UnsupportedError("how many axes are indexed has to be known before run time", hint="give --input-shape")
    sizes = x.shape[batch : batch + depth]
    if indices.is_constant and all(isinstance(d, int) for d in sizes):
        numbers = _inside(indices.numpy(), sizes)
        return constant(np.where(numbers < 0, numbers + np.asarray(sizes, numbers.dtype), numbers))
    if len(set(sizes)) == 1:
        return nonnegative(b, indices, sizes[0], x)
    wide = as_int64(b, indices)
    return b(ops.FloorMod, wide, dim_vector(b, sizes, x))


def flat_positions(b: Builder, rows: Value, sizes: Sequence[Dim]) -> Value:
    """Rows of positions as single positions over axes of `sizes`, all known, merged to one."""
    strides = strides_of(sizes)
    if rows.is_constant:
        return constant((rows.numpy().astype(np.int64) * strides).sum(-1).astype(rows.dtype.numpy))
    if len(sizes) == 1:
        return reshape(b, rows, rows.shape[:-1])
    scaled = b(ops.Mul, rows, constant(strides.astype(rows.dtype.numpy)))
    return b(ops.Reduce, scaled, [rows.rank - 1], kind="sum", keepdims=False)
