"""Normalization over groups of features, as exporters write it for opsets without GroupNormalization.

::

    Reshape(InstanceNorm(Reshape(%x: [n, 32, 8, 8]) [n, 4, 512])) [n, 32, 8, 8]    ->    GroupNorm(%x) {num_groups = 4}
"""

from __future__ import annotations

import numpy as np

from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.graph import Node, Value
from onnxtfl.ir.matching import made_by, single_use
from onnxtfl.rewriting.patterns import Patterns

GROUPS = Patterns()


@GROUPS.on(ops.Reshape)
def groups_of_features(b: Builder, node: Node) -> Value | None:
    """Normalize groups of %x itself, whose features are its second axis; constants of groups are those of features."""
    norm = made_by(node.operand(0), ops.InstanceNorm)
    inner = None if norm is None else made_by(norm.operand(0), ops.Reshape)
    if norm is None or inner is None or not single_use(norm.result, b.graph):
        return None
    x, grouped = inner.operand(0), inner.result
    if x.type != node.result.type or x.tensor_type.shape is None or x.rank < 2 or grouped.tensor_type.shape is None:
        return None
    features, count = x.shape[1], grouped.shape[1]
    if x.shape[0] != grouped.shape[0] or not isinstance(features, int) or not isinstance(count, int):
        return None
    vectors = [v.data for v in norm.operands[1:] if v is not None]
    if (norm.attr("batch_index"), norm.attr("feature_index")) != (0, 1) or not count or features % count:
        return None
    each = [np.repeat(data.numpy(), features // count) for data in vectors if data is not None]
    if len(each) < len(vectors):
        return None
    return b(ops.GroupNorm, x, *each, num_groups=count, epsilon=norm.attr("epsilon"), feature_index=1)
