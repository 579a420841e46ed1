"""Window attributes of the two formats: SAME and VALID in TFLite, explicit padding and auto_pad in ONNX."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from onnxtfl.errors import UnsupportedError
from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.dims import Dim, Shape, floordiv, static
from onnxtfl.ir.graph import Node, Value
from onnxtfl.ir.reshape import reshape
from onnxtfl.ir.spatial import Window, same_padding_of_pool
from onnxtfl.build.sizes import sliced


def without_negative_padding(b: Builder, x: Value, window: Window) -> tuple[Value, Window]:
    """The tensor without what negative padding takes away, and the window without negative padding."""
    if all(p >= 0 for p in window.padding):
        return x, window
    crops = [max(-p, 0) for p in window.padding]
    axes = zip(range(2, x.rank), crops, crops[window.rank :], strict=False)
    x = sliced(b, x, {axis: slice(start, x.size(axis) - end) for axis, start, end in axes})
    return x, replace(window, padding=tuple(max(p, 0) for p in window.padding))


def with_same_padding(window: Window, lower: bool, sizes: Sequence[Dim]) -> Window:
    """The window with explicit padding: that of the window without dilation, which may be negative."""
    if not static(sizes) and window.span == window.shape:
        return window
    known = [n if isinstance(n, int) else k for n, k in zip(sizes, window.shape, strict=True)]
    axes = zip(known, window.shape, window.strides, strict=True)
    pairs = [same_padding_of_pool(n, k, s, lower) for n, k, s in axes]
    padding = (*(before for before, _ in pairs), *(after for _, after in pairs))
    return replace(window, padding=padding, auto_pad="NOTSET")


@functools.lru_cache(1024)
def tfl_padding(window: Window, sizes: Shape) -> str | None:
    """The TFLite padding that results in the same window positions; None if neither SAME nor VALID does.

    Only the padding before and the number of positions matter: elements after the last window are never read.
    """
    if window.auto_pad != "NOTSET":
        return "SAME" if window.auto_pad == "SAME_UPPER" else None
    axes = range(window.rank)
    if all(_is_valid(window, i, sizes[i]) for i in axes):
        return "VALID"
    return "SAME" if all(_is_same(window, i, sizes[i]) for i in axes) else None


def _is_valid(window: Window, i: int, size: Dim) -> bool:
    if window.before[i]:
        return False
    if not isinstance(size, int):
        return window.after[i] == 0 and (not window.ceil or window.strides[i] == 1)
    return (
        size >= window.span[i] and _one(window, i).counts([size])[0] == (size - window.span[i]) // window.strides[i] + 1
    )


def _is_same(window: Window, i: int, size: Dim) -> bool:
    single = _one(window, i)
    padding = single.same([size])
    if padding is None or padding[0] != window.before[i]:
        return False
    if not isinstance(size, int):
        return padding[1] == window.after[i]
    return single.counts([size])[0] == -(-size // window.strides[i])


def _one(window: Window, i: int) -> Window:
    """The window along axis `i` only."""
    padding = (window.before[i], window.after[i])
    return Window((window.shape[i],), (window.strides[i],), (window.dilations[i],), padding, ceil=window.ceil)


def padding_after(window: Window, sizes: Sequence[Dim]) -> tuple[int, ...]:
    """The padding after each axis that results in the same window positions without ceil_mode.

    UnsupportedError if an unknown size decides whether the last window starts in the padding.
    """
    return tuple(_after(_one(window, i), size) for i, size in enumerate(sizes))


def _after(window: Window, size: Dim) -> int:
    (after,), (span,), (stride,) = window.after, window.span, window.strides
    if isinstance(size, int):
        return max(0, *window.overhang([size]))
    if window.ceil and after + stride > span:
        raise UnsupportedError("ceil_mode over unknown sizes is not supported", code="E-SHAPE-001")
    return after + (stride - 1 if window.ceil else 0)


def onnx_window(node: Node, shape: Sequence[int], sizes: Sequence[Dim]) -> Window:
    """The window of an ONNX node with attributes auto_pad, strides, pads, dilations, ceil_mode; with explicit padding
    if `sizes` determine it.
    """
    rank = len(shape)
    auto_pad = node.attr("auto_pad", "NOTSET") or "NOTSET"
    padding = tuple(node.attr("pads", ())) or (0,) * (2 * rank)
    explicit = auto_pad in ("NOTSET", "VALID")
    if not explicit or auto_pad == "VALID":
        padding = (0,) * (2 * rank)
    window = Window(
        tuple(shape),
        tuple(node.attr("strides", ())) or (1,) * rank,
        tuple(node.attr("dilations", ())) or (1,) * rank,
        padding,
        "NOTSET" if explicit else auto_pad,
        bool(node.attr("ceil_mode", 0)) and auto_pad in ("NOTSET", "VALID"),
    )
    return window.explicit(sizes)


def tfl_window(node: Node, shape: Sequence[Dim], sizes: Sequence[Dim]) -> Window:
    """The window of a TFLite node (options padding, stride_*, dilation_*_factor); explicit if `sizes` determine it.

    UnsupportedError where its own `shape` is unknown before run time.
    """
    window = [k for k in shape if isinstance(k, int)]
    if len(window) != len(shape):
        raise UnsupportedError("a kernel whose size is known only at run time", code="E-SHAPE-001")
    axes = ("d", "h", "w")[-len(shape) :]
    strides = tuple(int(node.attr(f"stride_{a}", 1)) for a in axes)
    dilations = tuple(int(node.attr(f"dilation_{a}_factor", 1) or 1) for a in axes)
    auto_pad = "SAME_UPPER" if node.attr("padding", "SAME") == "SAME" else "NOTSET"
    return Window(tuple(window), strides, dilations, (0,) * (2 * len(shape)), auto_pad).explicit(sizes)


def empty_counts(node: Node, window: Window, sizes: Sequence[Dim]) -> list[Dim] | None:
    """The numbers of positions of a TFLite window, where an axis has none; else None.

    LiteRT rounds (size + stride - span) / stride toward 0, and refuses what is negative then; for SAME, span is 1.
    """
    spans = (1,) * window.rank if node.attr("padding", "SAME") == "SAME" else window.span
    spare = [n - span if isinstance(n, int) else 0 for n, span in zip(sizes, spans, strict=True)]
    fits = all(rest > -2 * stride for rest, stride in zip(spare, window.strides, strict=True))
    if not fits or min(spare, default=0) >= 0:
        return None
    each = zip(sizes, spare, spans, window.strides, strict=True)
    return [0 if rest < 0 else floordiv(n - span, stride) + 1 for n, rest, span, stride in each]


def onnx_attributes(window: Window) -> dict[str, Any]:
    """The ONNX attributes that describe `window`."""
    attributes: dict[str, Any] = {
        "kernel_shape": window.shape,
        "strides": window.strides,
        "dilations": tuple(1 if k == 1 else d for k, d in zip(window.shape, window.dilations, strict=True)),
    }
    if window.auto_pad == "NOTSET":
        return {**attributes, "pads": window.padding}
    return {**attributes, "auto_pad": window.auto_pad}


def tfl_strides(window: Window) -> dict[str, int]:
    """The options stride_h, stride_w (and stride_d) of `window`."""
    return {f"stride_{a}": s for a, s in zip(("d", "h", "w")[-window.rank :], window.strides, strict=True)}


def tfl_dilations(window: Window) -> dict[str, int]:
    """The options dilation_h_factor and dilation_w_factor (and dilation_d_factor)."""
    return {f"dilation_{a}_factor": d for a, d in zip(("d", "h", "w")[-window.rank :], window.dilations, strict=True)}


def padded(b: Builder, x: Value, dims: Sequence[int], padding: Sequence[int], value: float | None = None) -> Value:
    """Pad the axes `dims` of `x` by `padding` (beginnings, then ends) with zeros or `value`."""
    table = np.zeros((x.rank, 2), np.int64)
    for i, axis in enumerate(dims):
        table[axis] = padding[i], padding[len(dims) + i]
    if not table.any():
        return x
    return b(ops.Pad, x, table, None if value is None else b.scalar(value, x), mode="constant")


def interleaved(
    b: Builder, x: Value, axis: int, stride: int, value: Value | None = None, *, keep_last: bool = False
) -> Value:
    """Insert stride - 1 zeros (or `value`) after each element along `axis`; after the last only with `keep_last`."""
    if stride == 1 or x.shape[axis] == 0:
        return x
    size = x.shape[axis]
    table = np.zeros((x.rank + 1, 2), np.int64)
    table[axis + 1, 1] = stride - 1
    spread = b(ops.Pad, reshape(b, x, (*x.shape[: axis + 1], 1, *x.shape[axis + 1 :])), table, value)
    full = reshape(b, spread, (*x.shape[:axis], size * stride, *x.shape[axis + 1 :]))
    if keep_last:
        return full
    return sliced(b, full, {axis: slice(0, 1 - stride)})
