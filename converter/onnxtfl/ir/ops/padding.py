"""Padding: Pad DynamicPad InteriorPad."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from onnxtfl.ir.attributes import Choice
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.data import Array
from onnxtfl.ir.dims import Dim, at_most, exceeds, fresh_symbol, is_static, known_sizes
from onnxtfl.ir.dims import Shape as Dims
from onnxtfl.ir.divisions import Division, along
from onnxtfl.ir.formula import by_expansion
from onnxtfl.ir.graph import Node, Value
from onnxtfl.ir.intervals import ZERO, Facts, FactsOf
from onnxtfl.ir.op import INDICES, Attributes, Op, Operand, SharedAxes
from onnxtfl.ir.ops.reshape import Reshape
from onnxtfl.ir.ops.slicing import END, Slice
from onnxtfl.ir.ops.transpose import Transpose
from onnxtfl.ir.quantization import Quantization
from onnxtfl.ir.reshape import dim_vector, reshape, spread
from onnxtfl.ir.shapes import entry_of

MODES = {"PAD_VALUE": "constant", "PAD_EDGE": "edge", "PAD_REFLECT": "reflect", "PAD_SYMMETRIC": "symmetric"}


@by_expansion(
    Operand("input"),
    Operand("pads", INDICES),
    Operand("padding_value", optional=True),
    attributes={"mode": Choice(*MODES, default="PAD_VALUE")},
)
def DynamicPad(b: Builder, x: Value, pads: Value, value: Value | None, mode: str = "PAD_VALUE") -> Value:
    """Pad by `pads`: the amounts before each axis, then those after each; a mode is that of Pad with the same name.

    Source: neutral-ops 3.43.
    """
    rows = b(Transpose, b(Reshape, pads, [2, -1]), permutation=(1, 0))
    return b(Pad, x, rows, value, mode=MODES[mode])


@by_expansion(Operand("input"), Operand("value", optional=True, like="input"))
def InteriorPad(b: Builder, x: Value, value: Value | None, interior_padding: Sequence[int]) -> Value:
    """Insert `value` (rank 0; 0 if absent) interior_padding[i] times between neighbors along axis i.

    Size n becomes n + max(n - 1, 0) * interior_padding[i]. With Pad after it, XLA's Pad; before Conv, its
    lhs_dilation. Source: neutral-ops 3.86 (the attribute interior_padding of Pad); XLA Pad.
    """
    if len(interior_padding) != x.rank or min(interior_padding, default=0) < 0:
        raise ValueError(f"interior_padding {tuple(interior_padding)} for rank {x.rank}: one entry >= 0 for each axis")
    for axis, gap in enumerate(interior_padding):
        x = spread_out(b, x, axis, gap + 1, value)
    return x


def spread_out(
    b: Builder, x: Value, axis: int, step: Dim, value: Value | None = None, *sources: Value, keep_last: bool = False
) -> Value:
    """Insert `value` (0 if absent) step - 1 times after each element along `axis`; after the last with `keep_last`::

        %x: [n]    ->    Slice(Reshape(Pad(Reshape(%x, [n, 1]), [[0, 0], [0, step - 1]]), [n step]))

    `sources` define a dynamic step.
    """
    before, size, after = x.shape[:axis], x.shape[axis], x.shape[axis + 1 :]
    if step == 1 or size == 0 or (size == 1 and not keep_last):
        return x
    amounts = dim_vector(b, [step - 1 if i == 2 * axis + 3 else 0 for i in range(2 * x.rank + 2)], *sources)
    filled = b(Pad, reshape(b, x, (*before, size, 1, *after)), reshape(b, amounts, (x.rank + 1, 2)), value)
    full = reshape(b, filled, (*before, size * step, *after), x, *sources)
    if keep_last:
        return full
    limit = dim_vector(b, [1 - step if is_static((step,)) else (size - 1) * step + 1], x, *sources)
    return b(Slice, full, [0] * x.rank, spread(b, limit, [axis], x.rank, END), [1] * x.rank)


class Pad(Op):
    """padding[i] = (before, after) more positions along axis i; negative ones crop.

    mode "constant" fills with `value` (rank 0; 0 if absent), "edge" repeats the border, "reflect" mirrors without
    it, "symmetric" with it, "wrap" goes on at the other end (all three as often as needed, as NumPy does);
    cropping comes first.
    Source: neutral-ops 3.86; wrap from ONNX Pad-19.
    """

    operands = (
        Operand("input"),
        Operand("padding", INDICES, likely=(0, 2)),
        Operand("value", optional=True, like="input"),
    )
    attributes = {"mode": Choice("constant", "edge", "reflect", "symmetric", "wrap", default="constant")}
    core = True
    shared_axes = SharedAxes(vectors=(1,))
    propagates = True
    moves = slice(0, 1)
    inserts = True

    @staticmethod
    def shape(x: Value, padding: Value, value: Value | None, *, mode: str) -> Dims:
        rank = x.rank
        if padding.tensor_type.is_static and padding.shape != (rank, 2):
            raise ValueError(f"padding of {padding.type} for rank {rank}")
        dims = []
        for i, d in enumerate(x.shape):
            before, after = (entry_of(padding, place) for place in (2 * i, 2 * i + 1))
            dims.append(fresh_symbol() if before is None or after is None else d + before + after)
            if mode != "constant" and _repeats_nothing(d, before, after):
                raise ValueError(f"padding cuts off all {d} elements of an axis, of which {mode} would repeat some")
        if min(known_sizes(dims), default=0) < 0:
            raise ValueError(f"padding crops more than the size of {x.shape}")
        return tuple(dims)

    @classmethod
    def facts(cls, node: Node, index: int, of: FactsOf) -> Facts | None:
        """The union of the operand and the padding value."""
        if node.attr("mode") != "constant":
            return of(0)
        return of(0).or_else(ZERO if node.optional(2) is None else of(2))

    @classmethod
    def kept(cls, node: Node, quantization: Quantization, shape: Dims | None) -> Quantization | None:
        """Return the operand's quantization if it represents the padding value exactly."""
        value = node.optional(2)
        number = 0.0 if value is None else float(value.numpy().reshape(())) if value.is_constant else math.nan
        exact = node.attr("mode") != "constant" or quantization.stores(number)
        return super().kept(node, quantization, shape) if exact else None

    @staticmethod
    def compute(x: Array, padding: Array, value: Array | None, *, mode: Any) -> Array:
        rows = [cut_within(n, int(a), int(b)) for n, (a, b) in zip(x.shape, padding, strict=True)]
        x = x[tuple(slice(max(-a, 0), n - max(-b, 0)) for (a, b), n in zip(rows, x.shape, strict=True))]
        rows = [(max(a, 0), max(b, 0)) for a, b in rows]
        return _filled(x, rows, value) if mode == "constant" else np.asarray(np.pad(x, rows, mode))

    @classmethod
    def divisions(cls, attributes: Attributes, operands: Sequence[Array | None]) -> Iterator[Division]:
        """The axes that are not padded."""
        x, padding, _ = operands
        assert x is not None and padding is not None
        for axis, amounts in enumerate(padding):
            if not np.any(amounts):
                yield along(axis, x.shape[axis], (axis, None, None))


def cut_within(size: Dim, low: int, high: int) -> tuple[int, int]:
    """Return equivalent amounts, neither of which crops more than the axis."""
    if not isinstance(size, int) or size + low + high < 0:
        return low, high
    if size + low + high == 0:
        return -size, 0
    if low < -size:
        return -size, high + low + size
    return (low + high + size, -size) if high < -size else (low, high)


def _repeats_nothing(size: Dim, before: Dim | None, after: Dim | None) -> bool:
    """Whether a padded axis is empty after cropping."""
    amounts = (before, after)
    if not is_static(amounts) or max(amounts) <= 0:
        return False
    return exceeds(size, 0) and at_most(size + sum(min(n, 0) for n in amounts), 0)


def _filled(x: Array, rows: Sequence[tuple[int, int]], value: Array | None) -> Array:
    shape = [n + a + b for n, (a, b) in zip(x.shape, rows, strict=True)]
    blank: Any = "" if x.dtype.kind in "OUS" and x.size and isinstance(x.reshape(-1)[0], str) else 0
    result = np.full(shape, blank if value is None else value.reshape(-1)[0], x.dtype)
    result[tuple(slice(a, a + n) for n, (a, _) in zip(x.shape, rows, strict=True))] = x
    return result
