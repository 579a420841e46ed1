"""TFLite's kernels of int16 that interpolate a function in a table (EXP, LOG and others): the table of all results.

Source: LiteRT kernels/internal/common.h (LUTPopulateInt16, LUTLookup).
Test: tests/unit/test_quantized_tfl.py (test_int16_tables).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Literal

import numpy as np

from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.data import Array
from onnxtfl.ir.graph import Node, Value
from onnxtfl.ir.quantization import Quantization
from onnxtfl.ir.quantized import quantization_of
from onnxtfl.ir.types import DType
from onnxtfl.rewriting.stored_integers import integers_of

Function = Callable[[Array], Array]
Real = np.float32 | np.float64
Table = Callable[[Quantization, Quantization], Array | None]
_LEAST, _MOST = -(1 << 15), (1 << 15) - 1


def by_table(b: Builder, node: Node, table: Table) -> Value | None:
    """The entries of an int16 table for the stored elements of the operand; None if these are not int16, or without a
    table.

    ::

        %y = Gather(table, %stored + 32768), dequantized
    """
    x, y = quantization_of(node.operand(0)), quantization_of(node.result)
    if x is None or y is None or {x.storage, y.storage} != {"int16"} or not (x.per_tensor and y.per_tensor):
        return None
    results = table(x, y)
    if results is None:
        return None
    index = b(ops.Add, stored_int16(b, node.operand(0)), np.asarray(-_LEAST, np.int32))
    return real_of_int16(b, b(ops.Gather, results, index, axis=0), y)


def stored_int16(b: Builder, value: Value) -> Value:
    """The stored integers of an int16 tensor, as int32."""
    return b(ops.Convert, integers_of(b, value), dtype=DType.INT32)


def real_of_int16(b: Builder, stored: Value, quantization: Quantization) -> Value:
    """The real values of stored int16."""
    scale, zero = np.float32(quantization.scales[0]), np.int16(quantization.zero_points[0])
    return b(ops.DequantizeLinear, stored, np.asarray(scale), np.asarray(zero), axis=0)


def interpolated(function: Function, elsewhere: Literal["least", "most"] = "least") -> Table:
    """The results of a kernel that interpolates `function` between 513 samples, for every stored int16: [65536].

    `elsewhere`: the result for operands at which the function is not finite.
    """

    def table(x: Quantization, y: Quantization) -> Array:
        (low, high), (least, most) = _bounds(x), _bounds(y)
        defined = partial(_finite, function, most if elsewhere == "most" else least)
        return between_samples(defined, low, high, least, most)

    return table


def between_samples(function: Function, low: Real, high: Real, least: Real, most: Real) -> Array:
    """`function` over [low, high], interpolated between 513 samples, for every stored int16: [65536] of int16.

    [least, most] are the bounds of the result. Computed in the type of the bounds, as kernels do.
    """
    samples = _samples(function, low, high, least, most)
    stored = np.arange(_LEAST, _MOST + 1)
    place, offset = (stored >> 7) + 256, stored & 127
    slopes = np.diff(samples)
    return np.asarray(samples[place] + ((slopes[place] * offset + 64) >> 7), np.int16)


def _bounds(quantization: Quantization) -> tuple[np.float32, np.float32]:
    """The least and the greatest real value, in float32 as the kernels compute them."""
    scale, zero = np.float32(quantization.scales[0]), quantization.zero_points[0]
    return scale * np.float32(_LEAST - zero), scale * np.float32(_MOST - zero)


def _samples(function: Function, low: Real, high: Real, least: Real, most: Real) -> Array:
    """`function` at 513 places of its range, moved to halve the error between two of them: int64."""
    real = type(low)
    factor, step = real(65536) / (most - least), (high - low) / real(512)
    steps: Array = np.arange(513).astype(real)
    places: Array = low + steps * step
    values, between = function(places) * factor, function(places[:-1] + step / real(2)) * factor
    error = _rounded((values[1:] + _rounded(values[:-1])) / 2) - _rounded(between)
    samples = np.append(_rounded(values[:-1]) - _rounded(error / 2), _rounded(function(np.asarray(high)) * factor))
    return np.asarray(np.clip(samples, _LEAST, _MOST), np.int64)


def _finite(function: Function, otherwise: np.float32, x: Array) -> Array:
    with np.errstate(all="ignore"):
        result = function(x)
    return np.where(np.isfinite(result), result, otherwise)


def _rounded(values: Array) -> Array:
    """Halves away from zero."""
    return np.asarray(np.trunc(values + np.copysign(values.dtype.type(0.5), values)))
