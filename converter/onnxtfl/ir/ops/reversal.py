"""Reverse ReverseSequence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from onnxtfl.ir.data import Array
from onnxtfl.ir.graph import Node
from onnxtfl.ir.op import INDICES, REQUIRED, Op, Operand, Permutation, Relabeled
from onnxtfl.ir.permutations import everywhere, moved, moved_all
from onnxtfl.ir.shapes import normalize_axes, normalize_axis, same_type
from onnxtfl.ir.types import Type


class Reverse(Op):
    """The operand read backwards along `dimensions`. Source: neutral-ops 3.100."""

    operands = (Operand("input"),)
    defaults = {"dimensions": REQUIRED}
    core = True
    moves = slice(0, 1)
    follows_values = True

    @classmethod
    def infer(cls, node: Node) -> Sequence[Type]:
        x = node.operand(0).tensor_type
        if x.shape is not None:
            normalize_axes(node.attr("dimensions"), len(x.shape))
        return [same_type(x, x.shape)]

    @classmethod
    def evaluate(cls, attributes: Mapping[str, Any], *operands: Array | None) -> Array:
        assert operands[0] is not None
        return np.flip(operands[0], tuple(attributes["dimensions"]))

    @classmethod
    def relabel(cls, node: Node, index: int, permutation: Permutation) -> Relabeled | None:
        return everywhere(node, permutation, dimensions=moved_all(node.attr("dimensions"), permutation))


class ReverseSequence(Op):
    """For each position i of `batch_axis`, the first lengths[i] positions of `seq_axis` read backwards.

    Source: neutral-ops 3.101 (time_axis there), with any two axes, as TFLite has it.
    """

    operands = (Operand("input"), Operand("lengths", INDICES))
    defaults = {"seq_axis": REQUIRED, "batch_axis": REQUIRED}
    core = True
    moves = slice(0, 1)

    @classmethod
    def infer(cls, node: Node) -> Sequence[Type]:
        x = node.operand(0).tensor_type
        if x.shape is not None:
            normalize_axes((node.attr("seq_axis"), node.attr("batch_axis")), len(x.shape))
        return [same_type(x, x.shape)]

    @classmethod
    def evaluate(cls, attributes: Mapping[str, Any], *operands: Array | None) -> Array:
        x, lengths = operands
        assert x is not None and lengths is not None
        seq, batch = (normalize_axis(attributes[name], x.ndim) for name in ("seq_axis", "batch_axis"))
        result = x.copy()
        for i, length in enumerate(lengths):
            whole: list[Any] = [slice(None)] * x.ndim
            whole[batch], whole[seq] = i, slice(0, int(length))
            kept = seq - (batch < seq)
            result[tuple(whole)] = np.flip(x[tuple(whole)], kept)
        return result

    @classmethod
    def relabel(cls, node: Node, index: int, permutation: Permutation) -> Relabeled | None:
        if index > 0:
            return None
        axes = {name: moved(node.attr(name), permutation) for name in ("seq_axis", "batch_axis")}
        return Relabeled((permutation, None), (permutation,), axes)
