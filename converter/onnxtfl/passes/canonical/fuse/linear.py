"""Fuses arithmetic, pads and reshapes into the operands and attributes of convolutions and matmuls.

::

    Mul(Conv(x, w, b), c)            ->  Conv(x, w*c, b*c)           c a constant for each output feature
    Add(Conv(x, w, b), c)            ->  Conv(x, w, b+c)             likewise for matmuls, InstanceNorm, GroupNorm
    BatchNormInference(Conv(x))      ->  Add(Mul(Conv(x), c), d)     which are then fused
    Conv(Pad(x))                     ->  Conv(x) with padding
    DepthToSpace(Conv(x, w)) CRD     ->  DepthToSpace(Conv(x, w')) DCR
    DotGeneral(Reshape(x), w)        ->  DotGeneral(x, w) over several axes, so that x may have any axis order
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from onnxtfl.dataclass import dataclass
from onnxtfl.ir import ops
from onnxtfl.ir.attributes import SAME
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.data import Array
from onnxtfl.ir.dims import known_sizes
from onnxtfl.ir.graph import Node, Value, constant
from onnxtfl.ir.matching import along_axis, is_weight, made_by, single_use, splat_value, with_constant
from onnxtfl.ir.shapes import static_ints
from onnxtfl.ir.types import TensorType
from onnxtfl.rewriting.patterns import Patterns

LINEAR = Patterns()


@dataclass(frozen=True, eq=False)
class Linear:
    """A node that multiplies by operand 1 and adds operand 2 (optional) per output feature.

    `axis`: the feature axis of the result. `column`: that of operand 1; None if it cannot be scaled by feature.
    """

    node: Node
    axis: int
    column: int | None

    @classmethod
    def of(cls, value: Value) -> Linear | None:
        """Return the linear node that produces the float `value`, else None."""
        node = made_by(value)
        if node is None or not isinstance(value.type, TensorType) or not value.dtype.is_float:
            return None
        if node.op in (ops.Conv, ops.ConvTranspose):
            grouped = node.op is ops.ConvTranspose and node.attr("feature_group_count") > 1
            column = None if grouped else node.attr("kernel_output_feature_dimension")
            return cls(node, node.attr("output_feature_dimension"), column)
        if node.op in (ops.InstanceNorm, ops.GroupNorm):
            return cls(node, node.attr("feature_index"), 0)
        if node.op not in (ops.DotGeneral, ops.DotGeneralBias) or not is_weight(node.operand(1)):
            return None
        free = ops.DotRoles.of(node).rhs_free
        plain = not node.attr("rhs_batching_dimensions") and not node.attr("output_permutation") and len(free) == 1
        return cls(node, value.rank - 1, free[0]) if plain else None

    def with_constants(self, b: Builder, factor: Value, bias: Array | None) -> Value:
        """The node with other constants."""
        op = ops.DotGeneralBias if self.node.op is ops.DotGeneral and bias is not None else self.node.op
        return b(op, self.node.operand(0), factor, *([] if bias is None else [bias]), **self.node.attributes)


def _by_feature(b: Builder, node: Node) -> tuple[Linear, Array, Array | None] | None:
    """Return the linear node under a binary node, the constant per feature, and the bias.

    None for other nodes, for a computed bias, and if the constant is the minuend or dividend.
    """
    found = with_constant(node, dequantized=True)
    linear = Linear.of(found[0]) if found is not None and single_use(found[0], b.graph) else None
    if found is None or linear is None or (found[2] == 0 and node.op in (ops.Sub, ops.Div)):
        return None
    result, bias = linear.node.result, linear.node.optional(2)
    size = result.shape[linear.axis]
    vector = along_axis(found[1], result.rank, linear.axis, size) if isinstance(size, int) else None
    if vector is None or node.result.shape != result.shape or (bias is not None and not bias.is_constant):
        return None
    return linear, vector, None if bias is None else bias.numpy()


@LINEAR.on(ops.Add, ops.Sub)
def bias_by_feature(b: Builder, node: Node) -> Value | None:
    """Add a constant for each feature to the bias."""
    found = _by_feature(b, node)
    if found is None:
        return None
    linear, vector, bias = found
    total = (0 if bias is None else bias) + (vector if node.op is ops.Add else -vector)
    return linear.with_constants(b, linear.node.operand(1), total.astype(vector.dtype))


@LINEAR.on(ops.Mul, ops.Div)
def factor_by_feature(b: Builder, node: Node) -> Value | None:
    """Multiply the constant operand, and the bias, by a constant for each feature."""
    found = _by_feature(b, node)
    if found is None:
        return None
    linear, vector, bias = found
    kernel, divide = linear.node.operand(1), node.op is ops.Div
    if kernel.data is None or linear.column is None or (divide and not vector.all()):
        return None
    factors = (1 / vector if divide else vector).astype(vector.dtype)
    scaled = None if bias is None else (bias * factors).astype(vector.dtype)
    return linear.with_constants(b, constant(kernel.data.scale(factors, linear.column)), scaled)


@LINEAR.on(ops.BatchNormInference)
def batch_norm_as_arithmetic(b: Builder, node: Node) -> Value | None:
    """Decompose a batch normalization whose factors can be fused into a linear node."""
    x, axis = node.operand(0), node.attr("feature_index")
    linear = Linear.of(x) if single_use(x, b.graph) else None
    vectors = [v for v in node.operands[1:] if v is not None and v.is_constant]
    if linear is None or linear.axis != axis or not linear.node.operand(1).is_constant or len(vectors) < 4:
        return None
    scale, bias, mean, variance = (v.numpy().astype(np.float64) for v in vectors)
    factor = scale / np.sqrt(variance + node.attr("epsilon"))
    shape = [-1 if a == axis else 1 for a in range(x.rank)]
    factors, offsets = (v.reshape(shape).astype(x.dtype.numpy) for v in (factor, bias - mean * factor))
    return b(ops.Add, b(ops.Mul, x, factors), offsets)


def window_padding(pad: Node, axes: Sequence[int]) -> Array | None:
    """The amounts before, then after, `axes` of a constant Pad; None if it pads other axes, or crops."""
    amounts = static_ints(pad.operand(1))
    if amounts is None or min(amounts) < 0 or pad.attr("mode") != "constant":
        return None
    pairs = np.asarray(amounts).reshape(-1, 2)
    inside = pairs[list(axes)]
    return inside.T.reshape(-1) if inside.sum() == pairs.sum() else None


@LINEAR.on(ops.Conv)
def pad_into_conv(b: Builder, node: Node) -> Value | None:
    """Fuse a constant pad of zeros on spatial axes into the padding of the convolution."""
    pad = made_by(node.operand(0), ops.Pad)
    added = window_padding(pad, node.attr("input_spatial_dimensions")) if pad is not None else None
    if pad is None or added is None or node.attr("padding") == SAME:
        return None
    if pad.optional(2) is not None and splat_value(pad.operand(2)) != 0:
        return None
    padding = tuple((added + node.attr("padding")).tolist())
    return b(ops.Conv, pad.operand(0), *node.operands[1:], **{**node.attributes, "padding": padding})


@LINEAR.on(ops.DepthToSpace)
def feature_order_into_conv(b: Builder, node: Node) -> Value | None:
    """Convert DepthToSpace from CRD to DCR, the mode of the kernels, by reordering the features."""
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


@LINEAR.on(ops.DotGeneral, ops.DotGeneralBias)
def flatten_into_dot(b: Builder, node: Node) -> Value | None:
    """Contract the axes that a Reshape merged; split the constant matrix likewise."""
    flat, matrix = made_by(node.operand(0), ops.Reshape), node.operand(1)
    lhs_axes, rhs_axes = node.attr("lhs_contracting_dimensions"), node.attr("rhs_contracting_dimensions")
    if flat is None or matrix.data is None or node.attr("lhs_batching_dimensions") or len(rhs_axes) != 1:
        return None
    before, after = flat.operand(0).tensor_type.shape, flat.result.tensor_type.shape
    if before is None or after is None or len(after) != 2 or lhs_axes != (1,) or len(before) < 3:
        return None
    merged = known_sizes(before[1:])
    if before[0] != after[0] or len(merged) < len(before) - 1 or math.prod(merged) != after[1]:
        return None
    (axis,) = rhs_axes
    shape = matrix.data.shape
    weights = constant(matrix.data.reshape((*shape[:axis], *merged, *shape[axis + 1 :])))
    axes = {
        "lhs_contracting_dimensions": tuple(range(1, len(before))),
        "rhs_contracting_dimensions": tuple(range(axis, axis + len(merged))),
    }
    return b(node.op, flat.operand(0), weights, *node.operands[2:], **{**node.attributes, **axes})
