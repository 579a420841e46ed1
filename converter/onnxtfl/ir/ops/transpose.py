"""Transpose."""

from __future__ import annotations

from onnxtfl.ir.attributes import Integers
from onnxtfl.ir.data import Array
from onnxtfl.ir.dims import Shape as Dims
from onnxtfl.ir.dims import fresh_symbol
from onnxtfl.ir.graph import Node, Value
from onnxtfl.ir.op import Op, Operand, Permutation, Permuted
from onnxtfl.ir.origin import Origin
from onnxtfl.ir.permutations import compose, identity, inverse
from onnxtfl.ir.quantization import Quantization


class Transpose(Op):
    """Axis i of the result is axis permutation[i] of the operand. Source: neutral-ops 3.136."""

    operands = (Operand("input"),)
    attributes = {"permutation": Integers()}
    core = True
    typed = True
    moves = slice(0, 1)
    keeps_all = "permuted"
    propagates = True

    @staticmethod
    def shape(x: Value, *, permutation: Permutation) -> Dims:
        if sorted(permutation) != list(range(len(permutation))):
            raise ValueError(f"{permutation} is no permutation")
        if x.tensor_type.shape is None:
            return tuple(fresh_symbol() for _ in permutation)
        if x.rank != len(permutation):
            raise ValueError(f"permutation {permutation} for rank {x.rank}")
        return tuple(x.shape[p] for p in permutation)

    @classmethod
    def kept(cls, node: Node, quantization: Quantization, shape: Dims | None) -> Quantization | None:
        before = node.operand(0).tensor_type.shape
        return quantization if before is None else quantization.permuted(node.attr("permutation"), before)

    @staticmethod
    def compute(x: Array, *, permutation: Permutation) -> Array:
        return x.transpose(permutation)

    @classmethod
    def origin_before(cls, node: Node, origin: Origin) -> Origin | None:
        return origin.permuted(inverse(node.attr("permutation")))

    @classmethod
    def permuted(cls, node: Node, index: int, permutation: Permutation) -> Permuted | None:
        """An alias: the axis order of the result is the one with which the memory is the operand's."""
        axes = tuple(node.attr("permutation"))
        if index == 0:
            ours, theirs = permutation, compose(inverse(axes), permutation)
        else:
            ours, theirs = compose(axes, permutation), permutation
        return Permuted((ours,), (theirs,), {"permutation": identity(len(axes))})
