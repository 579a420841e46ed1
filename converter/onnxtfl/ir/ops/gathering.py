"""Elements read by index: Gather GatherND GatherElements."""

from __future__ import annotations

import numpy as np

from onnxtfl.ir.attributes import Axis, Integer
from onnxtfl.ir.data import Array
from onnxtfl.ir.dims import Shape as Dims
from onnxtfl.ir.dims import differ
from onnxtfl.ir.graph import Node, Value
from onnxtfl.ir.op import INTEGERS, Op, Operand, Permutation, Permuted, SharedAxes
from onnxtfl.ir.permutations import physical_axes
from onnxtfl.ir.shapes import check_positions, normalize_axis
from onnxtfl.ir.types import rank_of


class Gather(Op):
    """The elements at `indices` of `axis`; the axes of `indices` after `batch_dims` replace `axis`.

    The first `batch_dims` axes are common to both operands.

    Indices are in [0, n): negative ones are resolved when lifting. Source: ONNX Gather, TFLite GATHER; neutral-ops
    3.52, whose form has XLA's dimension numbers.
    """

    operands = (Operand("input"), Operand("indices", INTEGERS))
    attributes = {"axis": Axis(0), "batch_dims": Integer(0)}
    indexes = "axis"
    core = True
    moves = slice(0, 1)
    propagates = True

    @staticmethod
    def shape(x: Value, indices: Value, *, axis: int, batch_dims: int) -> Dims:
        axis = normalize_axis(axis, x.rank)
        if not 0 <= batch_dims <= min(axis, indices.rank):
            raise ValueError(f"{batch_dims} batch dims, axis {axis}, indices of rank {indices.rank}")
        for a, b in zip(x.shape[:batch_dims], indices.shape[:batch_dims], strict=True):
            if differ(a, b):
                raise ValueError(f"batch dims of {a} and {b} elements")
        check_positions(indices, [x.shape[axis]])
        return (*x.shape[:axis], *indices.shape[batch_dims:], *x.shape[axis + 1 :])

    @staticmethod
    def compute(x: Array, indices: Array, *, axis: int, batch_dims: int) -> Array:
        axis, places = normalize_axis(axis, x.ndim), indices.astype(np.int64)
        if not batch_dims:
            return np.asarray(np.take(x, places, axis), x.dtype)
        rows = np.ndindex(*x.shape[:batch_dims])
        parts = [np.asarray(np.take(x[i], places[i], axis - batch_dims), x.dtype) for i in rows]
        if not parts:
            return np.empty((*x.shape[:axis], *indices.shape[batch_dims:], *x.shape[axis + 1 :]), x.dtype)
        return np.stack(parts).reshape(*x.shape[:batch_dims], *parts[0].shape)

    @classmethod
    def permuted(cls, node: Node, index: int, permutation: Permutation) -> Permuted | None:
        rank, count = rank_of(node.operand(0).type), rank_of(node.operand(1).type)
        if rank is None or count is None or node.attr("batch_dims") or index > 0:
            return None
        axis = node.attr("axis") % rank
        if index == 0:
            return cls._orders(permutation, _inserted(permutation, axis, count), axis)
        ours = _joined(permutation, axis, count)
        return None if ours is None else cls._orders(ours, permutation, axis)

    @classmethod
    def _orders(cls, ours: Permutation, theirs: Permutation, axis: int) -> Permuted:
        return Permuted((ours, None), (theirs,), {"axis": physical_axes(axis, ours)})


def _inserted(permutation: Permutation, axis: int, count: int) -> Permutation:
    """Return the axis order of the result, in which `count` axes replace `axis`."""
    result: list[int] = []
    for p in permutation:
        if p == axis:
            result.extend(range(axis, axis + count))
        else:
            result.append(p if p < axis else p + count - 1)
    return tuple(result)


def _joined(permutation: Permutation, axis: int, count: int) -> Permutation | None:
    """Return the axis order of the operand; None unless axes [axis, axis + count) of the result stay adjacent."""
    run = list(range(axis, axis + count))
    if count == 0:
        rest = [p if p < axis else p + 1 for p in permutation]
        return (*rest[:axis], axis, *rest[axis:])
    start = permutation.index(axis)
    if list(permutation[start : start + count]) != run:
        return None
    kept = (*permutation[:start], axis, *permutation[start + count :])
    return tuple(p if p <= axis else p - count + 1 for p in kept)


class GatherND(Op):
    """result[b, i...] = input[b, indices[b, i...]]: the last axis of `indices` holds positions along the axes after the
    first `batch_dims`.

    Indices are in [0, n). Source: ONNX GatherND, TFLite GATHER_ND.
    """

    operands = (Operand("input"), Operand("indices", INTEGERS))
    attributes = {"batch_dims": Integer(0)}
    indexes = "axes"
    core = True
    moves = slice(0, 1)

    @staticmethod
    def shape(x: Value, indices: Value, *, batch_dims: int) -> Dims | None:
        if not indices.shape:
            raise ValueError("indices of rank 0")
        depth = indices.shape[-1]
        if not isinstance(depth, int):
            return None
        if depth + batch_dims > x.rank or batch_dims >= indices.rank:
            raise ValueError(f"indices over {depth} axes after {batch_dims} for rank {x.rank}")
        check_positions(indices, x.shape[batch_dims : batch_dims + depth])
        return (*indices.shape[:-1], *x.shape[batch_dims + depth :])

    @staticmethod
    def compute(x: Array, indices: Array, *, batch_dims: int) -> Array:
        places, shape = np.moveaxis(indices.astype(np.int64), -1, 0), indices.shape[:-1]
        grid = (np.broadcast_to(i, shape) for i in np.indices(shape, sparse=True)[:batch_dims])
        found = x[(*grid, *places)]
        return np.broadcast_to(found, (*shape, *x.shape[batch_dims + len(places) :]))


class GatherElements(Op):
    """result[..., i, ...] = input[..., indices[..., i, ...], ...] with the index at `axis`.

    Indices are in [0, n). Source: ONNX GatherElements.
    """

    operands = (Operand("input"), Operand("indices", INTEGERS))
    attributes = {"axis": Axis(0)}
    indexes = "axis"
    core = True
    shared_axes = SharedAxes(None, ("axis",))
    moves = slice(0, 1)

    @staticmethod
    def shape(x: Value, indices: Value, *, axis: int) -> Dims:
        if x.tensor_type.shape is not None:
            check_positions(indices, [x.shape[normalize_axis(axis, x.rank)]])
            if indices.tensor_type.rank not in (None, x.rank):
                raise ValueError("indices of another rank")
        return indices.shape

    @staticmethod
    def compute(x: Array, indices: Array, *, axis: int) -> Array:
        grid: list[Array] = list(np.indices(indices.shape, sparse=True))
        grid[normalize_axis(axis, x.ndim)] = indices.astype(np.int64)
        return np.asarray(x[tuple(grid)])
