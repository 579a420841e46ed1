"""AveragePool and MaxPool with `auto_pad` and `ceil_mode`."""

from __future__ import annotations

from collections.abc import Sequence

from onnxtfl.errors import UnsupportedError
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.document.forms import document_form
from onnxtfl.ir.document.windows import AUTO_PAD, resolved
from onnxtfl.ir.graph import Value
from onnxtfl.ir.numeric import lowest
from onnxtfl.ir.op import Operand
from onnxtfl.ir.ops.pooling import AveragePool, MaxPool, by_column, pool_attributes
from onnxtfl.ir.shapes import normalize_axes
from onnxtfl.ir.spatial import Window
from onnxtfl.ir.window_padding import pad_axes


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
    axes, window = normalize_axes(dims, x.rank), Window.filled(kernel_shape, strides, (), padding)
    counts = count_include_pad
    if counts and ceil_mode and auto_pad in ("", "NOTSET"):
        x, window, counts = pad_axes(b, x, axes, window.explicit_padding), window.without_padding(), False
    found = resolved(b, x, axes, window, auto_pad, ceil_mode)
    mean = found.pool(b, AveragePool, x, count_include_pad=counts)
    return mean if counts else found.mean_of_elements(b, mean, x)


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
    axes, window = (
        normalize_axes(dims or range(-rank, 0), x.rank),
        Window.filled(kernel_shape, strides, dilations, padding),
    )
    found = resolved(b, x, axes, window, auto_pad, ceil_mode)
    if return_indices and found.amounts is not None:
        hint = "fix the sizes of the inputs (`input_shapes`)"
        raise UnsupportedError("indices of windows over axes of unknown size", hint=hint, code="E-SHAPE-001")
    attributes = {**pool_attributes(found.window, axes), "return_indices": return_indices}
    best, *indices = b.many(MaxPool, found.operand(b, x, float(lowest(x.dtype.numpy))), **attributes)
    return [best, *(by_column(b, v, x, axes) if storage_order else v for v in indices)]
