"""Windows of pools and convolutions in both formats: padding modes, ceil_mode and their corner cases.

:func:`resolve_window` (lifting) converts auto_pad, ceil_mode and windows larger than the input to a neutral window,
whose padding is explicit or SAME; :func:`realize_window` (legalization) adds a Pad if a kernel has no such padding.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from onnxtfl.errors import UnsupportedError
from onnxtfl.ir.attributes import SAME
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.dims import Dim, fresh_symbol, known_sizes
from onnxtfl.ir.graph import Node, Value
from onnxtfl.ir.spatial import Window
from onnxtfl.ir.window_padding import Amounts, PaddedWindow, half, missing, rounded_up, same_amounts, with_amounts

# --- lifting: ONNX ----------------------------------------------------------------------------------------------------


def onnx_window(node: Node, shape: Sequence[int]) -> Window:
    """Return the window of an ONNX node with the explicit padding `pads`, ignoring auto_pad and ceil_mode."""
    pads = node.attr("pads", ()) if (node.attr("auto_pad") or "NOTSET") == "NOTSET" else ()
    return Window.filled(shape, node.attr("strides", ()), node.attr("dilations", ()), pads)


def resolve_window(
    b: Builder, node: Node, x: Value, shape: Sequence[int], *, is_pool: bool, is_mean: bool = False
) -> PaddedWindow:
    """Return the window of an ONNX pool (`is_mean`: an average) or convolution over `x` [n, c, spatial...].

    Resolves auto_pad, ceil_mode, negative padding, and pools with windows larger than the input.
    Raises ValueError if ONNX Runtime refuses the window.
    """
    window, auto_pad = onnx_window(node, shape), node.attr("auto_pad") or "NOTSET"
    known = x.tensor_type.shape
    sizes = tuple(fresh_symbol() for _ in shape) if known is None else known[2:]
    dims = range(2, len(shape) + 2)
    if len(sizes) != len(shape):
        raise ValueError(f"an input of rank {x.rank} with a window over {len(shape)} axes")
    if auto_pad.startswith("SAME"):
        found = _resolve_same(b, x, dims, window, is_pool=is_pool, is_lower=auto_pad == "SAME_LOWER")
        if found.amounts is not None or found.window.is_same:
            return found
        return _cropped(b, _fitted(node, found.window, x.shape, is_mean) if is_pool else found.window, dims)
    if not is_pool:
        if 0 in window.counts(sizes):
            raise ValueError(f"a window of {window.span} does not fit into {sizes} padded by {window.padding}")
        return PaddedWindow(window, dims)
    if window.may_miss_the_input:
        raise ValueError(f"padding {window.padding} has to be smaller than the window {window.shape}")
    window = _fitted(node, window, x.shape, is_mean)
    return rounded_up(b, x, dims, window) if rounds_up(node) else PaddedWindow(window, dims)


def rounds_up(node: Node) -> bool:
    """Whether an ONNX pool rounds its number of positions up: ceil_mode, which SAME ignores."""
    return bool(node.attr("ceil_mode", 0)) and not (node.attr("auto_pad") or "NOTSET").startswith("SAME")


def _resolve_same(
    b: Builder, x: Value, dims: Sequence[int], window: Window, *, is_pool: bool, is_lower: bool
) -> PaddedWindow:
    """SAME_UPPER or SAME_LOWER.

    ONNX Runtime computes the padding of a dilated pool without the dilation. If strides skip elements, padding may
    be negative: half of the unread elements are skipped before the first window, 1 less for SAME_LOWER and 1 less for
    a convolution (measured; ONNX's reference skips none before a convolution).
    """
    plain = replace(window, dilations=(1,) * window.rank) if is_pool else window
    is_dilated, less = plain.span != window.span, is_lower + (not is_pool)
    skips = any(s - k > 1 + less for s, k in zip(plain.strides, plain.span, strict=True))
    if not (is_lower or is_dilated or skips):
        sizes = x.tensor_type.shape
        return PaddedWindow(window.same(None if sizes is None else sizes[2:]), dims)
    absent = missing(b, x, dims, plain)
    amounts, unread = same_amounts(absent, is_lower=is_lower), (-absent).max(0)
    before, after = amounts.before, amounts.after
    if skips:
        skipped = half((unread - less).max(0))
        before, unread = before - skipped, unread - skipped
    return with_amounts(window, dims, Amounts(before, after - unread if is_dilated else after))


def _cropped(b: Builder, window: Window, dims: Sequence[int]) -> PaddedWindow:
    """Return the window without negative padding, over the cropped operand."""
    added, crops = ([f(p, 0) for p in window.explicit_padding] for f in (max, min))
    return PaddedWindow(replace(window, padding=tuple(added)), dims, Amounts.of(b, crops) if any(crops) else None)


def _fitted(node: Node, window: Window, x: Sequence[Dim], is_mean: bool) -> Window:
    """Shrink a window that is larger than the padded input to the only position that ONNX Runtime computes.

    ONNX Runtime rounds the number of positions toward zero, so there is one that covers the padded input. If a mean
    counts the padding (before version 19), padding is added instead. Pools other than means read the elements that
    negative padding removes at the end (measured). An empty batch keeps axes of size 0 (pool_attributes.h).
    """
    counts_all = node.op.version < 19 and node.attr("count_include_pad", 0) and not rounds_up(node)
    axes = [list(axis) for axis in zip(window.shape, window.strides, window.before, window.after, strict=True)]
    for axis, size, span, dilation in zip(axes, x[2:], window.span, window.dilations, strict=True):
        _, stride, before, after = axis
        room = size + before + after
        if x[0] == 0 == size:
            axis[:] = 1, 1, 0, 0
        elif isinstance(room, int) and 0 < room < span < room + stride:
            if counts_all:
                axis[3] += span - room
            else:
                left_out = 0 if is_mean else min(after, 0)
                read = room - left_out
                axis[:] = -(-read // dilation), max(stride, read), before, after - left_out
    shape, strides, befores, afters = (tuple(column) for column in zip(*axes, strict=True))
    return replace(window, shape=shape, strides=strides, padding=(*befores, *afters))


def onnx_attributes(window: Window) -> dict[str, Any]:
    """Return the ONNX attributes that describe `window`."""
    return {
        "kernel_shape": window.shape,
        "strides": window.strides,
        "dilations": tuple(1 if k == 1 else d for k, d in zip(window.shape, window.dilations, strict=True)),
        **({"auto_pad": "SAME_UPPER"} if window.is_same else {"pads": window.padding}),
    }


def same_unlike_onnx(window: Window) -> bool:
    """Whether ONNX Runtime has no such SAME padding: with dilations, or with strides larger than the window."""
    return window.is_same and (
        window.is_dilated or any(s > k for k, s in zip(window.shape, window.strides, strict=True))
    )


# --- lifting: TFLite --------------------------------------------------------------------------------------------------


def tfl_window(node: Node, shape: Sequence[Dim], sizes: Sequence[Dim]) -> Window:
    """Return the window of a TFLite node (options padding, stride_*, dilation_*_factor), explicit if `sizes` are
    static.

    UnsupportedError if its own `shape` is dynamic.
    """
    window = known_sizes(shape)
    if len(window) != len(shape):
        raise UnsupportedError("a kernel of dynamic size", code="E-SHAPE-001")
    axes = ("d", "h", "w")[-len(shape) :]
    strides = tuple(int(node.attr(f"stride_{a}", 1)) for a in axes)
    dilations = tuple(int(node.attr(f"dilation_{a}_factor", 1) or 1) for a in axes)
    padding = SAME if node.attr("padding", SAME) == SAME else (0,) * (2 * len(shape))
    return Window(tuple(window), strides, dilations, padding).explicit(sizes)


# --- legalization -----------------------------------------------------------------------------------------------------


def realize_window(b: Builder, x: Value, dims: Sequence[int], window: Window) -> PaddedWindow:
    """Return the window over the axes `dims` of `x` without padding, and the padding of `x` that it reads."""
    sizes = [x.shape[d] for d in dims]
    read = window.explicit(sizes).trimmed(sizes)
    same = read.is_same
    amounts = same_amounts(missing(b, x, dims, window)) if same else Amounts.of(b, read.explicit_padding)
    return PaddedWindow(window.without_padding(), dims, amounts)


@functools.lru_cache(1024)
def tfl_padding(window: Window, sizes: tuple[Dim, ...]) -> str | None:
    """Return the TFLite padding that results in the same window positions; None if neither SAME nor VALID does.

    Only the padding before and the number of positions matter: elements after the last window are never read.
    """
    read = window.explicit(sizes).trimmed(sizes)
    if not read.is_padded:
        return "VALID"
    return "SAME" if read == replace(window, padding=SAME).explicit(sizes).trimmed(sizes) else None


def tfl_options(window: Window, sizes: tuple[Dim, ...]) -> dict[str, Any] | None:
    """Return the options padding and stride_h, stride_w (and stride_d), without an activation; None if no padding
    fits."""
    padding = tfl_padding(window, sizes)
    if padding is None:
        return None
    strides = {f"stride_{a}": s for a, s in zip(("d", "h", "w")[-window.rank :], window.strides, strict=True)}
    return {"padding": padding, **strides, "fused_activation_function": "NONE"}


def tfl_dilations(window: Window) -> dict[str, int]:
    """Return the options dilation_h_factor and dilation_w_factor (and dilation_d_factor)."""
    return {f"dilation_{a}_factor": d for a, d in zip(("d", "h", "w")[-window.rank :], window.dilations, strict=True)}
