"""Pads that mirror or repeat the ends of axes, joined from slices.

LiteRT's MIRROR_PAD takes 4 to 9 ns for each element, in one thread, and XNNPACK has no such kernel.

::

    Pad(%x: [1,h,w,c], one row and column at each side, "reflect")
      ->
    %a = Concatenate(%x[:, :, 1:2], %x, %x[:, :, w-2:w-1])                            [1,h,w+2,c]
    Concatenate(%a[:, 1:2], %a, %a[:, h-2:h-1])                                       [1,h+2,w+2,c]

Microseconds in one thread, with AVX-512 and without:

=======================================  ==========  ======
float32                                  MIRROR_PAD  joined
=======================================  ==========  ======
1 x 64 x 64 x 64, 1 row and column             2460     114
1 x 256 x 256 x 3, 3 rows and columns          1823      94
1 x 8 x 8 x 16, 1 row and column                 15     0.4
1 x 4 x 4 x 4, 1 row and column                 1.5     0.2
1 x 8000, 200 samples                            36     2.7
=======================================  ==========  ======
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from onnxtfl.build.runs import MOST_JOINED, joined_to
from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.dims import is_static
from onnxtfl.ir.graph import Node, Value
from onnxtfl.ir.op import attributes_of
from onnxtfl.ir.ops.slicing import slice_axes
from onnxtfl.ir.shapes import static_ints
from onnxtfl.rewriting.registry import Computed, Form, decompose, decompose_late, lower_tfl

_MOST_POSITIONS = 4
"""The most positions of one side that are slices, one each."""
Side = tuple[int, Sequence[int], Sequence[int]]
"""A padded axis, and the positions that are read before and after it."""


def mirrored_sides(node: Node) -> Sequence[Side]:
    """The padded axes of a Pad, and the positions read; empty where their size is unknown or one is mirrored twice."""
    x, amounts, mode = node.operand(0), static_ints(node.operand(1)), attributes_of(node)["mode"]
    if mode not in ("reflect", "symmetric", "edge") or amounts is None or x.tensor_type.shape is None:
        return ()
    spare, sides = int(mode == "reflect"), list[Side]()
    for axis, (before, after) in enumerate(zip(amounts[::2], amounts[1::2], strict=True)):
        if before == after == 0:
            continue
        if not is_static(x.shape[axis : axis + 1]):
            return ()
        size = x.size(axis)
        if min(before, after) < 0 or (max(before, after) > size - spare and mode != "edge") or size == 0:
            return ()
        if mode == "edge":
            sides.append((axis, [0] * before, [size - 1] * after))
            continue
        first, last = range(before - 1 + spare, spare - 1, -1), range(size - 1 - spare, size - 1 - spare - after, -1)
        sides.append((axis, first, last))
    return sides


def _is_narrow(node: Node) -> bool:
    sides = mirrored_sides(node)
    return bool(sides) and all(max(len(first), len(last)) <= _MOST_POSITIONS for _, first, last in sides)


@decompose(ops.Pad, "tfl", when=lambda node: node.attr("mode") == "edge" and _is_narrow(node))
@decompose_late(ops.Pad, "xnnpack", when=_is_narrow)
def _mirror_by_slices(b: Builder, node: Node) -> Value:
    """Join one slice for each position, along the last axes first, where fewer elements are copied in short pieces."""
    x = node.operand(0)
    for axis, first, last in reversed(mirrored_sides(node)):
        before, after = (_side(b, x, axis, places) for places in (first, last))
        x = b(ops.Concatenate, *before, x, *after, axis=axis)
    return x


def _side(b: Builder, x: Value, axis: int, places: Sequence[int]) -> Sequence[Value]:
    """At most two tensors of the positions `places` of `x` along `axis`, in this order."""
    slices = {place: slice_axes(b, x, {axis: slice(place, place + 1)}) for place in dict.fromkeys(places)}
    return joined_to(b, [slices[place] for place in places], axis, MOST_JOINED // 2)


@lower_tfl(ops.Pad)
def _mirror_by_indices(node: Node) -> Form | None:
    """Join the mirrored positions along one axis, gathered at constant indices."""
    sides = mirrored_sides(node)
    if len(sides) != 1 or _is_narrow(node):
        return None
    x, ((axis, first, last),) = node.operand(0), sides
    before, after = ([_gathered(x, axis, side)] if len(side) else [] for side in (first, last))
    return Form("CONCATENATION", (*before, x, *after), {"axis": axis})


def _gathered(x: Value, axis: int, places: Sequence[int]) -> Computed:
    shape = (*x.shape[:axis], len(places), *x.shape[axis + 1 :])
    indices = np.asarray(places, np.int32)
    return Computed(x.tensor_type.with_shape(shape), lambda b: b(ops.Gather, x, indices, axis=axis))
