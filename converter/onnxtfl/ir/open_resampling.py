"""Resizing of an axis to a size known only at run time: coordinates and weights are computed by ops.

The arithmetic is that of :mod:`onnxtfl.ir.resampling`.
"""

from __future__ import annotations

import functools
import operator

from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.formula import Term
from onnxtfl.ir.graph import Node, Value
from onnxtfl.ir.op import attributes_of
from onnxtfl.ir.resampling import Sampling
from onnxtfl.ir.reshape import dim_value, positions
from onnxtfl.ir.types import DType


class OpenAxis:
    """One axis of `x`, resized with the attributes of `node` (a Resize).

    `size`: the new size, an integer vector of one entry; `scale`, `roi`: float vectors of one and two entries; None
    means new size / old size, and the whole axis.
    """

    def __init__(
        self, b: Builder, node: Node, x: Value, axis: int, size: Value, scale: Value | None, roi: Value | None
    ) -> None:
        self.sampling = Sampling.of(attributes_of(node))
        self.node, self.x, self.axis = node, Term(b, x), axis
        self.length = Term(b, dim_value(b, x.shape[axis], x)).to(DType.FLOAT32)
        self.top = self.length - 1.0
        resized, index = Term(b, size).to(DType.FLOAT32), Term(b, positions(b, size)).to(DType.FLOAT32)
        factor = resized / self.length if scale is None else Term(b, scale)
        self.shrink = factor.min(1.0)
        ends = [] if roi is None else [Term(b, b(ops.Gather, roi, [i], axis=0)) for i in (0, 1)]
        self.where: Term = self.sampling.places(index, self.length, resized, factor, ends, Term.choose)

    def resampled(self) -> Value:
        """`x` with the axis resized."""
        if self.sampling.mode == "nearest":
            result = self._nearest()
        else:
            result = self._filtered() if self.sampling.antialias else self._weighted()
        shape = list(self.x.value.shape)
        shape[self.axis] = self.node.result.shape[self.axis]
        result.value.type = result.value.tensor_type.with_shape(tuple(shape))
        if self.sampling.coordinate_transformation_mode != "tf_crop_and_resize":
            return result.value
        outside = (self.where < 0.0) | (self.where > self.top)
        value = self.x.constant(float(self.node.attr("extrapolation_value")))
        return outside.along(self.axis, self.x.rank).choose(value, result).value

    def _nearest(self) -> Term:
        return self._at(self.sampling.rounded(self.where, Term.floor, lambda x: x.apply(ops.Ceil)))

    def _weighted(self) -> Term:
        """The sum of the elements at all taps times their weights."""
        base = self.where.floor()
        taps = (0.0, 1.0) if self.sampling.mode == "linear" else (-1.0, 0.0, 1.0, 2.0)
        rest, places = self.where - base, [base + tap for tap in taps]
        weights = [self._weight((rest - tap).abs()) for tap in taps]
        if self.sampling.exclude_outside:
            inside = [(place >= 0.0) & (place <= self.top) for place in places]
            weights = [mask.choose(weight, 0.0) for mask, weight in zip(inside, weights, strict=True)]
            total = functools.reduce(operator.add, weights)
            weights = [weight / total for weight in weights]
        pairs = zip(places, weights, strict=True)
        return functools.reduce(
            operator.add, [self._at(place) * weight.along(self.axis, self.x.rank) for place, weight in pairs]
        )

    def _filtered(self) -> Term:
        """The elements times a matrix [new size, places] of weights; the filter is as wide as the factor is small.

        Places before the first and after the last element, as far as the filter reaches, have their value.
        """
        b, axis, rank = self.x.b, self.axis, self.x.rank
        radius = {"linear": 1.0, "cubic": 2.0}[self.sampling.mode]
        reach = (radius / self.shrink).apply(ops.Ceil) + 1.0
        count = (self.length + reach * 2.0).to(DType.INT32)
        place = Term(b, positions(b, count.value)).to(DType.FLOAT32) - reach
        distance = (place - self.where.along(0, 2)).abs() * self.shrink
        if self.sampling.mode == "linear":
            weights = (1.0 - distance).relu()
        else:
            near, far = self.sampling.cubic(distance)
            weights = (distance <= 1.0).choose(near, (distance < 2.0).choose(far, 0.0))
        if self.sampling.exclude_outside:
            weights = ((place >= 0.0) & (place <= self.top)).choose(weights, 0.0)
        weights = (weights / weights.reduce("sum", [1])).to(self.x.dtype)
        order = [*range(axis), rank - 1, *range(axis, rank - 1)]
        axes = {"lhs_contracting_dimensions": (axis,), "rhs_contracting_dimensions": (1,)}
        spread = tuple(order) if axis != rank - 1 else ()
        return self._at(place).apply(ops.DotGeneral, weights, **axes, output_permutation=spread)

    def _weight(self, distance: Term) -> Term:
        if self.sampling.mode == "linear":
            return 1.0 - distance
        near, far = self.sampling.cubic(distance)
        return (distance <= 1.0).choose(near, far)

    def _at(self, place: Term) -> Term:
        """The elements at integral `place`, clipped to the axis."""
        index = place.min(self.top).max(0.0).to(DType.INT32)
        return self.x.apply(ops.Gather, index, axis=self.axis)
