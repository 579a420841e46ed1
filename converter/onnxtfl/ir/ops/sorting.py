"""Order along an axis: TopK Sort Unique."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from onnxtfl.ir.data import Array
from onnxtfl.ir.dims import Dim, fresh
from onnxtfl.ir.graph import Node
from onnxtfl.ir.op import ANY, INTEGERS, NUMERIC, Op, Operand, Permutation, Relabeled
from onnxtfl.ir.permutations import everywhere, moved
from onnxtfl.ir.shapes import known_dims, normalize_axis, same_type
from onnxtfl.ir.types import DType, TensorType, Type

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
