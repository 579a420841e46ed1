"""Indices that mapping rules need: counted from the front, as rows of coordinates, as single positions."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import numpy as np

from onnxtfl.errors import UnsupportedError
from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.data import Array
from onnxtfl.ir.dims import Dim
from onnxtfl.ir.graph import Value, constant
from onnxtfl.ir.op import Op
from onnxtfl.ir.shapes import known_dims
from onnxtfl.rewriting.sizes import as_int64, dim_value, dim_vector, reshape

_MANY = 1 << 30


def nonnegative(b: Builder, indices: Value, size: Dim, *sources: Value) -> Value:
    """`indices` in [-size, size) brought to [0, size); free where they are constant or seen not to be negative."""
    if indices.is_constant and isinstance(size, int):
        numbers = indices.numpy()
        return (
            constant(np.where(numbers < 0, numbers + size, numbers).astype(numbers.dtype))
            if (numbers < 0).any()
            else indices
        )
    if never_negative(indices):
        return indices
    bound = dim_value(b, size, *sources)
    if bound.dtype is not indices.dtype:
        bound = b(ops.Convert, bound, dtype=indices.dtype)
    return b(ops.FloorMod, indices, bound if indices.rank else b(ops.Reshape, bound, np.zeros(0, np.int64)))


def never_negative(value: Value, depth: int = 8) -> bool:
    """Whether the integers in `value` are seen to be 0 or more, looking back over `depth` nodes at most."""
    if not value.dtype.is_integer:
        return False
    if not value.dtype.is_signed:
        return True
    if value.is_constant:
        return bool((value.numpy() >= 0).all())
    known = known_dims(value)
    if known is not None and all(_is_size(d) for d in known):
        return True
    node = value.producer
    if node is None or depth == 0:
        return False
    if node.op in (ops.Shape, ops.Size, ops.NonZero, ops.ArgMax, ops.ArgMin):
        return True
    if node.op in (ops.TopK, ops.Unique):
        return value.index > 0 or never_negative(node.operand(0), depth - 1)
    if node.op is ops.FloorMod:
        return never_negative(node.operand(1), depth - 1)
    count = _keeps_sign().get(node.op)
    return count is not None and all(never_negative(v, depth - 1) for v in node.operands[:count] if v is not None)


def _is_size(dim: Dim) -> bool:
    return dim >= 0 if isinstance(dim, int) else all(c > 0 for _, c in dim.terms) and "v?" not in str(dim)


@functools.cache
def _keeps_sign() -> dict[type[Op], int]:
    """Ops whose results are not negative where so many of their operands are not."""
    moving = (ops.Reshape, ops.Transpose, ops.Slice, ops.Gather, ops.BroadcastTo, ops.Split, ops.Convert, ops.Tile)
    arithmetic = (ops.Add, ops.Mul, ops.Div, ops.FloorDiv, ops.Rem, ops.Concatenate, ops.Max, ops.Min, ops.Range)
    return dict.fromkeys(moving, 1) | dict.fromkeys(arithmetic, _MANY)


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
        numbers = indices.numpy()
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
