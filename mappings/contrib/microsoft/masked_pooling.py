"""com.microsoft MaxpoolWithMask: maxima of windows, whose rows end at the first masked element.

Source: ONNX Runtime maxpool_with_mask.h. The mask [1, 1, spatial...] has 0 where a row of a window ends; over two or
three spatial axes the first element of all is never masked. A window of which nothing is left has the lowest number."""

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
from onnxtfl.ir.dims import is_static, known_sizes
from onnxtfl.ir.formula import Term
from onnxtfl.ir.graph import Node, Value, constant
from onnxtfl.rewriting.registry import lift_onnx

MOST_TAPS = 256


@lift_onnx("MaxpoolWithMask", since=(1,), domain=MICROSOFT)
def _masked_pool(b: Builder, node: Node) -> Value:
    x, mask = node.operand(0), node.operand(1)
    sizes, dims = x.shape[2:], range(2, x.rank)
    if tuple(mask.shape[:2]) != (1, 1):
        raise UnsupportedError("a mask for each channel, which ONNX Runtime's kernel reads at other places")
    if not is_static((*sizes, *mask.shape)) or mask.shape[2:] != sizes:
        raise UnsupportedError(f"a mask {mask.type} for {x.type}: known sizes expected", code="E-SHAPE-001")
    found = resolve_window(b, node, x, node.attr("kernel_shape"), is_pool=True)
    window = found.window
    if math.prod(window.shape) > MOST_TAPS:
        raise UnsupportedError(f"a window of more than {MOST_TAPS} elements", code="E-OP-006")
    low = float(np.finfo(x.dtype.numpy).min)
    unmasked = Term(b, mask).differs(0)
    if len(sizes) > 1:
        first = np.arange(math.prod(known_sizes(sizes))) == 0
        unmasked = unmasked | Term(b, constant(first.reshape(mask.shape)))
    sides = ((x, low), (unmasked.to(x.dtype).value, 1.0))
    padded = (realize_window(b, found.operand(b, v, value), dims, window, value)[0] for v, value in sides)
    taps, own = ([Term(b, tap) for tap in ops.window_taps(b, v, dims, window)] for v in padded)
    return functools.reduce(Term.max, _cut_off(taps, own, window.shape[-1], low)).value


def _cut_off(taps: Sequence[Term], alive: Sequence[Term], row: int, low: float) -> list[Term]:
    """The taps, with the lowest number from the first of each row of `row` taps on that is not alive."""
    found, reached = list[Term](), alive[0]
    for i, (tap, own) in enumerate(zip(taps, alive, strict=True)):
        reached = own if i % row == 0 else reached * own
        found.append((reached > 0.0).choose(tap, low))
    return found
