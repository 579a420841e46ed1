"""TFLite's RESIZE_BILINEAR: on integers, means in fixed point, with weights in units of 1/1024.

Source: LiteRT kernels/internal/reference/resize_bilinear.h (ResizeBilinear, ResizeBilinearInteger).
Test: tests/unit/test_resizing.py (test_a_bilinear_resize_of_integers_over_open_sizes,
test_int8_resized_to_computed_sizes_is_what_the_kernel_computes).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from onnxtfl.errors import UnsupportedError
from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.data import Array
from onnxtfl.ir.dims import Dim
from onnxtfl.ir.formula import Term
from onnxtfl.ir.graph import Node, Value
from onnxtfl.ir.quantized import quantization_of
from onnxtfl.ir.resampling import Sampling
from onnxtfl.ir.reshape import as_int64, dim_value, iota
from onnxtfl.ir.shapes import dims_from, static_ints
from onnxtfl.ir.types import DType
from onnxtfl.kernels.resize_nearest_neighbor import tfl_coordinates
from onnxtfl.rewriting.stored_integers import integers_of, with_quantization

_ONE = 1 << 10
_MOST_DRIFT = 1 / 512
"""The largest error of a coordinate in elements: neighbors differ by up to 255 steps, along two axes."""


def tfl_bilinear(size: int, resized: int, corners: bool, centers: bool) -> Array:
    """The coordinate of each result along an axis in the float kernels, float32 [resized]."""
    if centers:
        return tfl_coordinates(size, resized, False, 0.5) - np.float32(0.5)
    return tfl_coordinates(size, resized, corners)


def bilinear_of_integers(b: Builder, node: Node, places: Mapping[str, str]) -> Value | None:
    """RESIZE_BILINEAR on int16, on int8 without scales, and on int8 to computed sizes, which XNNPACK (with exact
    coordinates) does not accept; None for others.

    ::

        %y = (rows [P, H] * %x : int64 [N, H, W, C] * columns [Q, W]) / 2^20, rounded    [N, P, Q, C]

    Raises UnsupportedError if the kernel reads elements after the last one.
    """
    x, quantization = node.operand(0), quantization_of(node.operand(0))
    dtype = x.dtype if quantization is None else quantization.dtype
    resized = static_ints(node.operand(1))
    sampling = Sampling.of({**ops.Resize.defaults, **places, "mode": "linear"})
    sides = zip(x.shape[1:3], dims_from(node.operand(1), 2) or (), strict=False)
    is_exact = resized is not None or all(fits_fixed_point(sampling, *side) for side in sides)
    if dtype not in (DType.INT16, *(() if quantization and is_exact else (DType.INT8,))):
        return None
    mode = sampling.coordinate_transformation_mode
    corners, centers = mode == "align_corners", mode == "half_pixel"
    total = Term(b, integers_of(b, x)).to(DType.INT64)
    for i, size in enumerate(x.shape[1:3]):
        count = Term(b, as_int64(b, node.operand(1))).apply(ops.Gather, [i], axis=0)
        weights = _weights(Term(b, dim_value(b, size, x)), count, corners, centers).value
        axes = {"lhs_contracting_dimensions": (1,), "rhs_contracting_dimensions": (1,)}
        # [N, H, W, C] * [P, H] -> [N, W, C, P], then [N, W, C, P] * [Q, W] -> [N, C, P, Q]
        total = Term(b, b(ops.DotGeneral, total.value, weights, **axes))
    mean = (total.abs() + (1 << 19)).apply(ops.FloorDiv, 1 << 20)
    signed = (total > 0).choose(mean, -mean).to(dtype)
    return with_quantization(b, b(ops.Transpose, signed.value, permutation=(0, 2, 3, 1)), quantization_of(node.result))


def fits_fixed_point(sampling: Sampling, size: Dim, resized: Dim, scale: float | None = None) -> bool:
    """Whether the kernel's coordinates along an axis are nearly exact; ``scale``: None for new size / old size.

    The rounded step between two coordinates is multiplied by the index, so that it drifts.
    """
    mode = sampling.coordinate_transformation_mode
    corners, centers = mode == "align_corners", mode not in ("align_corners", "asymmetric")
    if isinstance(size, int) and isinstance(resized, int):
        where = sampling.coordinates(size, resized, resized / size if scale is None else scale)
        sizes = np.asarray(size), np.asarray(resized)
        found = _coordinates(np.arange(resized), *sizes, corners, centers, np.where) / _ONE
        return bool((np.abs(np.clip(found, 0, size - 1) - np.clip(where, 0, size - 1)) <= _MOST_DRIFT).all())
    factor = resized // size if scale is None else float(scale)
    if corners or not isinstance(factor, int | float) or factor < 1 or _ONE % factor:
        return size == resized
    return resized == size * int(factor)


def _coordinates(index: Any, size: Any, count: Any, corners: bool, centers: bool, choose: Callable[..., Any]) -> Any:
    """The coordinate of each of `count` results in an axis of `size` elements, in units of 1/1024.

    All are int64 arrays, or terms; `choose`: np.where, or Select.
    """
    step = _quotient(size, choose(count > 1, count, 1))
    if corners:
        step = choose(count > 1, _quotient(size - 1, choose(count > 1, count - 1, 1)), step)
    return index * step + (step // 2 - _ONE // 2 if centers else 0)


def _quotient(size: Any, count: Any) -> Any:
    """1024 * size / count, rounded."""
    return (size * _ONE + count // 2) // count


def _weights(size: Term, count: Term, corners: bool, centers: bool) -> Term:
    """Return the weights of `size` elements in `count` results in units of 1/1024: int64 [count, size]."""
    b = size.b
    index, elements = (Term(b, iota(b, n.value)) for n in (count, size))
    place: Term = _coordinates(index, size, count, corners, centers, Term.choose)
    low = (place // _ONE).max(0)
    if ((low + 1) > size).value.is_constant and ((low + 1) > size).value.numpy().any():
        raise UnsupportedError("TFLite's kernel reads elements after the last one", code="E-OP-001")
    high = ((place + (_ONE - 1)) // _ONE).min(size - 1)
    rest = place - low * _ONE
    pairs = ((low, -rest + _ONE), (high, rest))
    first, second = ((index.along(0, 2).equals(elements)).choose(weight.along(0, 2), 0) for index, weight in pairs)
    return first + second
