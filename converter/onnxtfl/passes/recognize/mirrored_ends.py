"""Axes whose ends are mirrored, or repeated, by concatenations of slices: Pad.

::

    Concatenate(%x[2:3], %x[1:2], %x, %x[n-2:n-1])    ->    Pad(%x, 2 before and 1 after, "reflect")
    Pad(Pad(%x, along some axes), along others)       ->    Pad(%x, along all)    for "reflect", "edge", "symmetric"
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.graph import Node, Value
from onnxtfl.ir.matching import made_by
from onnxtfl.ir.op import attributes_of
from onnxtfl.ir.quantized import quantization_of
from onnxtfl.ir.shapes import normalize_axis, static_ints
from onnxtfl.rewriting.patterns import Patterns

MIRRORED_ENDS = Patterns()
_MODES = ("reflect", "edge", "symmetric")
_MOST_OPERANDS = 9
"""The most operands of such a concatenation (mappings/tensor/mirrored_padding.py), so that others cost no time."""


@MIRRORED_ENDS.on(ops.Concatenate, quantized=True)
def mirrored_ends(b: Builder, node: Node) -> Value | None:
    """The Pad of the longest operand of a Concatenate, if all others are positions of that one."""
    is_static = all(v is not None and v.is_static for v in node.operands)
    if not 2 <= len(node.operands) <= _MOST_OPERANDS or not is_static:
        return None
    axis = normalize_axis(node.attr("axis"), node.result.rank)
    sizes = [v.size(axis) for v in node.present_operands]
    index, size = sizes.index(max(sizes)), max(sizes)
    x, amounts = node.operand(index), np.zeros((node.result.rank, 2), np.int64)
    before, after = (_places(part, x, axis) for part in (node.operands[:index], node.operands[index + 1 :]))
    if before is None or after is None or size < 2 or quantization_of(x) != quantization_of(node.result):
        return None
    amounts[axis] = len(before), len(after)
    found, all_places = [*before, *range(size), *after], np.arange(size)
    for mode in _MODES:
        if np.array_equal(found, np.pad(all_places, amounts[axis], mode)):  # type: ignore[call-overload]
            padded = b(ops.Pad, x, amounts, mode=mode)
            padded.type = padded.tensor_type.stored_as(quantization_of(x))
            return padded
    return None


@MIRRORED_ENDS.on(ops.Pad, quantized=True)
def pads_along_all_axes(b: Builder, node: Node) -> Value | None:
    """One Pad of two along other axes."""
    mode, amounts = attributes_of(node)["mode"], static_ints(node.operand(1))
    first = made_by(node.operand(0), ops.Pad, quantized=True)
    if mode not in _MODES or first is None or attributes_of(first)["mode"] != mode or amounts is None:
        return None
    others, x = static_ints(first.operand(1)), first.operand(0)
    if others is None or any(a and c for a, c in zip(amounts, others, strict=True)):
        return None
    total = np.asarray(amounts, np.int64).reshape(-1, 2) + np.asarray(others, np.int64).reshape(-1, 2)
    is_apart = not (np.any(np.reshape(amounts, (-1, 2)), axis=1) & np.any(np.reshape(others, (-1, 2)), axis=1)).any()
    if not is_apart or quantization_of(x) != quantization_of(node.result):
        return None
    padded = b(ops.Pad, x, total, mode=mode)
    padded.type = padded.tensor_type.stored_as(quantization_of(x))
    return padded


def _places(parts: Sequence[Value | None], x: Value | None, axis: int) -> Sequence[int] | None:
    """The positions of `x` along `axis` that `parts` are, in this order; None if they are anything else."""
    found: list[int] = []
    for part in parts:
        made = made_by(part, ops.Slice, ops.Gather, ops.Concatenate, quantized=True)
        if made is None:
            return None
        places = _places(made.operands, x, axis) if _joins(made, axis) else _read(made, x, axis)
        if places is None:
            return None
        found += places
    return found


def _joins(node: Node, axis: int) -> bool:
    is_short = node.op is ops.Concatenate and len(node.operands) <= _MOST_OPERANDS
    return is_short and normalize_axis(node.attr("axis"), node.result.rank) == axis


def _read(node: Node, x: Value | None, axis: int) -> Sequence[int] | None:
    """The positions of `x` along `axis` that a Slice or Gather reads."""
    if x is None or node.op is ops.Concatenate or node.operand(0) is not x or not x.is_static:
        return None
    if node.op is ops.Gather:
        indices = static_ints(node.operand(1))
        is_along = normalize_axis(node.attr("axis"), x.rank) == axis and node.operand(1).rank == 1
        return [i % x.size(axis) for i in indices] if is_along and indices is not None else None
    bounds = [static_ints(operand) for operand in node.operands[1:]]
    if len(bounds) != 3 or any(bound is None for bound in bounds):
        return None
    parts = [slice(*part) for part in zip(*bounds, strict=True)]
    others = [range(n)[part] == range(n) for i, (n, part) in enumerate(zip(x.shape, parts, strict=True)) if i != axis]
    return list(range(x.size(axis))[parts[axis]]) if all(others) else None
