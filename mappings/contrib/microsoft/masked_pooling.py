"""com.microsoft MaxpoolWithMask: max pooling where each row of a window ends at its first masked element.

The mask [1, 1, spatial...] is 0 for masked elements; with two or three spatial axes, the element at index 0 of all axes
is never masked. A window without unmasked elements gets the lowest finite value. Source: ONNX Runtime
maxpool_with_mask.h."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import numpy as np

from onnxtfl.build.qlinear import MICROSOFT
from onnxtfl.build.windows import realize_window, resolve_window
from onnxtfl.errors import UnsupportedError
from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.data import Array
from onnxtfl.ir.dims import Dim, is_static, known_sizes
from onnxtfl.ir.formula import Term
from onnxtfl.ir.graph import Node, Value, constant
from onnxtfl.rewriting.registry import lift_onnx

MOST_TAPS = 256


@lift_onnx("MaxpoolWithMask", since=(1,), domain=MICROSOFT)
def _masked_pool(b: Builder, node: Node) -> Value:
    """The maximum over the taps of each window, with masked taps replaced by the lowest finite value."""
    x, mask = node.operand(0), node.operand(1)
    sizes, dims = x.shape[2:], range(2, x.rank)
    if tuple(mask.shape[:2]) != (1, 1):
        raise UnsupportedError(
            "a mask for each channel is not supported: ONNX Runtime's kernel reads such a mask at other indices"
        )
    if not is_static((*sizes, *mask.shape)) or mask.shape[2:] != sizes:
        raise UnsupportedError(
            f"the mask {mask.type} needs the same, statically known spatial sizes as {x.type}", code="E-SHAPE-001"
        )
    resolved = resolve_window(b, node, x, node.attr("kernel_shape"), is_pool=True)
    window = resolved.window
    if math.prod(window.shape) > MOST_TAPS:
        raise UnsupportedError(f"a window of more than {MOST_TAPS} elements is not supported", code="E-OP-006")
    low = float(np.finfo(x.dtype.numpy).min)
    unmasked = Term(b, mask).differs(0)
    if len(sizes) > 1:
        unmasked = unmasked | Term(b, constant(_first_element(sizes)))
    sides = ((x, low), (unmasked.to(x.dtype).value, 1.0))
    given = [(resolved.operand(b, v, value), value) for v, value in sides]
    padded = (realize_window(b, v, dims, window).operand(b, v, value) for v, value in given)
    taps, unmasked_taps = ([Term(b, tap) for tap in ops.window_taps(b, v, dims, window)] for v in padded)
    return functools.reduce(Term.max, _mask_row_ends(taps, unmasked_taps, window.shape[-1], low)).value


def _first_element(sizes: Sequence[Dim]) -> Array:
    """A bool tensor [1, 1, *sizes] that is true only at index 0 of all axes."""
    first = np.zeros((1, 1, *known_sizes(sizes)), np.bool_)
    first.flat[0] = True
    return first


def _mask_row_ends(taps: Sequence[Term], unmasked: Sequence[Term], row_size: int, low: float) -> list[Term]:
    """The taps, with `low` from the first masked one of each row of `row_size` taps on.

    `unmasked`: 1.0 for each unmasked tap, else 0.0.
    """
    masked, is_before_end = list[Term](), unmasked[0]
    for i, (tap, flag) in enumerate(zip(taps, unmasked, strict=True)):
        is_before_end = flag if i % row_size == 0 else is_before_end * flag
        masked.append((is_before_end > 0.0).choose(tap, low))
    return masked
