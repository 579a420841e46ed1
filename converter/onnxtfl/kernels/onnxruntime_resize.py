"""ONNX Runtime's linear Resize of integers, to the last bit.

The result is truncated: if the exact result is an integer, the order of the float32 arithmetic determines it. Bytes
with the channels last are resized in fixed point instead, with weights in units of 1/1024.
Source: ONNX Runtime core/providers/cpu/tensor/upsample.h (SetupUpsampleBilinear, UpsampleBilinear, UpsampleTrilinear,
NhwcUpsampleBilinearInteger).
Test: tests/unit/test_resizing.py (test_integers_are_resized_to_the_last_bit,
test_integers_are_truncated_as_onnx_runtime_does_it).
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterator

from onnxtfl.dataclass import dataclass
from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.dims import is_static
from onnxtfl.ir.formula import Term
from onnxtfl.ir.graph import Node, Value
from onnxtfl.ir.op import attributes_of
from onnxtfl.ir.resampling import Sampling
from onnxtfl.ir.reshape import dim_value, iota
from onnxtfl.ir.resized_axis import ResizedAxis
from onnxtfl.ir.types import DType
from onnxtfl.rewriting.declared import as_declared

_SPATIAL = {2: ((0, 1),), 3: ((0, 1, 2),), 4: ((2, 3), (1, 2)), 5: ((2, 3, 4),)}
"""The axes that ONNX Runtime resizes linearly, by rank: with the channels first, or last."""
_ONE = 1 << 10
_BYTES = (DType.UINT8, DType.INT8)


@dataclass(frozen=True)
class _Taps:
    """The neighbors (int32) of each coordinate of an axis, and its distances to them (float32 vectors).

    Both distances are 1/2 if both neighbors are the same element.
    """

    before: Term
    after: Term
    to_before: Term
    to_after: Term

    def in_fixed_point(self, where: Term) -> _Taps:
        """Return the distances in units of 1/1024 (int32), for coordinates rounded down to such units."""
        fixed, same = (where * float(_ONE)).to(DType.INT32), self.before.equals(self.after)
        distances = ((fixed - place * _ONE).abs() for place in (self.before, self.after))
        halves = self.before * 0 + _ONE // 2
        return _Taps(self.before, self.after, *(same.choose(halves, distance) for distance in distances))


def integers_like_onnx(b: Builder, node: Node) -> Value | None:
    """The linear Resize without a crop; None for other resizes, and for ranks that ONNX Runtime does not resize."""
    x, sampling = node.operand(0), Sampling.of(attributes_of(node))
    if sampling.mode != "linear" or sampling.antialias or sampling.exclude_outside or node.optional(3) is not None:
        return None
    axes = _spatial_axes(node)
    if axes is None:
        return None
    if axes == (1, 2) and x.dtype in _BYTES:
        total = _weighted(Term(b, x).to(DType.INT32), node, axes, fixed=True)
        mean = total.abs().apply(ops.FloorDiv, _ONE * _ONE)
        total = (total > 0).choose(mean, -mean)
    else:
        wide = b(ops.Convert, x, dtype=DType.FLOAT32)
        for i, axis in enumerate(node.attr("dims")):
            if axis not in axes:  # of dynamic size; ONNX Runtime refuses sizes that change
                wide = ResizedAxis(b, node, wide, i).resampled()
        total = _weighted(Term(b, wide), node, axes)
    return as_declared(b, b(ops.Convert, total.value, dtype=x.dtype), node.result.type)


def _spatial_axes(node: Node) -> tuple[int, ...] | None:
    """The axes that ONNX Runtime resizes: a group with all axes that may change, or else with all that do change."""
    x, resized, dims = node.operand(0).shape, node.result.shape, set(node.attr("dims"))
    known = {d for d in dims if is_static((x[d], resized[d]))}
    found = _SPATIAL.get(len(x), ())
    fitting = (axes for changed in (dims, known) for axes in found if changed <= set(axes))
    return next(fitting, found[0] if found else None)


def _weighted(wide: Term, node: Node, axes: tuple[int, ...], fixed: bool = False) -> Term:
    """The sum of the elements around each place, each times the product of its weights: the last axis varies first."""
    taps = [_taps(wide.b, node, axis, fixed) for axis in axes]

    def corners(part: Term, todo: int) -> Iterator[tuple[Term, Term | None]]:
        """The elements at each side of the axes from ``todo`` on, and their weights."""
        if todo == len(axes):
            yield part, None
            return
        tap, axis = taps[todo], axes[todo]
        for place, distance in ((tap.before, tap.to_after), (tap.after, tap.to_before)):
            own = distance.along(axis, wide.rank)
            for inner, weight in corners(part.apply(ops.Gather, place, axis=axis), todo + 1):
                yield inner, own if weight is None else weight * own

    terms = [part * weight for part, weight in corners(wide, 0) if weight is not None]
    return functools.reduce(operator.add, terms)


def _taps(b: Builder, node: Node, axis: int, fixed: bool) -> _Taps:
    where, top = _places(b, node, axis)
    where = where.max(0.0).min(top)
    before = where.floor()
    after = (before + 1.0).min(top)
    same = before.equals(after)
    halves = where * 0.0 + 0.5
    to_before, to_after = (same.choose(halves, (where - place).abs()) for place in (before, after))
    found = _Taps(before.to(DType.INT32), after.to(DType.INT32), to_before, to_after)
    return found.in_fixed_point(where) if fixed else found


def _places(b: Builder, node: Node, axis: int) -> tuple[Term, Term]:
    """The coordinate of each place of the result along an axis, float32, and the largest one of the operand."""
    x, dims = node.operand(0), node.attr("dims")
    if axis in dims:
        resized = ResizedAxis(b, node, x, dims.index(axis))
        return resized.where, resized.top
    length = dim_value(b, x.shape[axis], x)
    return Term(b, iota(b, length)).to(DType.FLOAT32), Term(b, length).to(DType.FLOAT32) - 1.0
