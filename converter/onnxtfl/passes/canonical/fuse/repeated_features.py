"""A linear op on features that repeat along other axes multiplies each of them once.

::

    Conv(Concatenate(x, BroadcastTo(g)), w)    ->  Add(Conv(x, w[x]), Conv(g, w[g]))    kernels of size 1
    DotGeneral likewise

Found where global features are concatenated to those of each point (PointNet) or pixel (image pooling in DeepLab's
ASPP).
"""

from __future__ import annotations

import itertools

import numpy as np

from onnxtfl.ir import ops
from onnxtfl.ir.attributes import SAME
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.data import Array
from onnxtfl.ir.dims import is_static
from onnxtfl.ir.graph import Node, Value, constant
from onnxtfl.ir.matching import made_by, repeated, single_use
from onnxtfl.ir.reshape import concatenated
from onnxtfl.rewriting.patterns import Patterns

REPEATED = Patterns()
_LEAST = 8
"""The fewest repeated features; for fewer, the additional sum costs as much as the saved products."""


@REPEATED.on(ops.Conv, ops.DotGeneral, ops.DotGeneralBias)
def repeated_features(b: Builder, node: Node) -> Value | None:
    """Add the product with the features that repeat to that with the others."""
    joined = made_by(node.operand(0), ops.Concatenate)
    if joined is None or not any(map(repeated, joined.operands)):
        return None
    if not single_use(joined.result, b.graph) or not node.operand(1).is_constant:
        return None
    axes = _feature_axes(node)
    if axes is None:
        return None
    of_x, of_kernel = axes
    parts = joined.present_operands
    sizes = [part.shape[of_x] for part in parts]
    if joined.attr("axis") % joined.result.rank != of_x or not is_static(sizes):
        return None
    sources = [_source(part, of_x) for part in parts]
    few = sum(size for size, source in zip(sizes, sources, strict=True) if source is not None) < _LEAST
    if few or None not in sources or len({s.shape[:of_x] + s.shape[of_x + 1 :] for s in sources if s is not None}) != 1:
        return None
    kernels = np.split(node.operand(1).numpy(), list(itertools.accumulate(sizes))[:-1], of_kernel)
    paired = list(zip(parts, sources, kernels, strict=True))
    whole = [(part, kernel) for part, source, kernel in paired if source is None]
    once = [(source, kernel) for _, source, kernel in paired if source is not None]
    plain = ops.DotGeneral if node.op is ops.DotGeneralBias else node.op
    attributes = node.attributes
    return b(
        ops.Add,
        b(plain, *_joined(b, whole, axes), **attributes),
        b(node.op, *_joined(b, once, axes), *node.operands[2:], **attributes),
    )


def _feature_axes(node: Node) -> tuple[int, int] | None:
    """The axis of features of the first operand and of the kernel; None if positions are not independent."""
    if node.op is ops.Conv:
        places = node.attr("kernel_spatial_dimensions")
        is_point = all(node.operand(1).shape[axis] == 1 for axis in places) and set(node.attr("window_strides")) <= {1}
        if not is_point or node.attr("feature_group_count") != 1 or not _is_unpadded(node):
            return None
        return node.attr("input_feature_dimension"), node.attr("kernel_input_feature_dimension")
    roles = ops.DotRoles.of(node)
    if roles.lhs_batch or len(roles.lhs_contract) != 1 or node.attr("output_permutation"):
        return None
    return roles.lhs_contract[0], roles.rhs_contract[0]


def _is_unpadded(node: Node) -> bool:
    padding = node.attr("padding")
    return padding == SAME or not any(padding or ())


def _source(part: Value, of_x: int) -> Value | None:
    """The value that `part` repeats along axes other than that of features; None if it repeats none."""
    found = repeated(part)
    if found is None or found.tensor_type.rank != part.rank or found.shape[of_x] != part.shape[of_x]:
        return None
    return found if found.shape != part.shape else None


def _joined(b: Builder, pairs: list[tuple[Value, Array]], axes: tuple[int, int]) -> tuple[Value, Value]:
    """The features, and their kernels, as one operand each."""
    features, kernels = [x for x, _ in pairs], [kernel for _, kernel in pairs]
    x = concatenated(b, features, axes[0])
    return x, constant(np.concatenate(kernels, axes[1]))
