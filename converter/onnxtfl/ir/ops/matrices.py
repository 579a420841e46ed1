"""Parts of the matrices in the last two axes: Diagonal Trilu."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from onnxtfl.ir.data import Array
from onnxtfl.ir.graph import Node
from onnxtfl.ir.op import INDICES, Attributes, Op, Operand, Permutation, Relabeled
from onnxtfl.ir.shapes import same_type
from onnxtfl.ir.types import Type


class Diagonal(Op):
    """The diagonals of the square matrices that the last two axes hold. Source: XLA, matrix diagonal part (added)."""

    operands = (Operand("input"),)
    moves = slice(0, 1)

    @classmethod
    def infer(cls, node: Node) -> Sequence[Type]:
        x = node.operand(0).tensor_type
        return [same_type(x, None if x.shape is None else x.shape[:-1])]

    @classmethod
    def evaluate(cls, attributes: Attributes, *operands: Array | None) -> Array:
        assert operands[0] is not None
        return np.ascontiguousarray(np.diagonal(operands[0], axis1=-2, axis2=-1))


class Trilu(Op):
    """The upper (or lower) triangle of the matrices on the last two axes, zeros elsewhere.

    `k` (rank 0 or one element, 0 where absent): the diagonal where the triangle begins, positive above the main one.
    Source: neutral-ops 3.137, with `k` as an operand as in ONNX.
    """

    operands = (Operand("input"), Operand("k", INDICES, optional=True))
    defaults = {"upper": True}
    core = True

    @classmethod
    def infer(cls, node: Node) -> Sequence[Type]:
        x = node.operand(0).tensor_type
        if x.shape is not None and len(x.shape) < 2:
            raise ValueError(f"a triangle of rank {len(x.shape)}")
        return [same_type(x, x.shape)]

    @classmethod
    def evaluate(cls, attributes: Mapping[str, Any], *operands: Array | None) -> Array:
        x, k = operands[0], operands[1] if len(operands) > 1 else None
        assert x is not None
        diagonal = 0 if k is None else int(k.reshape(()))
        rows, columns = x.shape[-2:]
        distance = np.arange(columns)[None, :] - np.arange(rows)[:, None]
        keep = distance >= diagonal if attributes["upper"] else distance <= diagonal
        return np.where(keep, x, np.zeros((), x.dtype))

    @classmethod
    def relabel(cls, node: Node, index: int, permutation: Permutation) -> Relabeled | None:
        rank = len(permutation)
        if index > 0 or permutation[-2:] != (rank - 2, rank - 1):
            return None
        return Relabeled((permutation, *(None for _ in node.operands[1:])), (permutation,))
