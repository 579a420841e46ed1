"""Ops of ONNX Runtime whose tensors have the layout of the machine that optimized the model.

com.microsoft.nchwc: Conv, MaxPool, AveragePool, GlobalMaxPool, GlobalAveragePool, Upsample, ReorderInput, ReorderOutput

Channels are stored in blocks of 8 or 16, padded with zeros to whole blocks. The block size is not in the file; it
where a number of channels is no multiple of 16, or more than a block of 8 is padding. Here tensors are [n, c, h, w]
with the padded channels; weights are put back in order. Source: ONNX Runtime, core/optimizer/nchwc_transformer.cc and
core/mlas/lib/reorder.cpp.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from onnxtfl.mappings.contrib.microsoft.fused_products import apply_activation

from onnxtfl.build.qlinear import lift_op
from onnxtfl.build.sizes import slice_axes
from onnxtfl.build.windows import pad_axes
from onnxtfl.errors import UnsupportedError
from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.data import Array
from onnxtfl.ir.dims import known_size
from onnxtfl.ir.graph import Node, Value, constant
from onnxtfl.ir.reshape import transposed
from onnxtfl.rewriting.registry import lift_onnx

_NCHWC = "com.microsoft.nchwc"
_BLOCKS = (8, 16)
_FOUND = "block"
"""The attribute that the first op of a graph sets for all of them: the number of channels in a block."""


def _block(node: Node) -> int:
    """The number of channels in a block."""
    if _FOUND not in node.attributes:
        graph = node.graph
        others = [n for n in (graph.nodes if graph is not None else [node]) if n.op.domain == _NCHWC]
        weights = list(_weights(others))
        possible = [block for block in _BLOCKS if all(_fits(*each, block) for each in weights)]
        if len(possible) == 2 and (not weights or any(_has_empty_half(*each) for each in weights)):
            possible = [16]
        for other in others:
            other.attributes[_FOUND] = possible[0] if len(possible) == 1 else 0
    found = int(node.attributes[_FOUND])
    if found:
        return found
    raise UnsupportedError(
        "ONNX Runtime optimized this model for one machine: no weight shows whether channels are in blocks of 8 or 16",
        hint="save it with graph_optimization_level = ORT_ENABLE_EXTENDED, or convert the model it was made from",
    )


def _weights(nodes: list[Node]) -> Iterator[tuple[Value, int]]:
    """The stored weights of all convolutions, and their groups."""
    for node in nodes:
        weights = node.optional(1)
        if weights is not None:
            if not weights.is_constant or weights.rank != 4:
                raise UnsupportedError("weights of a machine's layout that are not constants", type_=weights.type)
            yield weights, int(node.attr("group", 1))


def _fits(weights: Value, group: int, block: int) -> bool:
    """Whether the optimizer would make such weights for blocks of this size."""
    rows, columns = (known_size(d) for d in weights.shape[:2])
    alone = group == 1 and columns < block
    return rows % block == 0 and (alone or _is_depthwise(rows, columns, group) or columns % block == 0)


def _is_depthwise(rows: int, columns: int, group: int) -> bool:
    return columns == 1 and rows == group and group > 1


def _has_empty_half(weights: Value, group: int) -> bool:
    """Whether, in blocks of 16, the last half of the rows' or of the columns' last block is zero."""
    ordered = _in_order(weights, group, 16)
    rows = not ordered[-8:].any()
    return rows or (group == 1 and ordered.shape[1] % 16 == 0 and not ordered[:, -8:].any())


def _in_order(weights: Value, group: int, block: int) -> Array:
    """Weights [o, i, h, w] from the stored order [o / block, i / block, h, w, block of i, block of o].

    Kernels of few channels, and of one each, are stored as [o / block, i, h, w, block of o].
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
    """A convolution, then a sum, then an activation."""
    group, block = int(node.attr("group", 1)), _block(node)
    weights = constant(_in_order(node.operand(1), group, block))
    names = ("auto_pad", "dilations", "group", "kernel_shape", "pads", "strides")
    given = {name: node.attributes[name] for name in names if name in node.attributes}
    y = lift_op(b, "Conv", 11, [node.operand(0), weights, node.optional(2)], given)
    added = node.optional(3)
    y = y if added is None else b(ops.Add, y, added)
    return apply_activation(b, node, y, [float(p) for p in node.attr("activation_params", ())])


@lift_onnx("ReorderInput", since=(1,), domain=_NCHWC)
def _into_blocks(b: Builder, node: Node) -> Value:
    """Channels become axis 1, padded to whole blocks."""
    x = node.operand(0)
    x = transposed(b, x, (0, 3, 1, 2)) if node.attr("channels_last", 0) else x
    channels = known_size(x.shape[1], "the number of channels")
    missing = -channels % _block(node) if channels % 16 else 0
    return pad_axes(b, x, [1], [0, missing]) if missing else x


@lift_onnx("ReorderOutput", since=(1,), domain=_NCHWC)
def _out_of_blocks(b: Builder, node: Node) -> Value:
    """The first `channels` channels, as axis 1 or last."""
    x = slice_axes(b, node.operand(0), {1: slice(0, int(node.attributes["channels"]))})
    return transposed(b, x, (0, 2, 3, 1)) if node.attr("channels_last", 0) else x


@lift_onnx("Upsample", since=(1,), domain=_NCHWC)
def _upsample(b: Builder, node: Node) -> Value:
    """Resize by integer factors; the nearest element is the previous one."""
    scales = constant(np.asarray(node.attr("scales", (1, 1, 1, 1)), np.float32))
    names = ("mode", "coordinate_transformation_mode")
    given = {name: node.attributes[name] for name in names if name in node.attributes}
    given = {"coordinate_transformation_mode": "asymmetric", "mode": "nearest", **given, "nearest_mode": "floor"}
    return lift_op(b, "Resize", 13, [node.operand(0), None, scales], given)


def _as_plain(name: str, version: int) -> None:
    """Register a pool with the rule of the ONNX op."""

    def rule(b: Builder, node: Node) -> Value:
        given = {key: value for key, value in node.attributes.items() if key != _FOUND}
        return lift_op(b, name, version, [node.operand(0)], given)

    lift_onnx(name, since=(1,), domain=_NCHWC)(rule)


for _name, _version in (("MaxPool", 12), ("AveragePool", 11), ("GlobalMaxPool", 1), ("GlobalAveragePool", 1)):
    _as_plain(_name, _version)
