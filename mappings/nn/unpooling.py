"""Unpooling.

==============  =============================================================================================
ONNX            MaxUnpool 9 11 22
==============  =============================================================================================
"""

from __future__ import annotations

import numpy as np

from onnxtfl.build.windows import onnx_window
from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.dims import product
from onnxtfl.ir.graph import Node, Value
from onnxtfl.ir.ops.transposed_convolution import transposed_sizes
from onnxtfl.ir.reshape import dim_vector, reshape
from onnxtfl.rewriting.registry import lift_onnx


@lift_onnx("MaxUnpool", since=(9, 11, 22))
def _max_unpool(b: Builder, node: Node) -> Value:
    """Scatter the elements to their positions in a tensor of zeros, which `output_shape` may extend at the ends."""
    x, indices, wanted = node.operand(0), node.operand(1), node.optional(2)
    window = onnx_window(node, node.attr("kernel_shape"))
    shape = (*x.shape[:2], *transposed_sizes(x.shape[2:], window))
    count = product(x.shape)
    places, values = reshape(b, indices, (count, 1), x), reshape(b, x, (count,), x)
    flat = b(ops.ScatterND, None, places, values, dim_vector(b, [product(shape)], x), kind="none")
    full = reshape(b, flat, shape, x)
    if wanted is None:
        return full
    more = b(ops.Sub, wanted, dim_vector(b, shape, x))
    columns = reshape(b, more, (len(shape), 1))
    table = b(ops.Concatenate, np.zeros((len(shape), 1), np.int64), columns, axis=1)
    return b(ops.Pad, full, table)
