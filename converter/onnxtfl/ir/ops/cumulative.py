"""Running totals along an axis: CumSum."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from onnxtfl.ir import numeric
from onnxtfl.ir.data import Array
from onnxtfl.ir.graph import Node
from onnxtfl.ir.op import INTEGERS, NUMERIC, Op, Operand, Permutation, Relabeled
from onnxtfl.ir.shapes import normalize_axis, same_type, static_ints
from onnxtfl.ir.types import Type


class CumSum(Op):
    """Sums of all numbers up to each along an axis: without it where `exclusive`, from the end where `reverse`.

    `axis`: an integer of rank 0, or of one element. Source: ONNX CumSum, TFLite CUMSUM (added).
    """

    operands = (Operand("input", NUMERIC), Operand("axis", INTEGERS))
    defaults = {"exclusive": False, "reverse": False}
    core = True

    @classmethod
    def infer(cls, node: Node) -> Sequence[Type]:
        x, axis = node.operand(0).tensor_type, static_ints(node.operand(1))
        if axis is not None and (len(axis) != 1 or (x.shape is not None and normalize_axis(axis[0], len(x.shape)) < 0)):
            raise ValueError(f"axis {axis}")
        return [same_type(x, x.shape)]

    @classmethod
    def evaluate(cls, attributes: Mapping[str, Any], *operands: Array | None) -> Array:
        x, where = operands
        assert x is not None and where is not None
        axis = normalize_axis(int(where.reshape(-1)[0]), x.ndim)
        wide = numeric.widened(x)
        if attributes["reverse"]:
            wide = np.flip(wide, axis)
        sums = np.cumsum(wide, axis, dtype=wide.dtype)
        if attributes["exclusive"]:
            shape = [1 if i == axis else d for i, d in enumerate(x.shape)]
            kept = sums.take(np.arange(max(x.shape[axis] - 1, 0)), axis)
            sums = np.concatenate([np.zeros(shape, wide.dtype), kept], axis) if x.shape[axis] else sums
        return np.asarray(np.flip(sums, axis) if attributes["reverse"] else sums).astype(x.dtype)

    @classmethod
    def relabel(cls, node: Node, index: int, permutation: Permutation) -> Relabeled | None:
        if static_ints(node.operand(1)) is None or index > 0:
            return None
        return Relabeled((permutation, None), (permutation,), axes={1: permutation})
