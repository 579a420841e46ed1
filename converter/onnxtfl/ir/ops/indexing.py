"""Ops that pick numbers by index, or say where numbers stand: Gather GatherND GatherElements NonZero TopK OneHot Sort
Unique. What writes by index stands in ``scattering.py`` and is given on from here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from onnxtfl.ir.data import Array
from onnxtfl.ir.dims import Dim, fresh
from onnxtfl.ir.dims import Shape as Dims
from onnxtfl.ir.graph import Node
from onnxtfl.ir.op import ANY, INTEGERS, NUMERIC, Op, Operand, Permutation, Relabeled
from onnxtfl.ir.ops.permutations import dropping, everywhere, moved, rank_of
from onnxtfl.ir.ops.scattering import ScatterElements, ScatterND, SegmentReduce
from onnxtfl.ir.shapes import broadcast_dim, check_positions, known_dims, normalize_axis, same_type
from onnxtfl.ir.types import DType, TensorType, Type

__all__ = [
    "Gather",
    "GatherElements",
    "GatherND",
    "NonZero",
    "OneHot",
    "ScatterElements",
    "ScatterND",
    "SegmentReduce",
    "Sort",
    "TopK",
    "Unique",
]


class Gather(Op):
    """Positions `indices` of `axis`: the axis is replaced by those of `indices` behind its first `batch_dims`, which
    run with the first axes of the operand.

    Indices lie in [0, n): negative ones are resolved when lifting. Source: ONNX Gather, TFLite GATHER; neutral-ops
    3.52 is XLA's and written with Slice and GatherND.
    """

    operands = (Operand("input"), Operand("indices", INTEGERS))
    defaults = {"axis": 0, "batch_dims": 0}
    core = True
    follows_values = True

    @classmethod
    def infer(cls, node: Node) -> Sequence[Type]:
        x, indices = node.operand(0).tensor_type, node.operand(1).tensor_type
        if x.shape is None or indices.shape is None:
            return [same_type(x, None)]
        axis, batch = normalize_axis(node.attr("axis"), len(x.shape)), node.attr("batch_dims")
        if not 0 <= batch <= min(axis, len(indices.shape)):
            raise ValueError(f"{batch} batch dims, axis {axis}, indices of rank {len(indices.shape)}")
        for a, b in zip(x.shape[:batch], indices.shape[:batch], strict=True):
            broadcast_dim(a, b)
        check_positions(node.operand(1), [x.shape[axis]])
        return [same_type(x, (*x.shape[:axis], *indices.shape[batch:], *x.shape[axis + 1 :]))]

    @classmethod
    def evaluate(cls, attributes: Mapping[str, Any], *operands: Array | None) -> Array:
        x, indices = operands
        assert x is not None and indices is not None
        axis, batch = normalize_axis(attributes["axis"], x.ndim), attributes["batch_dims"]
        places = indices.astype(np.int64)
        if not batch:
            return np.asarray(np.take(x, places, axis))
        parts = [np.take(x[i], places[i], axis - batch) for i in np.ndindex(*x.shape[:batch])]
        if not parts:
            return np.empty((*x.shape[:axis], *indices.shape[batch:], *x.shape[axis + 1 :]), x.dtype)
        return np.stack(parts).reshape(*x.shape[:batch], *parts[0].shape)

    @classmethod
    def relabel(cls, node: Node, index: int, permutation: Permutation) -> Relabeled | None:
        rank, count = rank_of(node.operand(0).type), rank_of(node.operand(1).type)
        if rank is None or count is None or node.attr("batch_dims") or index > 0:
            return None
        axis = node.attr("axis") % rank
        if index == 0:
            return cls._labels(permutation, _inserted(permutation, axis, count), axis)
        ours = _joined(permutation, axis, count)
        return None if ours is None else cls._labels(ours, permutation, axis)

    @classmethod
    def _labels(cls, ours: Permutation, theirs: Permutation, axis: int) -> Relabeled:
        return Relabeled((ours, None), (theirs,), {"axis": moved(axis, ours)})


def _inserted(permutation: Permutation, axis: int, count: int) -> Permutation:
    """The result's label: `axis` becomes `count` axes in its place."""
    result: list[int] = []
    for p in permutation:
        if p == axis:
            result.extend(range(axis, axis + count))
        else:
            result.append(p if p < axis else p + count - 1)
    return tuple(result)


def _joined(permutation: Permutation, axis: int, count: int) -> Permutation | None:
    """The operand's label where the axes [axis, axis + count) of the result lie side by side, in order."""
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
    """result[b, i...] = input[b, indices[b, i...]]: the last axis of `indices` holds positions of the axes behind the
    `batch_dims` first ones.

    Indices lie in [0, n). Source: ONNX GatherND, TFLite GATHER_ND.
    """

    operands = (Operand("input"), Operand("indices", INTEGERS))
    defaults = {"batch_dims": 0}
    core = True

    @classmethod
    def infer(cls, node: Node) -> Sequence[Type]:
        x, indices = node.operand(0).tensor_type, node.operand(1).tensor_type
        if x.shape is None or indices.shape is None or not indices.shape:
            if indices.shape == ():
                raise ValueError("indices of rank 0")
            return [same_type(x, None)]
        depth, batch = indices.shape[-1], node.attr("batch_dims")
        if not isinstance(depth, int):
            return [same_type(x, None)]
        if depth + batch > len(x.shape) or batch >= len(indices.shape):
            raise ValueError(f"indices over {depth} axes behind {batch} for rank {len(x.shape)}")
        check_positions(node.operand(1), x.shape[batch : batch + depth])
        return [same_type(x, (*indices.shape[:-1], *x.shape[batch + depth :]))]

    @classmethod
    def evaluate(cls, attributes: Mapping[str, Any], *operands: Array | None) -> Array:
        x, indices = operands
        assert x is not None and indices is not None
        batch, places = attributes["batch_dims"], np.moveaxis(indices.astype(np.int64), -1, 0)
        grid = np.indices(indices.shape[:-1], sparse=True)[:batch]
        return np.asarray(x[(*grid, *places)])


class GatherElements(Op):
    """result[..., i, ...] = input[..., indices[..., i, ...], ...] with the index at `axis`.

    Indices lie in [0, n). Source: ONNX GatherElements.
    """

    operands = (Operand("input"), Operand("indices", INTEGERS))
    defaults = {"axis": 0}
    core = True

    @classmethod
    def infer(cls, node: Node) -> Sequence[Type]:
        x, indices = node.operand(0).tensor_type, node.operand(1).tensor_type
        if x.shape is not None:
            axis = normalize_axis(node.attr("axis"), len(x.shape))
            check_positions(node.operand(1), [x.shape[axis]])
            if indices.shape is not None and len(indices.shape) != len(x.shape):
                raise ValueError("indices of another rank")
        return [same_type(x, indices.shape)]

    @classmethod
    def evaluate(cls, attributes: Mapping[str, Any], *operands: Array | None) -> Array:
        x, indices = operands
        assert x is not None and indices is not None
        grid: list[Array] = list(np.indices(indices.shape, sparse=True))
        grid[normalize_axis(attributes["axis"], x.ndim)] = indices.astype(np.int64)
        return np.asarray(x[tuple(grid)])

    @classmethod
    def relabel(cls, node: Node, index: int, permutation: Permutation) -> Relabeled | None:
        return everywhere(node, permutation, axis=moved(node.attr("axis"), permutation))


class NonZero(Op):
    """The indices of the numbers that are not zero, in the order of their places: [rank, n], or with `rows` [n, rank].

    Source: neutral-ops 3.83; shaped as ONNX NonZero's, with `rows` as TFLite WHERE's.
    """

    operands = (Operand("input"),)
    defaults = {"rows": False}
    core = True

    @classmethod
    def infer(cls, node: Node) -> Sequence[Type]:
        rank, count = rank_of(node.operand(0).type), fresh()
        axes: Dim = fresh() if rank is None else rank
        return [TensorType(DType.INT64, (count, axes) if node.attr("rows") else (axes, count))]

    @classmethod
    def evaluate(cls, attributes: Mapping[str, Any], *operands: Array | None) -> Array:
        assert operands[0] is not None
        x = operands[0]
        places = np.asarray(np.nonzero(x), np.int64) if x.ndim else np.zeros((0, int(bool(x))), np.int64)
        return places.T if attributes["rows"] else places


MOST = (1 << 31) - 1
"""The most numbers that can be asked for."""


class TopK(Op):
    """The `k` largest (or smallest) numbers along `axis`, and where they stand; of equal ones the first counts.

    They come in order (NaN is larger than all) where `sorted`, else in any. `k` has one element.
    Source: neutral-ops 3.135, ONNX TopK; `dtype` is the indices'.
    """

    operands = (Operand("input", NUMERIC), Operand("k", INTEGERS))
    results = (Operand("values"), Operand("indices"))
    defaults = {"axis": -1, "largest": True, "sorted": True, "dtype": DType.INT64}
    core = True

    @classmethod
    def infer(cls, node: Node) -> Sequence[Type]:
        x, k = node.operand(0).tensor_type, known_dims(node.optional(1))
        if x.shape is None:
            return [same_type(x, None), TensorType(node.attr("dtype"), None)]
        axis = normalize_axis(node.attr("axis"), len(x.shape))
        if k is not None and len(k) != 1:
            raise ValueError(f"k has {len(k)} numbers")
        count = k[0] if k else fresh()
        size = x.shape[axis]
        if isinstance(count, int) and count > (size if isinstance(size, int) else MOST):
            raise ValueError(f"the top {count} of {size}")
        shape = (*x.shape[:axis], count, *x.shape[axis + 1 :])
        return [same_type(x, shape), TensorType(node.attr("dtype"), shape)]

    @classmethod
    def evaluate(cls, attributes: Mapping[str, Any], *operands: Array | None) -> tuple[Array, ...]:
        x, k = operands
        assert x is not None and k is not None
        axis, count = normalize_axis(attributes["axis"], x.ndim), int(k.reshape(()))
        order = _sorted_order(x, axis, attributes["largest"])
        places = np.take(order, np.arange(count), axis)
        return np.take_along_axis(x, places, axis), places.astype(attributes["dtype"].numpy)

    @classmethod
    def relabel(cls, node: Node, index: int, permutation: Permutation) -> Relabeled | None:
        if index > 0:
            return None
        return Relabeled((permutation, None), (permutation,) * 2, {"axis": moved(node.attr("axis"), permutation)})


def _sorted_order(x: Array, axis: int, descending: bool) -> Array:
    """Positions in order, equal numbers as they stand."""
    if x.dtype.kind not in "iufb":
        x = x.astype(np.float32)
    if not descending:
        return np.argsort(x, axis, kind="stable")
    backwards = np.argsort(np.flip(x, axis), axis, kind="stable")
    return np.flip(x.shape[axis] - 1 - backwards, axis)


class Sort(Op):
    """All operands sorted along `dimension` as the first one is. Source: neutral-ops 3.126; into the core: TopK."""

    operands = (Operand("inputs", ANY, variadic=True),)
    results = (Operand("outputs", variadic=True),)
    defaults = {"dimension": -1, "descending": False, "is_stable": True}

    @classmethod
    def infer(cls, node: Node) -> Sequence[Type]:
        types = [node.operand(i).tensor_type for i in range(len(node.operands))]
        if types[0].shape is not None:
            normalize_axis(node.attr("dimension"), len(types[0].shape))
        return [same_type(t, t.shape) for t in types]

    @classmethod
    def evaluate(cls, attributes: Mapping[str, Any], *operands: Array | None) -> tuple[Array, ...]:
        arrays = [x for x in operands if x is not None]
        axis = normalize_axis(attributes["dimension"], arrays[0].ndim)
        order = _sorted_order(arrays[0], axis, attributes["descending"])
        return tuple(np.take_along_axis(x, order, axis) for x in arrays)

    @classmethod
    def relabel(cls, node: Node, index: int, permutation: Permutation) -> Relabeled | None:
        return everywhere(node, permutation, dimension=moved(node.attr("dimension"), permutation))


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


class Unique(Op):
    """The different numbers (or, with `axis`, the different slices along it); where each first stands; for each place
    which one it is; and how often each occurs.

    In order where `sorted`, else as they first occur. Source: ONNX Unique, TFLite UNIQUE.
    """

    operands = (Operand("input"),)
    results = (Operand("values"), Operand("indices"), Operand("inverse"), Operand("counts"))
    defaults = {"axis": None, "sorted": True, "dtype": DType.INT64}
    core = True

    @classmethod
    def infer(cls, node: Node) -> Sequence[Type]:
        x, axis = node.operand(0).tensor_type, node.attr("axis")
        count, index = fresh(), node.attr("dtype")
        vector = TensorType(index, (count,))
        if x.shape is None:
            return [same_type(x, None if axis is not None else (count,)), vector, TensorType(index, (fresh(),)), vector]
        if axis is None:
            total: Dim = 1
            for d in x.shape:
                total = total * d
            return [same_type(x, (count,)), vector, TensorType(index, (total,)), vector]
        axis = normalize_axis(axis, len(x.shape))
        shape = (*x.shape[:axis], count, *x.shape[axis + 1 :])
        return [same_type(x, shape), vector, TensorType(index, (x.shape[axis],)), vector]

    @classmethod
    def evaluate(cls, attributes: Mapping[str, Any], *operands: Array | None) -> tuple[Array, ...]:
        x, axis, index = operands[0], attributes["axis"], attributes["dtype"].numpy
        assert x is not None
        values, first, inverse, counts = np.unique(x, True, True, True, axis=axis)
        inverse = inverse.reshape(-1)
        if not attributes["sorted"]:
            order = np.argsort(first, kind="stable")
            values, first, counts = np.take(values, order, axis or 0), first[order], counts[order]
            inverse = np.argsort(order)[inverse]
        return values, first.astype(index), inverse.astype(index), counts.astype(index)
