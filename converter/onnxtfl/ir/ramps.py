"""Functions of one int8 element as two convolutions, which NPUs compute that have no tables.

A function of 256 integers is a sum of ramps: f(q) = f(-128) + sum of rise * clamp((q - start) / width, 0, 1). Short
ramps are exact, long ones close to a smooth function. One convolution with a feature for each ramp computes all clamped
fractions, the next one their weighted sum, rounded once::

    %y = F(%q)     ->     %r = Relu(Conv(%q, 64 / widths, -starts * 64 / widths))
                          %y = Conv(%r, rises / 64, f(-128))

64 is a whole ramp, above which int8 saturates.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from onnxtfl.dataclass import dataclass
from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.conversions import stored_as
from onnxtfl.ir.data import Array
from onnxtfl.ir.dims import product
from onnxtfl.ir.graph import Value, constant
from onnxtfl.ir.ops.convolution import window_attributes
from onnxtfl.ir.quantization import Quantization
from onnxtfl.ir.quantized import quantization_of
from onnxtfl.ir.reshape import reshape
from onnxtfl.ir.spatial import Window
from onnxtfl.ir.types import DType, TensorType

_HIGHEST = 127
_WHOLE = 64
"""The integer of a whole ramp."""
_WIDTHS = (64, 32, 16, 8, 4, 2, 1)
_HIGHEST_RISE = 16.0
"""The most steps of one ramp that are no integer: its weight has 7 bits, so that sums are off by at most 0.06 steps."""
_TOLERANCE = 0.1
"""The most steps that a ramp may be off before the sum is rounded."""
_BIAS, _MISSED = 0.03, 0.1
"""The mean error in steps, and the part of all integers, up to which these may be rounded to the other side."""
_STORED = np.arange(-128, 128)
_POINT = {
    **{f"{side}_spatial_dimensions": (1, 2) for side in ("input", "kernel", "output")},
    **dict.fromkeys(("input_feature_dimension", "output_feature_dimension", "kernel_input_feature_dimension"), 3),
    "kernel_output_feature_dimension": 0,
    **window_attributes(Window((1, 1), (1, 1), (1, 1), (0,) * 4)),
}
"""A convolution of 1 x 1, channels-last."""


def function_of_bytes(b: Builder, x: Value, after: Quantization, table: Array, rounded: Array) -> Value:
    """The elements of `rounded` (integers [256] in `after`) at those of `x`, an int8 tensor of one scale.

    `table`: the same in float64, not rounded. If it is smooth, a few integers are off by one, without a bias.
    """
    before = quantization_of(x)
    assert before is not None
    first, ramps = _close_ramps(table, rounded.astype(np.float64))
    size, step = before.scales[0] / _WHOLE, after.scales[0]
    starts = np.asarray([ramp.start for ramp in ramps])
    factors = np.asarray([_WHOLE // ramp.width for ramp in ramps])
    image = reshape(b, x, (1, product(x.shape[:-1]), x.shape[-1] if x.rank else 1, 1))
    kernel = _stored(factors.reshape(-1, 1, 1, 1), "int8", 1 / _WHOLE)
    bias = _stored((before.zero_points[0] - starts) * factors, "int32", size)
    parts = stored_as(_conv(b, image, kernel, bias), Quantization("int8", (size,), (_HIGHEST - _WHOLE,)))
    clamped = stored_as(b(ops.Relu, parts), quantization_of(parts))
    unit, weights = _weights(ramps)
    scale = float(np.float32(unit * step / (_WHOLE * size)))
    offset = np.round([(first - after.zero_points[0]) * _WHOLE / unit])
    kernel = _stored(weights.reshape(1, 1, 1, -1), "int8", scale)
    found = _conv(b, clamped, kernel, _stored(offset, "int32", float(np.float32(size * scale))))
    return reshape(b, stored_as(found, after), x.shape)


@dataclass(frozen=True)
class _Ramp:
    """A part of a function that rises by `rise` steps from the stored element `start` on, over `width` of them."""

    start: int
    width: int
    rise: float


def _close_ramps(table: Array, rounded: Array) -> tuple[float, list[_Ramp]]:
    """Ramps of a smooth function, or of its integers if their sum is rounded otherwise, as it is where many are half a
    step."""
    smooth = _ramps(table)
    unit, weights = _weights(smooth)
    parts = [np.clip((_STORED - ramp.start) / ramp.width, 0, 1) for ramp in smooth]
    errors = np.round(table[0] + unit * weights @ np.asarray(parts)) - rounded
    is_close = abs(errors.mean()) <= _BIAS and (errors != 0).mean() <= _MISSED
    return (table[0], smooth) if is_close else (rounded[0], _ramps(rounded))


def _ramps(table: Array) -> list[_Ramp]:
    """Ramps with the sum `table`, up to `_TOLERANCE`: the longest ones from the left."""
    is_exact = bool((table == np.round(table)).all())
    highest = _HIGHEST - 1 if is_exact else _HIGHEST_RISE
    found: list[_Ramp] = []
    place = 0
    while place < 255:
        width = next(w for w in _WIDTHS if place + w < 256 and (w == 1 or _is_straight(table[place : place + w + 1])))
        rise = float(table[place + width] - table[place])
        count = math.ceil(abs(rise) / highest)
        rises = (
            np.diff(np.round(np.linspace(0, rise, count + 1))) if is_exact else [rise / count] * count if count else []
        )
        found += [_Ramp(place - 128, width, float(part)) for part in rises]
        place += width
    return found


def _is_straight(part: Array) -> bool:
    """Whether a part of a table is close to the line between its ends, which may be one ramp."""
    line = np.linspace(part[0], part[-1], len(part))
    return abs(part[-1] - part[0]) <= _HIGHEST_RISE and bool((np.abs(part - line) <= _TOLERANCE).all())


def _weights(ramps: Sequence[_Ramp]) -> tuple[float, Array]:
    """The unit of the rises and their integers: the sum up to any ramp is off by at most half a unit."""
    is_exact = all(ramp.rise.is_integer() for ramp in ramps)
    unit = 1.0 if is_exact else max(abs(ramp.rise) for ramp in ramps) / (_HIGHEST - 1)
    sums = np.round(np.cumsum([ramp.rise for ramp in ramps]) / unit)
    return unit, np.diff(sums, prepend=0)


def _stored(array: Array, storage: str, scale: float) -> Value:
    quantization = Quantization(storage, (scale,), (0,))
    return constant(array.astype(quantization.dtype.numpy), type_=TensorType(DType.FLOAT32, array.shape, quantization))


def _conv(b: Builder, image: Value, kernel: Value, bias: Value) -> Value:
    return b(ops.Conv, image, kernel, bias, **_POINT)
