"""Reverse ReverseSequence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from onnxtfl.ir.data import Array
from onnxtfl.ir.dims import Shape
from onnxtfl.ir.graph import Node, Value
from onnxtfl.ir.op import INDICES, REQUIRED, Op, Operand, Permutation, Permuted
from onnxtfl.ir.permutations import everywhere, moved, moved_all
from onnxtfl.ir.shapes import normalize_axes


class Reverse(Op):
    """The operand read backwards along `dimensions`. Source: neutral-ops 3.100."""

    operands = (Operand("input"),)
    defaults = {"dimensions": REQUIRED}
    core = True
    moves = slice(0, 1)
    follows_values = True

    @staticmethod
    def shape(x: Value, *, dimensions: Sequence[int]) -> Shape:
        normalize_axes(dimensions, x.rank)
        return x.shape

    @staticmethod
    def compute(x: Array, *, dimensions: Sequence[int]) -> Array:
        return np.flip(x, tuple(dimensions))

    @classmethod
    def permuted(cls, node: Node, index: int, permutation: Permutation) -> Permuted | None:
        return everywhere(node, permutation, dimensions=moved_all(node.attr("dimensions"), permutation))


class ReverseSequence(Op):
    """For each position i of `batch_axis`, the first lengths[i] positions of `seq_axis` read backwards.

    Source: neutral-ops 3.101 (time_axis there), with any two axes, as TFLite has it.
    """

    operands = (Operand("input"), Operand("lengths", INDICES))
    defaults = {"seq_axis": REQUIRED, "batch_axis": REQUIRED}
    core = True
    moves = slice(0, 1)

    @staticmethod
    def shape(x: Value, lengths: Value, *, seq_axis: int, batch_axis: int) -> Shape:
        normalize_axes((seq_axis, batch_axis), x.rank)
        return x.shape

    @staticmethod
    def compute(x: Array, lengths: Array, *, seq_axis: int, batch_axis: int) -> Array:
        seq, batch = normalize_axes((seq_axis, batch_axis), x.ndim)
        result = x.copy()
        for i, length in enumerate(lengths):
            whole: list[Any] = [slice(None)] * x.ndim
            whole[batch], whole[seq] = i, slice(0, int(length))
            kept = seq - (batch < seq)
            result[tuple(whole)] = np.flip(x[tuple(whole)], kept)
        return result

    @classmethod
    def permuted(cls, node: Node, index: int, permutation: Permutation) -> Permuted | None:
        if index > 0:
            return None
        axes = {name: moved(node.attr(name), permutation) for name in ("seq_axis", "batch_axis")}
        return Permuted((permutation, None), (permutation,), axes)
