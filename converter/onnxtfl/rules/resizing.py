"""Resizing of an axis to a size known only at run time: coordinates and weights are computed by ops.

The arithmetic is that of :mod:`onnxtfl.ir.resampling`.
"""

from __future__ import annotations

import functools
import operator

from onnxtfl.errors import UnsupportedError
from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.formula import Term
from onnxtfl.ir.graph import Node, Value
from onnxtfl.ir.op import attributes_of
from onnxtfl.ir.resampling import Sampling
from onnxtfl.ir.reshape import dim_value
from onnxtfl.ir.types import DType
from onnxtfl.rules.sizes import positions


class OpenAxis:
    """One axis of `x`, resized with the attributes of `node` (a Resize).

    `size`: the new size, an integer vector of one entry; `scale`, `roi`: float vectors of one and two entries; None
    means new size / old size, and the whole axis.
    """

    def __init__(
        self, b: Builder, node: Node, x: Value, axis: int, size: Value, scale: Value | None, roi: Value | None
    ) -> None:
        self.sampling = Sampling.of(attributes_of(node))
        if self.sampling.antialias and self.sampling.mode != "nearest":
            raise UnsupportedError("antialiasing to a size that is unknown", code="E-SHAPE-001")
        self.node, self.x, self.axis = node, Term(b, x), axis
        self.length = Term(b, dim_value(b, x.shape[axis], x)).to(DType.FLOAT32)
        self.top = self.length - 1.0
        resized, index = Term(b, size).to(DType.FLOAT32), Term(b, positions(b, size)).to(DType.FLOAT32)
        factor = resized / self.length if scale is None else Term(b, scale)
        ends = [] if roi is None else [Term(b, b(ops.Gather, roi, [i], axis=0)) for i in (0, 1)]
        self.where: Term = self.sampling.places(index, self.length, resized, factor, ends, Term.choose)

    def resampled(self) -> Value:
        """`x` with the axis resized."""
        result = self._nearest() if self.sampling.mode == "nearest" else self._weighted()
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

    def _weight(self, distance: Term) -> Term:
        if self.sampling.mode == "linear":
            return 1.0 - distance
        near, far = self.sampling.cubic(distance)
        return (distance <= 1.0).choose(near, far)

    def _at(self, place: Term) -> Term:
        """The elements at integral `place`, clipped to the axis."""
        index = place.min(self.top).max(0.0).to(DType.INT32)
        return self.x.apply(ops.Gather, index, axis=self.axis)
