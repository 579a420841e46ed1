"""The elements that TFLite's RESIZE_NEAREST_NEIGHBOR reads, and the coordinates of both kernels that resize floats.

Source: LiteRT kernels/internal/reference/resize_nearest_neighbor.h (GetNearestNeighbor), optimized/optimized_ops.h
(ResizeNearestNeighbor of bytes, in fixed point).
Test: tests/unit/test_resizing.py (test_nearest_reads_what_the_kernel_rounds_to,
test_nearest_of_bytes_where_the_kernel_in_fixed_point_reads_others).
"""

from __future__ import annotations

import numpy as np

from onnxtfl.ir.budget import check_elements
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.data import Array
from onnxtfl.ir.formula import Term
from onnxtfl.ir.graph import Value
from onnxtfl.ir.reshape import iota
from onnxtfl.ir.types import DType


def tfl_coordinates(size: int, resized: int, corners: bool, offset: float = 0.0) -> Array:
    """(x + offset) * scale as the float kernels compute it, float32 [resized]."""
    f = np.float32
    scale = f(size - 1) / f(resized - 1) if corners and resized > 1 else f(size) / f(resized)
    return (np.arange(resized, dtype=f) + f(offset)) * scale


def tfl_nearest(size: int, resized: int, corners: bool, centers: bool) -> Array:
    """The index of each element that the reference kernel reads along an axis, int64 [resized]."""
    check_elements(resized, "the coordinates of an axis")
    where = tfl_coordinates(size, resized, corners, 0.5 if centers else 0.0)
    return np.asarray(np.minimum(np.floor(where.astype(np.float64) + (0.5 if corners else 0.0)), size - 1), np.int64)


def tfl_nearest_of_bytes(size: int, resized: int) -> Array:
    """The same of the optimized kernel for elements of 8 bits, without options: in fixed point."""
    check_elements(resized, "the coordinates of an axis")
    step = (size << 16) // resized + 1 if resized else 0
    return np.asarray(np.minimum(np.arange(resized, dtype=np.int64) * step >> 16, size - 1))


def computed_tfl_nearest(b: Builder, length: Value, count: Value) -> Value:
    """`tfl_nearest` with both options, for two dynamic sizes (vectors of one entry)."""
    size, resized = (Term(b, v).to(DType.FLOAT32) for v in (length, count))
    scale = (resized > 1.0).choose((size - 1.0) / (resized - 1.0).max(1.0), size / resized.max(1.0))
    where = (Term(b, iota(b, count)).to(DType.FLOAT32) + 0.5) * scale
    below = where.floor()
    nearest = (where - below < 0.5).choose(below, below + 1.0)  # halves away from 0
    return nearest.min(size - 1.0).to(DType.INT32).value
