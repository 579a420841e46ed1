"""Elements written by index: ScatterND ScatterElements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from onnxtfl.ir.data import Array
from onnxtfl.ir.dims import Shape
from onnxtfl.ir.graph import Node
from onnxtfl.ir.op import INDICES, INTEGERS, Op, Operand, Permutation, Relabeled
from onnxtfl.ir.permutations import moved, rank_of
from onnxtfl.ir.shapes import check_positions, dims_from, normalize_axis, same_type
from onnxtfl.ir.types import Type

_KINDS = ("none", "add", "mul", "max", "min")


_AT: dict[str, Any] = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}


def _checked(node: Node) -> None:
    """TypeError and ValueError for what no scatter takes."""
    if node.operands[0] is not None and node.operand(0).dtype is not node.operand(2).dtype:
        raise TypeError("updates have another element type")
    if node.attr("kind") not in _KINDS:
        raise ValueError(f"kind {node.attr('kind')}")


def written(x: Array, place: tuple[Array, ...], updates: Array, kind: str) -> Array:
    if kind == "none":
        result = x.copy()
        result[place] = updates
        return result
    if x.dtype == bool:
        kind = {"add": "max", "mul": "min"}.get(kind, kind)
    small = x.dtype.kind not in "iub" and x.dtype.itemsize < 4
    result = x.astype(np.float32) if small else x.copy()
    _AT[kind].at(result, place, updates.astype(result.dtype))
    return result.astype(x.dtype)


class ScatterND(Op):
    """input with input[indices[i...]] joined by updates[i...]; the last axis of `indices` holds positions of the first
    axes. Without `input`, onto zeros of `shape`.

    `kind` says how an update joins what stands there ("none": it takes its place; where two meet, either may stand).
    Indices lie in [0, n). Source: ONNX ScatterND, TFLite SCATTER_ND (add onto zeros); neutral-ops 3.108 is XLA's.
    """

    operands = (
        Operand("input", optional=True),
        Operand("indices", INTEGERS),
        Operand("updates"),
        Operand("shape", INDICES, optional=True),
    )
    defaults = {"kind": "none"}
    core = True

    @classmethod
    def infer(cls, node: Node) -> Sequence[Type]:
        _checked(node)
        updates, shape = node.operand(2).tensor_type, node.optional(3)
        if node.operands[0] is not None:
            full = node.operand(0).tensor_type.shape
        else:
            full = None if shape is None else dims_from(shape)
        cls.check(node, full)
        return [same_type(updates, full)]

    @classmethod
    def check(cls, node: Node, sizes: Shape | None) -> None:
        """ValueError where ranks or known indices do not fit a result of `sizes`."""
        shape, rank = node.operand(1).tensor_type.shape, None if sizes is None else len(sizes)
        if shape == ():
            raise ValueError("indices of rank 0")
        if rank is None or shape is None or not isinstance(shape[-1], int):
            return
        if shape[-1] > rank or rank_of(node.operand(2).type) not in (None, len(shape) - 1 + rank - shape[-1]):
            raise ValueError(f"indices of shape {shape} for rank {rank} and these updates")
        if sizes is not None:
            check_positions(node.operand(1), sizes[: shape[-1]])

    @classmethod
    def evaluate(cls, attributes: Mapping[str, Any], *operands: Array | None) -> Array:
        x, indices, updates = operands[:3]
        assert indices is not None and updates is not None
        if x is None:
            assert operands[3] is not None
            x = np.zeros([int(d) for d in operands[3]], updates.dtype)
        return written(x, tuple(np.moveaxis(indices.astype(np.int64), -1, 0)), updates, attributes["kind"])


class ScatterElements(Op):
    """input with input[..., indices[..., i, ...], ...] joined by updates[..., i, ...], the index at `axis`.

    `kind` as for ScatterND. Indices lie in [0, n). Source: ONNX ScatterElements.
    """

    operands = (Operand("input"), Operand("indices", INTEGERS), Operand("updates"))
    defaults = {"axis": 0, "kind": "none"}
    core = True

    @classmethod
    def infer(cls, node: Node) -> Sequence[Type]:
        _checked(node)
        ranks = {rank_of(node.operand(i).type) for i in range(3)} - {None}
        if len(ranks) > 1:
            raise ValueError("operands differ in rank")
        for rank in ranks:
            normalize_axis(node.attr("axis"), rank or 0)
        x = node.operand(0).tensor_type
        if x.shape is not None:
            check_positions(node.operand(1), [x.shape[normalize_axis(node.attr("axis"), len(x.shape))]])
        return [same_type(x, x.shape)]

    @classmethod
    def evaluate(cls, attributes: Mapping[str, Any], *operands: Array | None) -> Array:
        x, indices, updates = operands
        assert x is not None and indices is not None and updates is not None
        place: list[Array] = list(np.indices(indices.shape, sparse=True))
        place[normalize_axis(attributes["axis"], x.ndim)] = indices.astype(np.int64)
        return written(x, tuple(place), updates, attributes["kind"])

    @classmethod
    def relabel(cls, node: Node, index: int, permutation: Permutation) -> Relabeled | None:
        if any(rank_of(v.type) != len(permutation) for v in node.operands if v is not None):
            return None
        return Relabeled((permutation,) * 3, (permutation,), {"axis": moved(node.attr("axis"), permutation)})
