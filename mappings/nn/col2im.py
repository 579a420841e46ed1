"""Col2Im: blocks summed at their positions in an image.

ONNX          Col2Im 18
"""

from __future__ import annotations

import numpy as np

from onnxtfl.build.sizes import HUGE, vector_length
from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.formula import Term
from onnxtfl.ir.graph import Node, Value, constant
from onnxtfl.ir.reshape import dim_vector, iota
from onnxtfl.rewriting.registry import lift_onnx


@lift_onnx("Col2Im", since=(18,))
def _col2im(b: Builder, node: Node) -> Value:
    """Sum the blocks at their positions in the padded image by ScatterND, then crop the padding."""
    x, (image, block) = node.operand(0), (Term(b, node.operand(i)) for i in (1, 2))
    n = vector_length(image.value)
    given = ([*(node.attr(name) or [1] * n)] for name in ("strides", "dilations"))
    strides, dilations = (Term(b, constant(np.asarray(numbers, np.int64))) for numbers in given)
    pads = np.asarray(node.attr("pads") or [0] * (2 * n), np.int64)
    padded = image + Term(b, constant(pads[:n] + pads[n:]))
    counts = (padded - (block - 1) * dilations - 1) // strides + 1
    inside, across = _places(block, dilations, padded), _places(counts, strides, padded)
    places = (inside.along(0, 2) + across).apply(ops.Reshape, [-1, 1])
    rows = b(ops.Reshape, x, b(ops.Concatenate, [-1], b(ops.Shape, places.value, axes=(0,)), axis=0))
    sizes = b(ops.Concatenate, padded.reduce("prod", [0]).value, b(ops.Shape, rows, axes=(0,)), axis=0)
    turned = b(ops.Transpose, rows, permutation=(1, 0))
    summed = b(ops.ScatterND, None, places.value, turned, sizes, kind="add")
    channels = Term(b, b(ops.Shape, x, axes=(1,))) // block.reduce("prod", [0])  # -1 is ambiguous for an empty batch
    shape = b(ops.Concatenate, dim_vector(b, x.shape[:1], x), channels.value, padded.value, axis=0)
    full = b(ops.Reshape, b(ops.Transpose, summed, permutation=(1, 0)), shape)
    if not pads.any():
        return full
    ends = b(ops.Concatenate, [HUGE, HUGE], (image + Term(b, constant(pads[:n]))).value, axis=0)
    return b(ops.Slice, full, [0, 0, *pads[:n].tolist()], ends, [1] * (n + 2))


def _places(counts: Term, steps: Term, sizes: Term) -> Term:
    """Return the flat indices in a tensor of `sizes` of `counts` points, one every steps[i] elements of axis i."""
    b = counts.b
    places = Term(b, constant(np.zeros(1, np.int64)))
    for axis in range(vector_length(sizes.value)):
        along = Term(b, iota(b, counts.at(axis, 0).value)) * steps.at(axis, 0)
        places = ((places * sizes.at(axis, 0)).along(0, 2) + along).apply(ops.Reshape, [-1])
    return places
