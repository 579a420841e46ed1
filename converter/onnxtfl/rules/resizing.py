"""Resizing of an axis to a size known only at run time: coordinates and weights are computed by ops.

The arithmetic is that of :mod:`onnxtfl.ir.resampling`.
"""

from __future__ import annotations

import numpy as np

from onnxtfl.errors import UnsupportedError
from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.graph import Node, Value
from onnxtfl.ir.op import attributes_of
from onnxtfl.ir.resampling import Sampling
from onnxtfl.ir.reshape import dim_value, reshape
from onnxtfl.ir.types import DType


class OpenAxis:
    """One axis of `x`, resized with the attributes of `node` (a Resize).

    `size`: the new size, an integer vector of one entry; `scale`, `roi`: float vectors of one and two entries; None
    means new size / old size, and the whole axis.
    """

    def __init__(
        self, b: Builder, node: Node, x: Value, axis: int, size: Value, scale: Value | None, roi: Value | None
    ) -> None:
        self.b, self.node, self.x, self.axis, self.size = b, node, x, axis, size
        self.sampling, self.roi = Sampling.of(attributes_of(node)), roi
        if self.sampling.antialias and self.sampling.mode != "nearest":
            raise UnsupportedError("antialiasing to a size that is not known", hint="give --input-shape")
        self.length = self._float(dim_value(b, x.shape[axis], x))
        self.resized = self._float(size)
        self.scale = b(ops.Div, self.resized, self.length) if scale is None else scale

    def resampled(self) -> Value:
        """`x` with the axis resized."""
        b, where = self.b, self.coordinates()
        result = self._nearest(where) if self.sampling.mode == "nearest" else self._weighted(where)
        result.type = result.tensor_type.with_shape(
            (*self.x.shape[: self.axis], self.node.result.shape[self.axis], *self.x.shape[self.axis + 1 :])
        )
        if self.sampling.coordinate_transformation_mode != "tf_crop_and_resize":
            return result
        inside = self._top()
        low = b(ops.Compare, where, self._number(0.0), comparison_direction="LT")
        outside = b(ops.Or, low, b(ops.Compare, where, inside, comparison_direction="GT"))
        value = b.scalar(float(self.node.attr("extrapolation_value")), self.x)
        return b(ops.Select, self._along(outside), value, result)

    def coordinates(self) -> Value:
        """The coordinate on the original axis for each new position, a float vector."""
        b, one = self.b, self._number(1.0)
        stop = reshape(b, self.size, ())
        x = self._float(b(ops.Range, b.scalar(0, stop), stop, b.scalar(1, stop)))
        match self.sampling.coordinate_transformation_mode:
            case "asymmetric":
                return b(ops.Div, x, self.scale)
            case "half_pixel":
                return self._centers(x)
            case "pytorch_half_pixel":
                many = b(ops.Compare, self.resized, one, comparison_direction="GT")
                return b(ops.Select, many, self._centers(x), self._number(0.0))
            case "tf_half_pixel_for_nn":
                return b(ops.Div, self._plus(x, 0.5), self.scale)
            case "align_corners":
                spaces = b(ops.Max, b(ops.Sub, self.resized, one), one)
                return b(ops.Div, b(ops.Mul, x, self._top()), spaces)
            case "half_pixel_symmetric":
                exact = b(ops.Mul, self.scale, self.length)
                adjusted = b(ops.Sub, one, b(ops.Div, self.resized, exact))
                offset = b(ops.Mul, b(ops.Mul, self.length, self._number(0.5)), adjusted)
                return b(ops.Add, self._centers(x), offset)
        return self._cropped(x)

    def _cropped(self, x: Value) -> Value:
        b, one, roi = self.b, self._number(1.0), self.roi
        assert roi is not None
        start, end = (b(ops.Gather, roi, [i], axis=0) for i in (0, 1))
        spaces = b(ops.Max, b(ops.Sub, self.resized, one), one)
        step = b(ops.Div, b(ops.Mul, b(ops.Sub, end, start), self._top()), spaces)
        many = b(ops.Add, b(ops.Mul, start, self._top()), b(ops.Mul, x, step))
        middle = b(ops.Mul, b(ops.Mul, b(ops.Add, start, end), self._number(0.5)), self._top())
        return b(ops.Select, b(ops.Compare, self.resized, one, comparison_direction="GT"), many, middle)

    def _centers(self, x: Value) -> Value:
        return self._plus(self.b(ops.Div, self._plus(x, 0.5), self.scale), -0.5)

    def _nearest(self, where: Value) -> Value:
        b, mode = self.b, self.sampling.nearest_mode
        halves = {"round_prefer_floor": -0.5, "round_prefer_ceil": 0.5}.get(mode, 0.0)
        shifted = self._plus(where, halves) if halves else where
        rounded = b(ops.Ceil if mode in ("round_prefer_floor", "ceil") else ops.Floor, shifted)
        return b(ops.Gather, self.x, self._index(rounded), axis=self.axis)

    def _weighted(self, where: Value) -> Value:
        """The sum of the elements at all taps times their weights."""
        b = self.b
        base = b(ops.Floor, where)
        rest = b(ops.Sub, where, base)
        taps = (0, 1) if self.sampling.mode == "linear" else (-1, 0, 1, 2)
        weights = [self._weight(b(ops.Abs, self._plus(rest, float(-t)))) for t in taps]
        if self.sampling.exclude_outside:
            weights = self._inside(base, taps, weights)
        total: Value | None = None
        for tap, weight in zip(taps, weights, strict=True):
            taken = b(ops.Gather, self.x, self._index(self._plus(base, float(tap))), axis=self.axis)
            term = b(ops.Mul, taken, self._along(weight))
            total = term if total is None else b(ops.Add, total, term)
        assert total is not None
        return total

    def _weight(self, distance: Value) -> Value:
        b, a = self.b, self.sampling.cubic_coeff_a
        if self.sampling.mode == "linear":
            return b(ops.Sub, self._number(1.0), distance)
        near = self._polynomial(distance, (a + 2, -(a + 3), 0.0, 1.0))
        far = self._polynomial(distance, (a, -5 * a, 8 * a, -4 * a))
        within = b(ops.Compare, distance, self._number(1.0), comparison_direction="LE")
        return b(ops.Select, within, near, far)

    def _polynomial(self, x: Value, factors: tuple[float, ...]) -> Value:
        """Horner's rule, the highest power first."""
        result = self._plus(self.b(ops.Mul, x, self._number(factors[0])), factors[1])
        for factor in factors[2:]:
            result = self._plus(self.b(ops.Mul, result, x), factor)
        return result

    def _inside(self, base: Value, taps: tuple[int, ...], weights: list[Value]) -> list[Value]:
        """The weights with 0 for taps outside the axis, normalized to a sum of 1."""
        b = self.b
        kept = []
        for tap, weight in zip(taps, weights, strict=True):
            place = self._plus(base, float(tap))
            low = b(ops.Compare, place, self._number(0.0), comparison_direction="GE")
            inside = b(ops.And, low, b(ops.Compare, place, self._top(), comparison_direction="LE"))
            kept.append(b(ops.Select, inside, weight, self._number(0.0)))
        total = kept[0]
        for weight in kept[1:]:
            total = b(ops.Add, total, weight)
        return [b(ops.Div, weight, total) for weight in kept]

    def _index(self, place: Value) -> Value:
        b = self.b
        clipped = b(ops.Max, b(ops.Min, place, self._top()), self._number(0.0))
        return b(ops.Convert, clipped, dtype=DType.INT32)

    def _top(self) -> Value:
        """The last index of the original axis, as a float vector of one entry."""
        return self.b(ops.Sub, self.length, self._number(1.0))

    def _along(self, vector: Value) -> Value:
        """A vector along the resized axis with trailing unit axes, so that it broadcasts with `x`."""
        trailing = self.x.rank - 1 - self.axis
        return reshape(self.b, vector, (*vector.shape, *[1] * trailing))

    def _float(self, value: Value) -> Value:
        return self.b(ops.Convert, value, dtype=DType.FLOAT32)

    def _number(self, number: float) -> Value:
        value = self.b.value(np.full(1, number, np.float32))
        assert value is not None
        return value

    def _plus(self, x: Value, number: float) -> Value:
        return self.b(ops.Add, x, self._number(number)) if number else x
