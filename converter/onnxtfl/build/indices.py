"""Helpers for index operands: negative indices, index vectors, and flat indices."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.data import Array
from onnxtfl.ir.dims import Dim, is_static, known_size, product
from onnxtfl.ir.facts import never_negative
from onnxtfl.ir.formula import Term
from onnxtfl.ir.graph import Value, constant
from onnxtfl.ir.reshape import as_int64, dim_value, dim_vector, reshape


def nonnegative(b: Builder, indices: Value, size: Dim, *sources: Value) -> Value:
    """Map `indices` from [-size, size) to [0, size); creates no node if they are constant or known to be
    nonnegative.
    """
    _check(indices, [size])
    if never_negative(indices):
        return indices
    bound = dim_value(b, size, *sources)
    if bound.dtype is not indices.dtype:
        bound = b(ops.Convert, bound, dtype=indices.dtype)
    if not isinstance(size, int) and not is_static(indices.shape):
        # kernels refuse a divisor of 0 for empty tensors too
        bound = b(ops.Max, bound, np.ones(1, indices.dtype.numpy))
    return b.computed(ops.FloorMod, indices, bound if indices.rank else b(ops.Reshape, bound, np.zeros(0, np.int64)))


def _check(indices: Value, sizes: Sequence[Dim]) -> None:
    """Raise ValueError if a constant index in `indices` [..., len(sizes)] (or [...] for one axis) is out of range."""
    if not indices.is_constant or not is_static(sizes):
        return
    given, limits = indices.numpy(), np.asarray(sizes, np.int64)
    if given.dtype.kind not in "iuV":
        raise ValueError(f"indices cannot be {given.dtype}")
    wide = given.astype(np.int64)
    outside = (wide >= limits) | (wide < -limits)
    if outside.any():
        raise ValueError(f"the index {wide[outside][0]} is out of range for axes of sizes {', '.join(map(str, sizes))}")


def strides_of(sizes: Sequence[Dim]) -> Array:
    """The strides of a tensor in C order, in elements; all sizes except the first must be ints."""
    inner = [known_size(d) for d in sizes[1:]]
    return np.asarray([math.prod(inner[i:]) for i in range(len(sizes))], np.int64)


def resolved_rows(b: Builder, x: Value, indices: Value, batch: int) -> Value:
    """Map index vectors [..., depth] into the axes of `x` from `batch` on to nonnegative ones."""
    depth = known_size(indices.shape[-1], "the number of indexed axes")
    sizes = x.shape[batch : batch + depth]
    _check(indices, sizes)
    if len(set(sizes)) == 1:
        return nonnegative(b, indices, sizes[0], x)
    return b.computed(ops.FloorMod, as_int64(b, indices), dim_vector(b, sizes, x))


def flat_positions(b: Builder, rows: Value, sizes: Sequence[Dim], source: Value) -> Value:
    """Return index vectors [..., len(sizes)] as flat indices [...] in C order; `source` has the dynamic `sizes`."""
    if len(sizes) == 1:
        return reshape(b, rows, rows.shape[:-1])
    steps = dim_vector(b, [product(sizes[i + 1 :]) for i in range(len(sizes))], source)
    steps, rows = (steps, as_int64(b, rows)) if not steps.is_constant else (constant(steps.numpy(), rows.dtype), rows)
    return (Term(b, rows) * Term(b, steps)).reduce("sum", [rows.rank - 1], keepdims=False).value
