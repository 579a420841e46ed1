"""Sizes as values: Shape Size."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from onnxtfl.ir.attributes import Axes, ElementType
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.data import Array
from onnxtfl.ir.dims import Shape as Dims
from onnxtfl.ir.dims import fresh_symbol
from onnxtfl.ir.formula import by_expansion
from onnxtfl.ir.graph import Node, Value
from onnxtfl.ir.intervals import SIZES, Facts, FactsOf
from onnxtfl.ir.op import Op, Operand, Permutation, Permuted
from onnxtfl.ir.ops.reductions import Reduce
from onnxtfl.ir.permutations import identity, physical_axes
from onnxtfl.ir.shapes import dim_array
from onnxtfl.ir.types import DType, rank_of


class Shape(Op):
    """The sizes of the operand's axes as a vector: of all, or of `axes` in that order.

    Source: neutral-ops 3.112; `axes` replaces start and end, and keeps the order of the sizes if the operand is
    permuted.
    """

    operands = (Operand("input"),)
    results = (Operand("sizes", like="dtype"),)
    attributes = {"axes": Axes(None), "dtype": ElementType(DType.INT64)}
    core = True

    @classmethod
    def facts(cls, node: Node, index: int, of: FactsOf) -> Facts | None:
        """The facts of sizes."""
        return SIZES

    @staticmethod
    def shape(x: Value, *, axes: Sequence[int] | None) -> Dims:
        rank = rank_of(x.type)
        if axes is not None and rank is not None and any(not 0 <= a < rank for a in axes):
            raise ValueError(f"axes {axes} of a tensor of rank {rank}")
        return (len(axes) if axes is not None else fresh_symbol() if rank is None else rank,)

    @classmethod
    def known_results(cls, node: Node) -> list[Array | None]:
        """The operand's own sizes."""
        shape, axes = node.operand(0).tensor_type.shape, node.attr("axes")
        if shape is None:
            return [None]
        dims = list(shape) if axes is None else [shape[a] for a in axes]
        return [dim_array(dims)]

    @staticmethod
    def compute(x: Array, *, axes: Sequence[int] | None) -> Array:
        return np.asarray(x.shape if axes is None else [x.shape[a] for a in axes], np.int64)

    @classmethod
    def permuted(cls, node: Node, index: int, permutation: Permutation) -> Permuted | None:
        if index != 0:
            return None
        axes = node.attr("axes") or identity(len(permutation))
        return Permuted((permutation,), (None,), {"axes": tuple(physical_axes(a, permutation) for a in axes)})


@by_expansion(Operand("input"), results=(Operand("size", like="dtype"),))
def Size(b: Builder, x: Value, dtype: DType = DType.INT64) -> Value:
    """The number of elements, of rank 0. Source: neutral-ops 3.121."""
    return b(Reduce, b(Shape, x, dtype=dtype), [0], kind="prod", keepdims=False)
