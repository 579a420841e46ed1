"""Reverse ReverseSequence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from onnxtfl.ir.attributes import Axes, Axis
from onnxtfl.ir.data import Array
from onnxtfl.ir.dims import Shape as Dims
from onnxtfl.ir.dims import differ, exceeds
from onnxtfl.ir.graph import Value
from onnxtfl.ir.op import INDICES, Op, Operand, SharedAxes
from onnxtfl.ir.shapes import normalize_axes, normalize_axis, static_ints


class Reverse(Op):
    """The operand reversed along `dimensions`. Source: neutral-ops 3.100."""

    operands = (Operand("input"),)
    attributes = {"dimensions": Axes()}
    core = True
    shared_axes = SharedAxes(attributes=("dimensions",))
    moves = slice(0, 1)
    propagates = True

    @staticmethod
    def compute(x: Array, *, dimensions: Sequence[int]) -> Array:
        return np.flip(x, tuple(dimensions))


class ReverseSequence(Op):
    """The operand with the first lengths[i] positions of `time_axis` reversed, for each index i of `batch_axis`.

    Source: neutral-ops 3.101, with any two axes, as TFLite has it.
    """

    operands = (Operand("input"), Operand("lengths", INDICES))
    attributes = {"time_axis": Axis(0), "batch_axis": Axis(1)}
    core = True
    shared_axes = SharedAxes(attributes=("time_axis", "batch_axis"))
    moves = slice(0, 1)

    @staticmethod
    def shape(x: Value, lengths: Value, *, time_axis: int, batch_axis: int) -> Dims | None:
        shape, given = x.tensor_type.shape, lengths.tensor_type.shape
        if shape is not None and given is not None:
            size = shape[normalize_axis(batch_axis, len(shape))]
            if len(given) != 1 or differ(size, given[0]):
                raise ValueError(f"lengths of {lengths.type} for an axis of {size}")
            steps = shape[normalize_axis(time_axis, len(shape))]
            if any(n < 0 or exceeds(n, steps) for n in static_ints(lengths) or ()):
                raise ValueError(f"lengths outside of an axis of {steps}")
        return shape

    @staticmethod
    def compute(x: Array, lengths: Array, *, time_axis: int, batch_axis: int) -> Array:
        seq, batch = normalize_axes((time_axis, batch_axis), x.ndim)
        result = x.copy()
        for i, length in enumerate(lengths):
            whole: list[Any] = [slice(None)] * x.ndim
            whole[batch], whole[seq] = i, slice(0, int(length))
            kept = seq - (batch < seq)
            result[tuple(whole)] = np.flip(x[tuple(whole)], kept)
        return result
