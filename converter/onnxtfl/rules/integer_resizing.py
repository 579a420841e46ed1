"""Integers resized linearly, to the last bit as ONNX Runtime does it.

The result is truncated, so the order of the float32 arithmetic decides wherever the exact result is an integer.
Source: ONNX Runtime core/providers/cpu/tensor/upsample.h (SetupUpsampleBilinear, UpsampleBilinear).
"""

from __future__ import annotations

from dataclasses import dataclass

from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.formula import Term
from onnxtfl.ir.graph import Node, Value, constant
from onnxtfl.ir.op import attributes_of
from onnxtfl.ir.resampling import Sampling
from onnxtfl.ir.reshape import dim_value
from onnxtfl.ir.types import DType
from onnxtfl.rewriting.declared import as_declared
from onnxtfl.rules.resizing import OpenAxis
from onnxtfl.rules.sizes import positions


@dataclass(frozen=True)
class _Taps:
    """The elements before and after each place of an axis, and the place's distances to them, vectors.

    Both distances are a half where both elements are the same.
    """

    before: Term
    after: Term
    to_before: Term
    to_after: Term


def integers_like_onnx(b: Builder, node: Node) -> Value | None:
    """The linear Resize of one or both of the last two axes; None for all others."""
    x, sampling = node.operand(0), Sampling.of(attributes_of(node))
    axes = (x.rank - 2, x.rank - 1)
    if sampling.mode != "linear" or sampling.antialias or sampling.exclude_outside or node.optional(3) is not None:
        return None
    if x.rank not in (2, 4) or not set(node.attr("dims")) <= set(axes):
        return None
    rows, columns = (_taps(b, node, axis) for axis in axes)
    wide = Term(b, b(ops.Convert, x, dtype=DType.FLOAT32))
    upper, lower = (wide.apply(ops.Gather, place, axis=axes[0]) for place in (rows.before, rows.after))
    terms = (
        (upper, columns.before, rows.to_after, columns.to_after),
        (upper, columns.after, rows.to_after, columns.to_before),
        (lower, columns.before, rows.to_before, columns.to_after),
        (lower, columns.after, rows.to_before, columns.to_before),
    )
    total: Term | None = None
    for part, place, vertical, horizontal in terms:
        weight = vertical.along(axes[0], x.rank) * horizontal.along(axes[1], x.rank)
        weighted = part.apply(ops.Gather, place, axis=axes[1]) * weight
        total = weighted if total is None else total + weighted
    assert total is not None
    return as_declared(b, b(ops.Convert, total.value, dtype=x.dtype), node.result.type)


def _taps(b: Builder, node: Node, axis: int) -> _Taps:
    where, top = _places(b, node, axis)
    where = where.max(0.0).min(top)
    before = where.floor()
    after = (before + 1.0).min(top)
    same = before.equals(after)
    halves = where * 0.0 + 0.5
    to_before, to_after = (same.choose(halves, (where - place).abs()) for place in (before, after))
    return _Taps(before.to(DType.INT32), after.to(DType.INT32), to_before, to_after)


def _places(b: Builder, node: Node, axis: int) -> tuple[Term, Term | float]:
    """The coordinate of each place of the result along an axis, float32, and the largest one of the operand."""
    x, dims, scales = node.operand(0), node.attr("dims"), node.optional(2)
    size, resized = x.shape[axis], node.result.shape[axis]
    known = isinstance(size, int) and isinstance(resized, int) and (scales is None or scales.is_constant)
    if known and axis in dims:
        scale = int(str(resized)) / int(str(size)) if scales is None else float(scales.numpy()[dims.index(axis)])
        where = Sampling.of(attributes_of(node)).coordinates(int(str(size)), int(str(resized)), scale)
        return Term(b, constant(where)), float(int(str(size)) - 1)
    if axis in dims:
        i = dims.index(axis)
        scale_of_axis = None if scales is None else b(ops.Gather, scales, [i], axis=0)
        opened = OpenAxis(b, node, x, axis, b(ops.Gather, node.operand(1), [i], axis=0), scale_of_axis, None)
        return opened.where, opened.top
    length = dim_value(b, size, x)
    return Term(b, positions(b, length)).to(DType.FLOAT32), Term(b, length).to(DType.FLOAT32) - 1.0
