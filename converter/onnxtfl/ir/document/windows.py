"""The windows of the document: `auto_pad` and `ceil_mode` as padding."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from onnxtfl.errors import UnsupportedError
from onnxtfl.ir.attributes import SAME, Choice
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.dims import Dim
from onnxtfl.ir.graph import Value
from onnxtfl.ir.ops.reversal import Reverse
from onnxtfl.ir.spatial import Window

AUTO_PAD = Choice("", "NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID", default="NOTSET")


def window_of(shape: Sequence[int], strides: Sequence[int], dilations: Sequence[int], padding: Sequence[int]) -> Window:
    """The window with these attributes; an empty list means ones, or no padding."""
    ones = (1,) * len(shape)
    filled = (tuple(strides) or ones, tuple(dilations) or ones, tuple(padding) or 2 * (0,) * len(shape))
    return Window(tuple(shape), *filled)


def resolved(window: Window, sizes: Sequence[Dim], auto_pad: str, ceil_mode: bool = False) -> Window:
    """The window with the padding of `auto_pad` and `ceil_mode` (which SAME ignores): explicit where `sizes` determine
    it. UnsupportedError if they do not determine that of SAME_LOWER or of `ceil_mode`.
    """
    if auto_pad.startswith(SAME):
        found = replace(window, padding=SAME).explicit(sizes)
        if auto_pad.endswith("LOWER"):
            found = replace(found, padding=(*found.after, *found.before)) if not found.is_same else _unknown(auto_pad)
        return found
    window = window.without_padding() if auto_pad == "VALID" else window
    return replace(window, padding=(*window.before, *_after(window, sizes))) if ceil_mode else window


def explicit(window: Window, auto_pad: str) -> tuple[int, ...]:
    """The explicit padding of a resolved window. UnsupportedError if it depends on dynamic sizes."""
    return (_unknown(auto_pad) if window.is_same else window).explicit_padding


def _unknown(what: str) -> Window:
    """Raise UnsupportedError."""
    hint = "fix the sizes of the inputs (`input_shapes`)"
    raise UnsupportedError(f"{what} over axes of unknown size", hint=hint, code="E-SHAPE-001")


def _after(window: Window, sizes: Sequence[Dim]) -> list[int]:
    """The padding after each axis with the position that `ceil_mode` adds, unless it begins in the padding."""
    found = []
    for size, span, stride, before, after in zip(
        sizes, window.span, window.strides, window.before, window.after, strict=True
    ):
        if not isinstance(size, int):
            if after + stride > span:
                _unknown("ceil_mode")
            found.append(after + stride - 1)
            continue
        count = -((span - size - before - after) // stride) + 1
        count -= (count - 1) * stride >= size + before
        found.append(max((count - 1) * stride + span - size - before, 0))
    return found


def mirrored_if_lower(
    b: Builder, x: Value, axes: Sequence[int], window: Window, auto_pad: str, run: Callable[[Value, str], Value]
) -> Value:
    """`run(x, auto_pad)`; for a SAME_LOWER that depends on dynamic sizes, SAME_UPPER of the reversed operand, reversed.

    `run` itself reverses what else has an order along `axes`.
    """
    sizes = [x.shape[a] for a in axes]
    if auto_pad != "SAME_LOWER" or not replace(window, padding=SAME).explicit(sizes).is_same:
        return run(x, auto_pad)
    return b(Reverse, run(b(Reverse, x, dimensions=tuple(axes)), "SAME_UPPER"), dimensions=tuple(axes))
