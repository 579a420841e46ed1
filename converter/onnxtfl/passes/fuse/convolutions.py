"""Arithmetic around convolutions goes into their constants.

::

    Mul(Conv(x, w, b), c)            ->  Conv(x, w*c, b*c)           c a constant for each output feature
    Add(Conv(x, w, b), c)            ->  Conv(x, w, b+c)
    BatchNormInference(Conv(x))      ->  Add(Mul(Conv(x), c), d)     which then goes in; after matmuls likewise
    Conv(Pad(x))                     ->  Conv(x) with padding
    DepthToSpace(Conv(x, w)) CRD     ->  DepthToSpace(Conv(x, w')) DCR
"""

from __future__ import annotations

from functools import partial

import numpy as np

from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.data import Array
from onnxtfl.ir.graph import Node, Value, constant
from onnxtfl.ir.matching import (
    along_axis,
    made_by,
    scalar,
    single_use,
    with_constant,
)
from onnxtfl.ir.shapes import static_ints
from onnxtfl.rewriting.patterns import Patterns

CONVOLUTIONS = Patterns()


def _fusable(b: Builder, node: Node, op: type[ops.Conv] | type[ops.ConvTranspose]) -> tuple[Node, Array, int] | None:
    """The convolution under a binary node, the constant for each of its features, and the constant's place."""
    found = with_constant(node)
    conv = made_by(found[0], op) if found is not None else None
    if found is None or conv is None or not single_use(found[0], b.graph) or not conv.result.dtype.is_float:
        return None
    if node.result.tensor_type.shape != conv.result.tensor_type.shape:
        return None
    axis, rank = conv.attr("output_feature_dimension"), conv.result.rank
    size = conv.result.shape[axis]
    vector = along_axis(found[1], rank, axis, size) if isinstance(size, int) else None
    return None if vector is None else (conv, vector, found[2])


def _add(b: Builder, node: Node, op: type[ops.Conv] | type[ops.ConvTranspose], sign: int) -> Value | None:
    found = _fusable(b, node, op)
    if found is None or (sign < 0 and found[2] == 0):
        return None
    conv, vector, _ = found
    bias = conv.optional(2)
    if bias is not None and not bias.is_constant:
        return None
    total = (bias.numpy() if bias is not None else 0) + sign * vector
    return b(op, conv.operand(0), conv.operand(1), total.astype(vector.dtype), **conv.attributes)


def _scale(b: Builder, node: Node, op: type[ops.Conv] | type[ops.ConvTranspose], divide: bool) -> Value | None:
    found = _fusable(b, node, op)
    if found is None or (divide and found[2] == 0):
        return None
    conv, vector, _ = found
    kernel, bias = conv.operand(1), conv.optional(2)
    grouped = op is ops.ConvTranspose and conv.attr("feature_group_count") > 1
    if kernel.data is None or (bias is not None and not bias.is_constant) or grouped or (divide and not vector.all()):
        return None
    factors = (1 / vector if divide else vector).astype(vector.dtype)
    scaled = constant(kernel.data.scale(factors, conv.attr("kernel_output_feature_dimension")))
    moved = None if bias is None else (bias.numpy() * factors).astype(vector.dtype)
    return b(op, conv.operand(0), scaled, moved, **conv.attributes)


for _op in (ops.Conv, ops.ConvTranspose):
    CONVOLUTIONS.on(ops.Add)(partial(_add, op=_op, sign=1))
    CONVOLUTIONS.on(ops.Sub)(partial(_add, op=_op, sign=-1))
    CONVOLUTIONS.on(ops.Mul)(partial(_scale, op=_op, divide=False))
    CONVOLUTIONS.on(ops.Div)(partial(_scale, op=_op, divide=True))


@CONVOLUTIONS.on(ops.BatchNormInference)
def batch_norm_as_arithmetic(b: Builder, node: Node) -> Value | None:
    """A batch normalization whose factors a convolution or a matmul can take in."""
    x, axis = node.operand(0), node.attr("feature_index")
    if not _makes_features(made_by(x), axis) or not single_use(x, b.graph):
        return None
    vectors = [v for v in node.operands[1:] if v is not None and v.is_constant]
    if len(vectors) < 4 or not x.dtype.is_float:
        return None
    scale, bias, mean, variance = (v.numpy().astype(np.float64) for v in vectors)
    factor = scale / np.sqrt(variance + node.attr("epsilon"))
    shape = [-1 if a == axis else 1 for a in range(x.rank)]
    factors, offsets = (v.reshape(shape).astype(x.dtype.numpy) for v in (factor, bias - mean * factor))
    return b(ops.Add, b(ops.Mul, x, factors), offsets)


def _makes_features(node: Node | None, axis: int) -> bool:
    """Whether `node` sums products with a constant, its features along `axis`."""
    if node is None or len(node.operands) < 2 or not node.operand(1).is_constant:
        return False
    if node.op in (ops.Conv, ops.ConvTranspose):
        return bool(node.attr("output_feature_dimension") == axis)
    return node.op in (ops.DotGeneral, ops.DotGeneralBias) and axis == node.result.rank - 1


@CONVOLUTIONS.on(ops.Conv)
def pad_into_conv(b: Builder, node: Node) -> Value | None:
    """A constant pad of zeros on spatial axes is padding of the convolution."""
    pad = made_by(node.operand(0), ops.Pad)
    if pad is None or node.attr("auto_pad") != "NOTSET" or pad.attr("mode") != "constant":
        return None
    amounts, value = static_ints(pad.operand(1)), pad.optional(2)
    if amounts is None or (value is not None and scalar(value) != 0):
        return None
    spatial = node.attr("input_spatial_dimensions")
    pairs = np.asarray(amounts).reshape(-1, 2)
    if pairs.min() < 0 or any(pairs[i].any() for i in range(len(pairs)) if i not in spatial):
        return None
    grown = np.asarray(node.attr("padding")) + np.concatenate([pairs[list(spatial), 0], pairs[list(spatial), 1]])
    padding = tuple(int(p) for p in grown)
    return b(ops.Conv, pad.operand(0), *node.operands[1:], **{**node.attributes, "padding": padding})


@CONVOLUTIONS.on(ops.DepthToSpace)
def feature_order_into_conv(b: Builder, node: Node) -> Value | None:
    """Depth-first blocks (CRD) become position-first ones (DCR), which kernels have: the features change places."""
    conv, block = made_by(node.operand(0), ops.Conv), node.attr("block_size")
    if node.attr("mode") != "CRD" or len(node.attr("space_dims")) != 2:
        return None
    depth = node.operand(0).shape[node.attr("depth_dim")]
    changed = {**node.attributes, "mode": "DCR"}
    if depth == block * block:
        return b(ops.DepthToSpace, node.operand(0), **changed)
    if conv is None or not single_use(conv.result, b.graph) or not conv.operand(1).is_constant:
        return None
    if conv.attr("feature_group_count") != 1 or conv.attr("output_feature_dimension") != node.attr("depth_dim"):
        return None
    order = np.arange(depth).reshape(-1, block * block).T.reshape(-1)
    kernel = b(ops.Gather, conv.operand(1), order, axis=conv.attr("kernel_output_feature_dimension"))
    bias = None if conv.optional(2) is None else b(ops.Gather, conv.operand(2), order, axis=0)
    return b(ops.DepthToSpace, b(ops.Conv, conv.operand(0), kernel, bias, **conv.attributes), **changed)
