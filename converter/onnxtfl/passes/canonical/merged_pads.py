"""Pads of an inner axis, over rows of all elements after it, for the CPU's kernels.

::

    %y = Pad(%x: [1, h, w, c]) 1 row, 1 column     ->     %r = Reshape(%x) [1, h, 1, w c]
                                                          %p = Pad(%r) 1 row, c elements
                                                          %y = Reshape(%p) [1, h + 1, w + 1, c]

XNNPACK copies the elements after the last padded axis piece by piece: for the pool of a ResNet, 112 x 112 x 64 floats
take 116 us, 60 us in rows, and 112 x 112 x 32 quantized elements 98 us, 16 us in rows; 8075 samples of sound take 60 us
and 1 us. It computes a Pad before a convolution within the convolution.
"""

from __future__ import annotations

import math

import numpy as np

from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.data import Array
from onnxtfl.ir.dims import is_static
from onnxtfl.ir.graph import Graph, Node, Value
from onnxtfl.ir.reshape import reshape
from onnxtfl.ir.shapes import static_ints

MOST_ELEMENTS = 128
"""The most elements after the last padded axis; copies of more are as fast."""
RANK = 4
"""The fewest axes of the rows: LiteRT's GPU accelerator pads batches of less wrong."""


def pad_rows(graph: Graph) -> None:
    """Merge the last padded axis with those after it."""
    for node in list(graph.nodes):
        amounts = _amounts(node)
        if amounts is not None and (axis := _last_padded(node, amounts)) is not None:
            graph.replace(node, [_merged(graph, node, amounts, axis)])


def _amounts(node: Node) -> Array | None:
    """(before, after) for each axis of a Pad that does not crop and of known sizes but the first; else None."""
    if node.op is not ops.Pad or node.attr("mode") != "constant" or not node.operand(0).tensor_type.rank:
        return None
    amounts, x = static_ints(node.operand(1)), node.operand(0)
    quantization = x.tensor_type.quantization
    if amounts is None or min(amounts) < 0 or (quantization is not None and not quantization.per_tensor):
        return None
    return np.reshape(amounts, (-1, 2)) if is_static((*x.shape[1:], *node.result.shape[1:])) else None


def _last_padded(node: Node, amounts: Array) -> int | None:
    """The last padded axis if there are axes of few elements after it and no convolution pads, else None."""
    x, axis = node.operand(0), max((axis for axis, pair in enumerate(amounts) if pair.any()), default=0)
    if not 0 < axis < x.rank - 1 or math.prod(x.shape[axis + 1 :]) > MOST_ELEMENTS:
        return None
    is_fused = any(issubclass(user.op, ops.Convolution) for user in node.result.users())
    return None if is_fused else axis


def _merged(graph: Graph, node: Node, amounts: Array, axis: int) -> Value:
    b, x = Builder(graph, node, cause=node, maker="rows"), node.operand(0)
    inner = math.prod(x.shape[axis + 1 :])
    ones = (1,) * max(x.rank - axis - 1, RANK - 1 - axis)
    merged = np.concatenate([amounts[:axis], np.zeros((len(ones), 2), np.int64), amounts[axis : axis + 1] * inner])
    rows = reshape(b, x, (*x.shape[:axis], *ones, x.shape[axis] * inner))
    padded = b.remade(node, rows, merged.astype(np.int64), *node.operands[2:])[0]
    return reshape(b, padded, node.result.shape)
