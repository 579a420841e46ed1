"""Integers resized linearly, to the last bit as ONNX Runtime does it.

The result is truncated, so the order of the float32 arithmetic decides wherever the exact result is an integer.
Source: ONNX Runtime core/providers/cpu/tensor/upsample.h (SetupUpsampleBilinear, UpsampleBilinear).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.data import Array
from onnxtfl.ir.formula import Term
from onnxtfl.ir.graph import Node, Value
from onnxtfl.ir.op import attributes_of
from onnxtfl.ir.resampling import Sampling
from onnxtfl.ir.types import DType

_Taps = tuple[Array, Array, Array, Array]


def integers_like_onnx(b: Builder, node: Node) -> Value | None:
    """The linear Resize of one or both of the last two axes, with known sizes; None for all others."""
    x, sampling = node.operand(0), Sampling.of(attributes_of(node))
    axes = (x.rank - 2, x.rank - 1)
    if sampling.mode != "linear" or sampling.antialias or sampling.exclude_outside or node.optional(3) is not None:
        return None
    if x.rank not in (2, 4) or not set(node.attr("dims")) <= set(axes) or not _is_static(node):
        return None
    (top, bottom, to_top, to_bottom), (left, right, to_left, to_right) = (_taps(node, axis) for axis in axes)
    wide = Term(b, b(ops.Convert, x, dtype=DType.FLOAT32))
    rows = [wide.apply(ops.Gather, places, axis=axes[0]) for places in (top, bottom)]
    (a, c), (d, e) = ([row.apply(ops.Gather, places, axis=axes[1]) for places in (left, right)] for row in rows)
    terms = ((a, to_bottom, to_right), (c, to_bottom, to_left), (d, to_top, to_right), (e, to_top, to_left))
    total: Any = None
    for part, vertical, horizontal in terms:
        weighted = part.apply(ops.Mul, vertical[:, None] * horizontal[None, :])
        total = weighted if total is None else total + weighted
    return b(ops.Convert, total.value, dtype=x.dtype)


def _is_static(node: Node) -> bool:
    scales = node.optional(2)
    known = scales is None or scales.is_constant
    return known and all(isinstance(d, int) for v in (node.operand(0), node.result) for d in v.shape[-2:])


def _taps(node: Node, axis: int) -> _Taps:
    """The elements before and after each place, and the place's distances to them; halves where both are the same."""
    size = node.operand(0).shape[axis]
    if not isinstance(size, int):
        raise ValueError(f"axis {axis} of {node.operand(0).type}")
    dims = node.attr("dims")
    where = np.arange(size, dtype=np.float32)
    if axis in dims:
        resized, scales = int(str(node.result.shape[axis])), node.optional(2)
        scale = resized / size if scales is None else float(scales.numpy()[dims.index(axis)])
        where = Sampling.of(attributes_of(node)).coordinates(size, resized, scale)
    where = np.clip(where, np.float32(0), np.float32(size - 1))
    before = where.astype(np.int32)
    after = np.minimum(before + 1, size - 1)
    half = np.where(before == after, np.float32(0.5), np.float32(0))
    to_before, to_after = np.abs(where - before.astype(np.float32)), np.abs(where - after.astype(np.float32))
    return before, after, np.where(half > 0, half, to_before), np.where(half > 0, half, to_after)
