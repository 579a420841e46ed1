"""Sizes as values: Shape Size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from onnxtfl.ir.data import Array
from onnxtfl.ir.dims import Dim, fresh, product
from onnxtfl.ir.graph import Node
from onnxtfl.ir.op import Op, Operand, Permutation, Relabeled
from onnxtfl.ir.permutations import identity, moved, rank_of
from onnxtfl.ir.shapes import dim_array
from onnxtfl.ir.types import DType, TensorType, Type


class Shape(Op):
    """The sizes of the operand's axes as a vector: of all, or of `axes` in that order.

    Source: neutral-ops 3.112; `axes` says what start and end say there, and keeps the order when the operand lies
    permuted in memory.
    """

    operands = (Operand("input"),)
    defaults = {"axes": None, "dtype": DType.INT64}
    core = True

    @classmethod
    def infer(cls, node: Node) -> Sequence[Type]:
        rank, axes = rank_of(node.operand(0).type), node.attr("axes")
        if axes is not None and rank is not None and any(not 0 <= a < rank for a in axes):
            raise ValueError(f"axes {axes} of a tensor of rank {rank}")
        count: Dim = len(axes) if axes is not None else fresh() if rank is None else rank
        return [TensorType(node.attr("dtype"), (count,))]

    @classmethod
    def follow(cls, node: Node) -> list[Array | None]:
        """The operand's own sizes."""
        shape, axes = node.operand(0).tensor_type.shape, node.attr("axes")
        if shape is None:
            return [None]
        dims = list(shape) if axes is None else [shape[a] for a in axes]
        return [dim_array(dims)]

    @classmethod
    def evaluate(cls, attributes: Mapping[str, Any], *operands: Array | None) -> Array:
        assert operands[0] is not None
        shape, axes = operands[0].shape, attributes["axes"]
        return np.asarray(shape if axes is None else [shape[a] for a in axes], attributes["dtype"].numpy)

    @classmethod
    def relabel(cls, node: Node, index: int, permutation: Permutation) -> Relabeled | None:
        if index != 0:
            return None
        axes = node.attr("axes") or identity(len(permutation))
        return Relabeled((permutation,), (None,), {"axes": tuple(moved(a, permutation) for a in axes)})


class Size(Op):
    """The number of elements, of rank 0. Source: neutral-ops 3.121; into the core: product of Shape."""

    operands = (Operand("input"),)
    defaults = {"dtype": DType.INT64}

    @classmethod
    def infer(cls, node: Node) -> Sequence[Type]:
        return [TensorType(node.attr("dtype"), ())]

    @classmethod
    def follow(cls, node: Node) -> list[Array | None]:
        """The product of the operand's own sizes."""
        shape = node.operand(0).tensor_type.shape
        if shape is None:
            return [None]
        result = np.empty((), object)
        result[()] = product(shape)
        return [result]

    @classmethod
    def evaluate(cls, attributes: Mapping[str, Any], *operands: Array | None) -> Array:
        assert operands[0] is not None
        return np.asarray(operands[0].size, attributes["dtype"].numpy)

    @classmethod
    def relabel(cls, node: Node, index: int, permutation: Permutation) -> Relabeled | None:
        return Relabeled((permutation,), (None,)) if index == 0 else None
