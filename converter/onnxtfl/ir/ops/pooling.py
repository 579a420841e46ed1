"""Pooling: a window slides over the spatial axes `dims`; other axes are unchanged.

`padding` as in :mod:`onnxtfl.ir.spatial`. Which axes are spatial is data, so a transposed operand is
only renumbered. Source: neutral-ops 3.12, 3.77; ONNX AveragePool, MaxPool."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from onnxtfl.ir import half
from onnxtfl.ir.attributes import Attribute, Axes, Flag, Integers, Padding
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.data import Array
from onnxtfl.ir.dims import Dim, product
from onnxtfl.ir.dims import Shape as Dims
from onnxtfl.ir.formula import Term, by_expansion
from onnxtfl.ir.graph import Node, Value
from onnxtfl.ir.numeric import lowest
from onnxtfl.ir.op import FLOATS, NUMERIC, Attributes, Op, Operand, Permutation, Permuted, Pick, SharedAxes
from onnxtfl.ir.ops.reductions import Reduce
from onnxtfl.ir.reshape import dim_value
from onnxtfl.ir.spatial import Window
from onnxtfl.ir.types import DType, Type

_WINDOW: dict[str, Attribute] = {
    "dims": Axes(),
    "kernel_shape": Integers(),
    "strides": Integers(),
    "dilations": Integers(),
    "padding": Padding(),
}


def pool_window(attributes: Attributes) -> Window:
    """The window that a pool's attributes describe."""
    window = Window.of(*(attributes[name] for name in ("kernel_shape", "strides", "dilations", "padding")))
    if not window.is_same and min(window.explicit_padding, default=0) < 0:
        raise ValueError(f"padding {window.padding} is negative")
    return window


def pool_attributes(window: Window, dims: Sequence[int]) -> dict[str, Any]:
    """Return the attributes of a pool with `window` over the axes `dims`."""
    sides = (dims, window.shape, window.strides, window.dilations)
    return {**dict(zip(_WINDOW, map(tuple, sides), strict=False)), "padding": window.padding}


class _Pool(Op, register=False):
    """The base of pools."""

    operands = (Operand("input", NUMERIC),)

    core = True
    typed = True
    shared_axes = SharedAxes(attributes=("dims",))

    @staticmethod
    def shape(x: Value, **attributes: Any) -> Dims:
        window, dims = pool_window(attributes), attributes["dims"]
        if len(dims) != window.rank or any(not 0 <= d < x.rank for d in dims):
            raise ValueError(f"spatial axes {tuple(dims)} of a tensor of rank {x.rank}")
        shape = list(x.shape)
        for axis, count in zip(dims, window.counts([x.shape[d] for d in dims]), strict=True):
            shape[axis] = count
        return tuple(shape)


def _spatial_last(x: Array, dims: Sequence[int]) -> tuple[Array, list[int]]:
    """Return `x` with the spatial axes last, and the inverse permutation."""
    order = [*(a for a in range(x.ndim) if a not in dims), *dims]
    return x.transpose(order), [order.index(a) for a in range(x.ndim)]


class MaxPool(_Pool):
    """The maximum of the window; padding is ignored.

    With `return_indices` a second result, int64: the index of the (first) largest in the flattened operand, in C order.
    Source: neutral-ops 3.77, ONNX MaxPool-12.
    """

    selects = slice(0, 1)
    results = (Operand("output", NUMERIC), Operand("indices", frozenset({DType.INT64}), optional=True))
    attributes = {**_WINDOW, "return_indices": Flag(False)}

    @classmethod
    def infer(cls, node: Node) -> Sequence[Type]:
        return super().infer(node)[: 1 + node.attr("return_indices")]

    @classmethod
    def permuted(cls, node: Node, index: int, permutation: Permutation) -> Permuted | None:
        """As for every pool; None with indices, whose values depend on the axis order."""
        return None if node.attr("return_indices") else super().permuted(node, index, permutation)

    @staticmethod
    def compute(x: Array, **attributes: Any) -> Array | tuple[Array, ...]:
        dims, window = attributes["dims"], pool_window(attributes)
        image, back = _spatial_last(x, dims)
        if not attributes["return_indices"]:
            return window.accumulate(np.maximum, image, lowest(x.dtype)).transpose(back)
        stack = window.stack(image, lowest(x.dtype))
        best = stack.max(axis=-1, keepdims=True)
        numbers = np.arange(x.size, dtype=np.int64).reshape(x.shape)
        where = window.stack(_spatial_last(numbers, dims)[0], -1)
        largest = ~(stack < best) & (where >= 0)  # not the padding, which may be equal
        chosen = np.take_along_axis(where, largest.argmax(axis=-1)[..., None], axis=-1)[..., 0]
        return np.asarray(best[..., 0].transpose(back)), chosen.transpose(back)


def by_column(b: Builder, indices: Value, x: Value, axes: Sequence[int]) -> Value:
    """The indices of elements in the flattened `x` as if the `axes`, which are adjacent, were in reverse order."""
    if list(axes) != [*range(axes[0], axes[0] + len(axes))]:
        raise ValueError(f"storage_order over the axes {list(axes)}")
    result, place = Term(b, indices), Term(b, indices)
    inner = product(x.shape[axes[-1] + 1 :])

    def times(*dims: Dim) -> Term:
        return Term(b, dim_value(b, product(dims), x))

    for i, axis in enumerate(axes):
        weight, other = (times(*(x.shape[a] for a in part), inner) for part in (axes[i + 1 :], axes[:i]))
        result = result + place // weight % times(x.shape[axis]) * (other - weight)
    return result.value


class AveragePool(_Pool):
    """The mean of the window; with `count_include_pad` padding counts as zeros.

    Source: neutral-ops 3.12, ONNX AveragePool-19.
    """

    operands = (Operand("input", FLOATS),)
    attributes = {**_WINDOW, "count_include_pad": Flag(False)}
    widens = True

    @classmethod
    def picks(cls, attributes: Attributes) -> Pick | None:
        """Means of elements; counted padding is 0, which all quantized types represent."""
        return "mean"

    @staticmethod
    def compute(x: Array, **attributes: Any) -> Array:
        window = pool_window(attributes)
        image, back = _spatial_last(x, attributes["dims"])
        padded, positions = window.pad(image, 0)
        total = half.add_up(padded[window.seen(tap, positions)] for tap in window.taps())
        included = float(attributes["count_include_pad"])
        counts = window.accumulate(np.add, np.ones(image.shape[x.ndim - window.rank :]), included)
        total /= counts.astype(x.dtype)
        return total.transpose(back)


@by_expansion(Operand("input", NUMERIC))
def GlobalAveragePool(b: Builder, x: Value, dims: Sequence[int]) -> Value:
    """The mean over the spatial axes `dims`, which stay with size 1. Source: neutral-ops 3.58."""
    return b(Reduce, x, list(dims), kind="mean", keepdims=True)


@by_expansion(Operand("input", NUMERIC))
def GlobalMaxPool(b: Builder, x: Value, dims: Sequence[int]) -> Value:
    """The maximum over the spatial axes `dims`, which stay with size 1. Source: neutral-ops 3.59."""
    return b(Reduce, x, list(dims), kind="max", keepdims=True)
