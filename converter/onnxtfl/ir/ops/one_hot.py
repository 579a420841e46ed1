"""One-hot vectors of indices."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from onnxtfl.ir.attributes import Axis
from onnxtfl.ir.data import Array
from onnxtfl.ir.dims import Shape as Dims
from onnxtfl.ir.dims import fresh_symbol, is_static
from onnxtfl.ir.graph import Node, Value
from onnxtfl.ir.intervals import Facts, FactsOf
from onnxtfl.ir.op import INTEGERS, Op, Operand, Permutation, Permuted
from onnxtfl.ir.permutations import physical_axes, without_axes
from onnxtfl.ir.shapes import known_dims, normalize_axis
from onnxtfl.ir.types import rank_of


class OneHot(Op):
    """A new `axis` of size `depth`: `on` where its position is the index, `off` elsewhere (everywhere, for indices
    outside [0, depth)). `depth`, `on`, `off` have one element. Source: ONNX OneHot, TFLite ONE_HOT.
    """

    operands = (
        Operand("indices", INTEGERS, likely=(0, 4), counts=True),
        Operand("depth", INTEGERS, likely=(4, 7), counts=True),
        Operand("on"),
        Operand("off"),
    )
    results = (Operand("output", like="on"),)
    attributes = {"axis": Axis(-1)}
    core = True

    @classmethod
    def facts(cls, node: Node, index: int, of: FactsOf) -> Facts | None:
        """The union of `on` and `off`."""
        return of(2).or_else(of(3))

    @classmethod
    def implied(cls, node: Node) -> Mapping[int, Sequence[float]]:
        shape = node.result.tensor_type.shape
        return {1: [shape[node.attr("axis")]]} if is_static(shape) else {}

    @staticmethod
    def shape(indices: Value, depth: Value, on: Value, off: Value, *, axis: int) -> Dims:
        for name, value in (("depth", depth), ("on", on), ("off", off)):
            if value.tensor_type.is_static and math.prod(value.shape) != 1:
                raise ValueError(f"{name} has the shape {list(value.shape)}, not of one element")
        at, known = normalize_axis(axis, indices.rank + 1), known_dims(depth)
        return (*indices.shape[:at], known[0] if known else fresh_symbol(), *indices.shape[at:])

    @staticmethod
    def compute(indices: Array, depth: Array, on: Array, off: Array, *, axis: int) -> Array:
        at, count = normalize_axis(axis, indices.ndim + 1), int(depth.reshape(()))
        places = np.arange(count).reshape([-1 if i == at else 1 for i in range(indices.ndim + 1)])
        return np.where(np.expand_dims(indices, at) == places, on.reshape(()), off.reshape(()))

    @classmethod
    def permuted(cls, node: Node, index: int, permutation: Permutation) -> Permuted | None:
        rank = rank_of(node.result.type)
        if rank is None or index > 0:
            return None
        axis = node.attr("axis") % rank
        if index == -1:
            ours, theirs = without_axes(permutation, (axis,)), permutation
        else:
            ours, rest = permutation, [p + (p >= axis) for p in permutation]
            theirs = (*rest[:axis], axis, *rest[axis:])
        return Permuted((ours, None, None, None), (theirs,), {"axis": physical_axes(axis, theirs)})
