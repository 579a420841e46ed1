"""Ops of com.microsoft.nchwc: ONNX Runtime's blocked layout, chosen for the CPU that optimized the model.

com.microsoft.nchwc: Conv, MaxPool, AveragePool, GlobalMaxPool, GlobalAveragePool, Upsample, ReorderInput, ReorderOutput

Channels are stored in blocks of 8 or 16, and zero-padded to whole blocks. The block size is not in the file. It is 8 if
some number of channels is not a multiple of 16, and 16 if the second half of some last block contains only padding
(see `_block`). Here, tensors are [n, c, h, w] with the padded channels, and weights are converted back to OIHW. Source:
ONNX Runtime, core/optimizer/nchwc_transformer.cc and core/mlas/lib/reorder.cpp.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from onnxtfl.mappings.contrib.microsoft.fused_convolution import add_and_activate

from onnxtfl.build.qlinear import lift_op
from onnxtfl.build.sizes import slice_axes
from onnxtfl.errors import UnsupportedError
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.data import Array
from onnxtfl.ir.dims import known_size
from onnxtfl.ir.graph import Node, Value, constant
from onnxtfl.ir.reshape import transposed
from onnxtfl.ir.window_padding import pad_axes
from onnxtfl.rewriting.registry import lift_onnx

_NCHWC = "com.microsoft.nchwc"
_BLOCKS = (8, 16)
_BLOCK_SIZE = "block"
"""The attribute that caches the block size (0: ambiguous); the first converted op sets it on all ops."""


def _block(node: Node) -> int:
    """The number of channels in a block: 8 or 16. Raises UnsupportedError if the weights do not determine it.

    Candidates are the sizes that fit all weights. If both do, it is 16 if padding shows it, or if there are no weights.
    """
    if _BLOCK_SIZE not in node.attributes:
        graph = node.graph
        others = [n for n in (graph.nodes if graph is not None else [node]) if n.op.domain == _NCHWC]
        weights = list(_weights(others))
        candidates = [block for block in _BLOCKS if all(_fits(*each, block) for each in weights)]
        if len(candidates) == 2 and (not weights or any(_has_padded_half(*each) for each in weights)):
            candidates = [16]
        for other in others:
            other.attributes[_BLOCK_SIZE] = candidates[0] if len(candidates) == 1 else 0
    block = int(node.attributes[_BLOCK_SIZE])
    if block:
        return block
    raise UnsupportedError(
        "ONNX Runtime optimized this model for one CPU; the weights do not show if channels are in blocks of 8 or 16",
        hint="save it with graph_optimization_level = ORT_ENABLE_EXTENDED, or convert the model before optimization",
    )


def _weights(nodes: list[Node]) -> Iterator[tuple[Value, int]]:
    """The stored weights and the `group` of each convolution. Raises UnsupportedError if they are not constants."""
    for node in nodes:
        weights = node.optional(1)
        if weights is not None:
            if not weights.is_constant or weights.rank != 4:
                raise UnsupportedError("weights in the NCHWc layout have to be constants of rank 4", type_=weights.type)
            yield weights, int(node.attr("group", 1))


def _fits(weights: Value, group: int, block: int) -> bool:
    """Whether the optimizer could have written weights of this shape for this block size."""
    rows, columns = (known_size(d) for d in weights.shape[:2])
    has_few_inputs = group == 1 and columns < block
    return rows % block == 0 and (has_few_inputs or _is_depthwise(rows, columns, group) or columns % block == 0)


def _is_depthwise(rows: int, columns: int, group: int) -> bool:
    return columns == 1 and rows == group and group > 1


def _has_padded_half(weights: Value, group: int) -> bool:
    """Whether, with blocks of 16, the second half of the last block of output or input channels is zero.

    With blocks of 8, this half would be a block of its own, which the optimizer would not have added.
    """
    oihw = _to_oihw(weights, group, 16)
    rows = not oihw[-8:].any()
    return rows or (group == 1 and oihw.shape[1] % 16 == 0 and not oihw[:, -8:].any())


def _to_oihw(weights: Value, group: int, block: int) -> Array:
    """The weights [o, i, h, w] from the stored order [o / block, i / block, h, w, block of i, block of o].

    Weights with fewer input channels than a block, and depthwise ones, are stored as [o / block, i, h, w, block of o].
    """
    stored = weights.numpy()
    rows, columns, height, width = stored.shape
    if _is_depthwise(rows, columns, group) or (group == 1 and columns < block):
        parts = stored.reshape(rows // block, columns, height, width, block)
        return np.ascontiguousarray(parts.transpose(0, 4, 1, 2, 3)).reshape(stored.shape)
    parts = stored.reshape(rows // block, columns // block, height, width, block, block)
    return np.ascontiguousarray(parts.transpose(0, 5, 1, 4, 2, 3)).reshape(stored.shape)


@lift_onnx("Conv", since=(1,), domain=_NCHWC)
def _convolution(b: Builder, node: Node) -> Value:
    """activation(Conv(x, w, bias) + Z); bias and Z may be absent."""
    group, block = int(node.attr("group", 1)), _block(node)
    weights = constant(_to_oihw(node.operand(1), group, block))
    names = ("auto_pad", "dilations", "group", "kernel_shape", "pads", "strides")
    attributes = {name: node.attributes[name] for name in names if name in node.attributes}
    y = lift_op(b, "Conv", 11, [node.operand(0), weights, node.optional(2)], attributes)
    return add_and_activate(b, node, y)


@lift_onnx("ReorderInput", since=(1,), domain=_NCHWC)
def _reorder_input(b: Builder, node: Node) -> Value:
    """x with channels as axis 1, zero-padded to whole blocks."""
    x = node.operand(0)
    x = transposed(b, x, (0, 3, 1, 2)) if node.attr("channels_last", 0) else x
    channels = known_size(x.shape[1], "the number of channels")
    padding = -channels % _block(node) if channels % 16 else 0
    return pad_axes(b, x, [1], [0, padding]) if padding else x


@lift_onnx("ReorderOutput", since=(1,), domain=_NCHWC)
def _reorder_output(b: Builder, node: Node) -> Value:
    """x cropped to the first `channels` channels, as axis 1, or as the last axis if `channels_last`."""
    x = slice_axes(b, node.operand(0), {1: slice(0, int(node.attributes["channels"]))})
    return transposed(b, x, (0, 2, 3, 1)) if node.attr("channels_last", 0) else x


@lift_onnx("Upsample", since=(1,), domain=_NCHWC)
def _upsample(b: Builder, node: Node) -> Value:
    """Resize by integer factors; "nearest" takes the element at floor(position)."""
    scales = constant(np.asarray(node.attr("scales", (1, 1, 1, 1)), np.float32))
    names = ("mode", "coordinate_transformation_mode")
    attributes = {name: node.attributes[name] for name in names if name in node.attributes}
    attributes = {
        "coordinate_transformation_mode": "asymmetric",
        "mode": "nearest",
        **attributes,
        "nearest_mode": "floor",
    }
    return lift_op(b, "Resize", 13, [node.operand(0), None, scales], attributes)


def _register_pool(name: str, version: int) -> None:
    """Register the rule of a pooling op: that of the ONNX op `name` in this version."""

    def rule(b: Builder, node: Node) -> Value:
        attributes = {key: value for key, value in node.attributes.items() if key != _BLOCK_SIZE}
        return lift_op(b, name, version, [node.operand(0)], attributes)

    lift_onnx(name, since=(1,), domain=_NCHWC)(rule)


for _name, _version in (("MaxPool", 12), ("AveragePool", 11), ("GlobalMaxPool", 1), ("GlobalAveragePool", 1)):
    _register_pool(_name, _version)
