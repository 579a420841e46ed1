"""The windows of the document: `auto_pad` and `ceil_mode` as padding."""

from __future__ import annotations

from collections.abc import Sequence

from onnxtfl.ir.attributes import SAME, Choice
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.graph import Value
from onnxtfl.ir.spatial import Window
from onnxtfl.ir.window_padding import PaddedWindow, missing, rounded_up, same_amounts, with_amounts

AUTO_PAD = Choice("", "NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID", default="NOTSET")


def resolved(
    b: Builder, x: Value, dims: Sequence[int], window: Window, auto_pad: str, ceil_mode: bool = False
) -> PaddedWindow:
    """The window over the axes `dims` of `x` with the padding of `auto_pad` and `ceil_mode` (which SAME ignores)."""
    if auto_pad == "SAME_LOWER":
        return with_amounts(window, dims, same_amounts(missing(b, x, dims, window), is_lower=True))
    if auto_pad.startswith(SAME):
        return PaddedWindow(window.same([x.shape[d] for d in dims]), dims)
    window = window.without_padding() if auto_pad == "VALID" else window
    return rounded_up(b, x, dims, window) if ceil_mode else PaddedWindow(window, dims)
