"""Col2Im: blocks summed at their positions in an image.

ONNX          Col2Im 18
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from onnxtfl.build.indices import strides_of
from onnxtfl.build.sizes import HUGE, vector_length
from onnxtfl.ir import ops
from onnxtfl.ir.budget import check_elements
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.graph import Node, Value, constant
from onnxtfl.ir.reshape import dim_vector, iota, unsqueezed
from onnxtfl.ir.shapes import static_ints
from onnxtfl.rewriting.registry import lift_onnx


@lift_onnx("Col2Im", since=(18,))
def _col2im(b: Builder, node: Node) -> Value:
    """Sum the blocks at their positions in the padded image by ScatterND, then crop the padding."""
    x, image, block = (node.operand(i) for i in range(3))
    n = vector_length(image)
    strides, dilations = (list(node.attr(name) or [1] * n) for name in ("strides", "dilations"))
    pads = list(node.attr("pads") or [0] * (2 * n))
    padded = b(ops.Add, image, np.asarray([pads[i] + pads[n + i] for i in range(n)]))
    span = b(ops.Mul, b(ops.Sub, block, b.scalar(1, block)), np.asarray(dilations))
    room = b(ops.Sub, b(ops.Sub, padded, span), b.scalar(1, block))
    counts = b(ops.Add, b(ops.FloorDiv, room, np.asarray(strides)), b.scalar(1, block))
    inside, across = _places(b, block, dilations, padded), _places(b, counts, strides, padded)
    places = b(ops.Reshape, b(ops.Add, unsqueezed(b, inside, [1]), unsqueezed(b, across, [0])), [-1, 1])
    rows = b(ops.Reshape, x, b(ops.Concatenate, [-1], b(ops.Shape, places, axes=(0,)), axis=0))
    total = b(ops.Reduce, padded, [0], kind="prod", keepdims=True)
    sizes = b(ops.Concatenate, total, b(ops.Shape, rows, axes=(0,)), axis=0)
    turned = b(ops.Transpose, rows, permutation=(1, 0))
    summed = b(ops.Transpose, b(ops.ScatterND, None, places, turned, sizes, kind="add"), permutation=(1, 0))
    volume = b(ops.Reduce, block, [0], kind="prod", keepdims=True)
    channels = b(ops.FloorDiv, b(ops.Shape, x, axes=(1,)), volume)  # -1 is ambiguous for an empty batch
    full = b(ops.Reshape, summed, b(ops.Concatenate, dim_vector(b, x.shape[:1], x), channels, padded, axis=0))
    if not any(pads):
        return full
    ends = b(ops.Concatenate, [HUGE, HUGE], b(ops.Add, image, np.asarray(pads[:n])), axis=0)
    return b(ops.Slice, full, [0, 0, *pads[:n]], ends, [1] * (n + 2))


def _places(b: Builder, counts: Value, steps: Sequence[int], sizes: Value) -> Value:
    """Return the flat indices in a tensor of `sizes` of counts[0] x counts[1] x ... points, steps[i] apart."""
    if (known := static_ints(counts)) is not None and (inner := static_ints(sizes)) is not None:
        check_elements(math.prod(known), "the positions of the blocks")
        grid = np.indices(known, sparse=True)
        distances = strides_of(inner) * np.asarray(steps)
        return constant(np.asarray(sum(g * a for g, a in zip(grid, distances, strict=True))).reshape(-1))
    places: Value = constant(np.zeros(1, np.int64))
    for axis, step in enumerate(steps):
        size, count = (b(ops.Gather, v, np.asarray(axis), axis=0) for v in (sizes, counts))
        along = b(ops.Mul, iota(b, count), b.scalar(step, count))
        before = b(ops.Mul, places, size)
        places = b(ops.Reshape, b(ops.Add, unsqueezed(b, before, [1]), unsqueezed(b, along, [0])), [-1])
    return places
