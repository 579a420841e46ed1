"""Indices of a mask and the mask of indices: NonZero OneHot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from onnxtfl.ir.data import Array
from onnxtfl.ir.dims import Dim, fresh
from onnxtfl.ir.dims import Shape as Dims
from onnxtfl.ir.graph import Node
from onnxtfl.ir.op import INTEGERS, Op, Operand, Permutation, Relabeled
from onnxtfl.ir.permutations import dropping, moved, rank_of
from onnxtfl.ir.shapes import known_dims, normalize_axis, same_type
from onnxtfl.ir.types import DType, TensorType, Type


class NonZero(Op):
    """The indices of the numbers that are not zero, in the order of their places: [rank, n], or with `rows` [n, rank].

    Source: neutral-ops 3.83; shaped as ONNX NonZero's, with `rows` as TFLite WHERE's.
    """

    operands = (Operand("input"),)
    core = True

    @classmethod
    def infer(cls, node: Node) -> Sequence[Type]:
        rank, count = rank_of(node.operand(0).type), fresh()
        axes: Dim = fresh() if rank is None else rank
        return [TensorType(DType.INT64, (axes, count))]

    @classmethod
    def evaluate(cls, attributes: Mapping[str, Any], *operands: Array | None) -> Array:
        assert operands[0] is not None
        x = operands[0]
        places = np.asarray(np.nonzero(x), np.int64) if x.ndim else np.zeros((0, int(bool(x))), np.int64)
        return places


class OneHot(Op):
    """A new `axis` of size `depth`: `on` where its position is the index, `off` elsewhere (everywhere, for indices
    outside [0, depth)). `depth`, `on`, `off` have one element. Source: ONNX OneHot, TFLite ONE_HOT.
    """

    operands = (Operand("indices", INTEGERS), Operand("depth", INTEGERS), Operand("on"), Operand("off"))
    defaults = {"axis": -1}
    core = True

    @classmethod
    def infer(cls, node: Node) -> Sequence[Type]:
        indices, on = node.operand(0).tensor_type, node.operand(2).tensor_type
        if indices.shape is None:
            return [same_type(on, None)]
        axis = normalize_axis(node.attr("axis"), len(indices.shape) + 1)
        known = known_dims(node.operand(1))
        depth: Dim = known[0] if known else fresh()
        return [same_type(on, _with_axis(indices.shape, axis, depth))]

    @classmethod
    def evaluate(cls, attributes: Mapping[str, Any], *operands: Array | None) -> Array:
        indices, depth, on, off = (x for x in operands if x is not None)
        axis = normalize_axis(attributes["axis"], indices.ndim + 1)
        count = int(depth.reshape(()))
        places = np.arange(count).reshape([-1 if i == axis else 1 for i in range(indices.ndim + 1)])
        return np.where(np.expand_dims(indices, axis) == places, on.reshape(()), off.reshape(())).astype(on.dtype)

    @classmethod
    def relabel(cls, node: Node, index: int, permutation: Permutation) -> Relabeled | None:
        rank = rank_of(node.result.type)
        if rank is None or index > 0:
            return None
        axis = node.attr("axis") % rank
        if index == -1:
            ours, theirs = dropping(permutation, (axis,)), permutation
        else:
            ours, rest = permutation, [p + (p >= axis) for p in permutation]
            theirs = (*rest[:axis], axis, *rest[axis:]) if axis < rank - 1 else (*rest, axis)
        return Relabeled((ours, None, None, None), (theirs,), {"axis": moved(axis, theirs)})


def _with_axis(shape: Dims, axis: int, size: Dim) -> Dims:
    return (*shape[:axis], size, *shape[axis:])
