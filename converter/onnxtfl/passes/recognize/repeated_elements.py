"""Rows and columns of images that are repeated by concatenations: Resize.

::

    %a = Concatenate(%x: [1,h,w,c], %x)                      [1,h,w,2c]
    %b = Reshape(%a)                                         [1,h,2wc]
    %y = Reshape(Concatenate(%b, %b))                        [1,2h,2w,c]      ->     %y = Resize(%x, factors 2, 2)
"""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Iterator, Sequence

from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.dims import is_static, known_sizes
from onnxtfl.ir.graph import Node, Value
from onnxtfl.ir.matching import made_by
from onnxtfl.ir.quantized import quantization_of
from onnxtfl.ir.reshape import reshape
from onnxtfl.ir.shapes import normalize_axis
from onnxtfl.rewriting.patterns import Patterns

REPEATED_ELEMENTS = Patterns()
_IMAGE = (1, 2)
"""The axes of rows and columns, channels last."""
Repeat = tuple[int, int]
"""The number of parts into which a tensor is cut, and how often each is repeated."""


@REPEATED_ELEMENTS.on(ops.Reshape, quantized=True)
def resized_image(b: Builder, node: Node) -> Value | None:
    """The image whose rows and columns a Reshape of concatenations repeats."""
    shape = node.result.tensor_type.shape
    if shape is None or not is_static(shape) or not node.result.dtype.is_float:
        return None
    for x, repeats in _sources(node):
        if x.rank == 4 and (repeated := _repeated_shape(x.shape, repeats, shape)) is not None:
            sizes = [repeated[axis] for axis in _IMAGE]
            places = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
            result = b(ops.Resize, x, sizes, dims=_IMAGE, mode="nearest", **places)
            result.type = result.tensor_type.stored_as(quantization_of(x))
            return reshape(b, result, shape)
    return None


def _sources(node: Node) -> Iterator[tuple[Value, Sequence[Repeat]]]:
    """Values of known sizes whose elements the operand of `node` repeats, and how; the last repeat is the first."""
    value, repeats = node.operand(0), list[Repeat]()
    while (made := made_by(value, ops.Concatenate, ops.Reshape, quantized=True)) is not None:
        x = made.operand(0)
        is_same = all(v is x for v in made.operands) if made.op is ops.Concatenate else True
        if not is_same or not x.is_static or quantization_of(x) != quantization_of(value):
            return
        if made.op is ops.Concatenate:
            parts = math.prod(known_sizes(x.shape[: normalize_axis(made.attr("axis"), x.rank)]))
            others = repeats.pop()[1] if repeats and repeats[-1][0] == parts else 1
            repeats.append((parts, len(made.operands) * others))
        value = x
        if repeats:
            yield x, repeats


def _repeated_shape(shape: Sequence[int], repeats: Sequence[Repeat], after: Sequence[int]) -> Sequence[int] | None:
    """`shape` after repeats of rows and columns that the shape `after` merges; None if others are repeated."""
    sizes = list(shape)
    for parts, count in reversed(repeats):
        axis = next((axis for axis in _IMAGE if math.prod(sizes[: axis + 1]) == parts), None)
        if axis is None:
            return None
        sizes[axis] *= count
    merged = {math.prod(sizes[: axis + 1]) for axis in _IMAGE}
    return sizes if merged <= set(itertools.accumulate(after, operator.mul)) else None
