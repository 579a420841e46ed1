"""AveragePool and MaxPool with `auto_pad` and `ceil_mode`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from onnxtfl.ir.builder import Builder
from onnxtfl.ir.dims import Dim
from onnxtfl.ir.document.forms import document_form
from onnxtfl.ir.document.windows import AUTO_PAD, mirrored_if_lower, resolved, window_of
from onnxtfl.ir.graph import Value
from onnxtfl.ir.op import Operand
from onnxtfl.ir.ops.padding import Pad
from onnxtfl.ir.ops.pooling import AveragePool, MaxPool, by_column, pool_attributes
from onnxtfl.ir.shapes import normalize_axes
from onnxtfl.ir.spatial import Window


def _sizes(x: Value, dims: Sequence[int]) -> list[Dim]:
    return [x.shape[d] for d in dims]


@document_form(AveragePool, Operand("input"), attributes={"auto_pad": AUTO_PAD})
def _average_pool(
    b: Builder,
    x: Value,
    dims: Sequence[int],
    kernel_shape: Sequence[int],
    ceil_mode: bool = False,
    count_include_pad: bool = False,
    strides: Sequence[int] = (),
    padding: Sequence[int] = (),
    auto_pad: str = "NOTSET",
) -> Value:
    """`strides` are 1 and `padding` is 0 by default; the padding that `ceil_mode` adds is never counted."""
    axes, window = normalize_axes(dims, x.rank), window_of(kernel_shape, strides, (), padding)
    counts = count_include_pad
    if counts and ceil_mode and auto_pad in ("", "NOTSET"):
        x, window, counts = _padded(b, x, axes, window), window.without_padding(), False

    def pool(operand: Value, mode: str) -> Value:
        found = resolved(window, _sizes(operand, axes), mode, ceil_mode)
        return b(AveragePool, operand, **pool_attributes(found, axes), count_include_pad=counts)

    return mirrored_if_lower(b, x, axes, window, auto_pad, pool)


def _padded(b: Builder, x: Value, axes: Sequence[int], window: Window) -> Value:
    table = np.zeros((x.rank, 2), np.int64)
    table[list(axes)] = np.asarray(window.explicit_padding).reshape(2, -1).T
    return b(Pad, x, table, None)


@document_form(MaxPool, Operand("input"), attributes={"auto_pad": AUTO_PAD}, results=None)
def _max_pool(
    b: Builder,
    x: Value,
    kernel_shape: Sequence[int],
    strides: Sequence[int] = (),
    padding: Sequence[int] = (),
    dilations: Sequence[int] = (),
    auto_pad: str = "NOTSET",
    ceil_mode: bool = False,
    return_indices: bool = False,
    storage_order: int = 0,
    dims: Sequence[int] = (),
) -> list[Value]:
    """`dims` are by default the last axes; with `storage_order` 1 the indices count the spatial axes in reverse order.

    `strides` and `dilations` are 1 and `padding` is 0 by default.
    """
    rank = len(kernel_shape)
    axes, window = normalize_axes(dims or range(-rank, 0), x.rank), window_of(kernel_shape, strides, dilations, padding)
    if not return_indices:

        def pool(operand: Value, mode: str) -> Value:
            return b(
                MaxPool, operand, **pool_attributes(resolved(window, _sizes(operand, axes), mode, ceil_mode), axes)
            )

        return [mirrored_if_lower(b, x, axes, window, auto_pad, pool)]
    found = resolved(window, _sizes(x, axes), auto_pad, ceil_mode)
    best, indices = b.many(MaxPool, x, **pool_attributes(found, axes), return_indices=True)
    return [best, by_column(b, indices, x, axes) if storage_order else indices]
