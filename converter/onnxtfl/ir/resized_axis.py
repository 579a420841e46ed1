"""One axis of a Resize by other ops: elements gathered at coordinates, or weighted by a matrix.

The arithmetic is that of :mod:`onnxtfl.ir.resampling`, with coordinates in float32 as ONNX Runtime's. If sizes are
known, everything that is computed from them is constant.
"""

from __future__ import annotations

import functools
import operator

from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.formula import Term, real_type
from onnxtfl.ir.graph import Node, Value
from onnxtfl.ir.op import attributes_of
from onnxtfl.ir.resampling import Sampling
from onnxtfl.ir.reshape import dim_value, iota
from onnxtfl.ir.types import DType


class ResizedAxis:
    """The ``i``-th axis of `dims` of `node`, a Resize, in `x`, which has the sizes of the node's operand along it.

    `where`: the coordinate of each place of the result, float32; `top`: that of the last element. `dtype`: in which
    weights are computed, float64 where they are constant.
    """

    def __init__(self, b: Builder, node: Node, x: Value, i: int) -> None:
        self.sampling = Sampling.of(attributes_of(node))
        self.node, self.x, self.axis = node, Term(b, x), node.attr("dims")[i]
        size, scales, roi = self._new_size(i), node.optional(2), node.optional(3)
        self.length = Term(b, dim_value(b, x.shape[self.axis], x)).to(DType.FLOAT32)
        self.top = self.length - 1.0
        resized, index = size.to(DType.FLOAT32), Term(b, iota(b, size.value)).to(DType.FLOAT32)
        factor = resized / self.length if scales is None else Term(b, scales).apply(ops.Gather, [i], axis=0)
        self.shrink = factor.min(1.0)
        count = len(node.attr("dims"))
        ends = [] if roi is None else [Term(b, roi).apply(ops.Gather, [at], axis=0) for at in (i, count + i)]
        self.where: Term = self.sampling.places(index, self.length, resized, factor, ends, Term.choose)
        self.dtype = real_type(self.where, self.shrink)

    def _new_size(self, i: int) -> Term:
        b, sizes, size = self.x.b, self.node.optional(1), self.node.result.shape[self.axis]
        if sizes is None or isinstance(size, int):
            return Term(b, dim_value(b, size, self.x.value))
        return Term(b, sizes).apply(ops.Gather, [i], axis=0)

    def resampled(self) -> Value:
        """`x` with the axis resized."""
        if self.sampling.mode == "nearest":
            where = self.where.to(self.dtype)
            result = self._at(self.sampling.rounded(where, Term.floor, lambda x: x.apply(ops.Ceil)))
        else:
            result = self._filtered() if self.sampling.antialias else self._weighted()
        shape = list(self.x.value.shape)
        shape[self.axis] = self.node.result.shape[self.axis]
        result.value.type = result.value.tensor_type.with_shape(tuple(shape))
        if self.sampling.coordinate_transformation_mode != "tf_crop_and_resize":
            return result.value
        outside = (self.where < 0.0) | (self.where > self.top)
        if outside.value.is_constant and not outside.value.numpy().any():
            return result.value
        value = self.x.constant(float(self.node.attr("extrapolation_value")))
        return outside.along(self.axis, self.x.rank).choose(value, result).value

    def _weighted(self) -> Term:
        """The sum of the elements at all taps times their weights."""
        base, top = self.where.floor().to(self.dtype), self.top.to(self.dtype)
        taps = (0.0, 1.0) if self.sampling.mode == "linear" else (-1.0, 0.0, 1.0, 2.0)
        rest, places = self.where.to(self.dtype) - base, [base + tap for tap in taps]
        weights = [self._weight((rest - tap).abs()) for tap in taps]
        if self.sampling.exclude_outside:
            inside = [(place >= 0.0) & (place <= top) for place in places]
            weights = [mask.choose(weight, 0.0) for mask, weight in zip(inside, weights, strict=True)]
            total = functools.reduce(operator.add, weights)
            weights = [weight / total for weight in weights]
        pairs = list(zip(places, weights, strict=True))
        if self.dtype is DType.FLOAT64:
            parts = [self._is_at(place).choose(weight.along(0, 2), 0.0) for place, weight in pairs]
            return self._times(functools.reduce(operator.add, parts))
        parts = [self._at(place) * weight.to(self.x.dtype).along(self.axis, self.x.rank) for place, weight in pairs]
        return functools.reduce(operator.add, parts)

    def _weight(self, distance: Term) -> Term:
        if self.sampling.mode == "linear":
            return 1.0 - distance
        near, far = self.sampling.cubic(distance)
        return (distance <= 1.0).choose(near, far)

    def _filtered(self) -> Term:
        """The elements times a matrix [new size, places] of weights; the filter is as wide as the factor is small.

        Places before the first and after the last element, as far as the filter reaches, have their value.
        """
        b, shrink = self.x.b, self.shrink.to(self.dtype)
        reach = ({"linear": 1.0, "cubic": 2.0}[self.sampling.mode] / shrink).apply(ops.Ceil) + 1.0
        count = (self.length.to(self.dtype) + reach * 2.0).to(DType.INT32)
        place = Term(b, iota(b, count.value)).to(reach.dtype) - reach
        distance = (place - self.where.to(self.dtype).along(0, 2)).abs() * shrink
        if self.sampling.mode == "linear":
            weights = (1.0 - distance).relu()
        else:
            near, far = self.sampling.cubic(distance)
            weights = (distance <= 1.0).choose(near, (distance < 2.0).choose(far, 0.0))
        if self.sampling.exclude_outside:
            weights = ((place >= 0.0) & (place <= self.top.to(self.dtype))).choose(weights, 0.0)
        weights = weights / weights.reduce("sum", [1])
        if self.dtype is DType.FLOAT32:
            return self._times(weights, self._at(place))
        axes = {"lhs_contracting_dimensions": (1,), "rhs_contracting_dimensions": (0,)}
        return self._times(weights.apply(ops.DotGeneral, self._is_at(place).to(weights.dtype), **axes))

    def _times(self, weights: Term, elements: Term | None = None) -> Term:
        """The `elements` (None: all of `x`) along the axis times a matrix [new size, elements]."""
        axis, rank = self.axis, self.x.rank
        order = [*range(axis), rank - 1, *range(axis, rank - 1)]
        axes = {"lhs_contracting_dimensions": (axis,), "rhs_contracting_dimensions": (1,)}
        spread = tuple(order) if axis != rank - 1 else ()
        of, matrix = elements or self.x, weights.to(self.x.dtype)
        return Term(of.b, of.b(ops.DotGeneral, of.value, matrix.value, **axes, output_permutation=spread))

    def _index(self, place: Term) -> Term:
        """Integral `place`, clipped to the axis."""
        return place.min(self.top.to(place.dtype)).max(0.0).to(DType.INT32)

    def _is_at(self, place: Term) -> Term:
        """Return whether each element is at each coordinate: [coordinates, elements]."""
        elements = Term(self.x.b, iota(self.x.b, self.length.value)).to(DType.INT32)
        return self._index(place).along(0, 2).equals(elements)

    def _at(self, place: Term) -> Term:
        """The elements at integral `place`, clipped to the axis."""
        return Term(self.x.b, self.x.b(ops.Gather, self.x.value, self._index(place).value, axis=self.axis))
