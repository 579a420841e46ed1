"""Groups of convolutions whose kernels have zeros but in blocks, which are more groups (`canonical.merged_groups`).

::

    %y = Conv(%x, %m), 16 groups from 8 features to 8; %m has zeros where a feature reads those of the other half
      ->
    %y = Conv(%x, %k), 32 groups from 4 features to 4
"""

from __future__ import annotations

import numpy as np

from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.data import Array
from onnxtfl.ir.graph import Node, Value
from onnxtfl.passes.canonical.merged_groups import (
    BLOCK,
    has_kernel,
    kernel_of,
    merged_count,
    with_kernel,
    with_zeros,
    zeros_of,
)
from onnxtfl.rewriting.patterns import Patterns

BLOCKS_OF_GROUPS = Patterns()


@BLOCKS_OF_GROUPS.on(ops.Conv, quantized=True)
def more_groups(b: Builder, node: Node) -> Value | None:
    """The convolution with the most groups that are merged to those of `node`."""
    kernel, groups = node.operand(1), int(node.attr("feature_group_count"))
    if not has_kernel(node):
        return None
    made, read = (kernel.size(node.attr(f"kernel_{side}_feature_dimension")) for side in ("output", "input"))
    made //= groups
    counts = [
        n
        for n in range(min(made, BLOCK), 1, -1)
        if made % n == read % n == 0 and merged_count(groups * n, read // n, made // n) == n
    ]
    if made > BLOCK or not counts:
        return None
    stored, zeros = kernel_of(node), zeros_of(kernel)
    blocks = next((found for n in counts if (found := _blocks(stored, zeros, groups, n)) is not None), None)
    if blocks is None:
        return None
    operands = (node.operand(0), with_kernel(node, blocks), *node.operands[2:])
    return b.remade(node, *operands, feature_group_count=groups * read // blocks.shape[1])[0]


def _blocks(kernel: Array, zeros: Array, groups: int, count: int) -> Array | None:
    """The kernel [made, read, ..] of `count` times as many groups; None for other elements, or empty blocks."""
    made, read, *window = kernel.shape
    split = kernel.reshape(groups, count, made // groups // count, count, read // count, *window)
    parts = np.stack([split[:, i, :, i] for i in range(count)], 1)
    blocks = parts.reshape(made, read // count, *window)
    used = (blocks != zeros.reshape(-1, *(1,) * (blocks.ndim - 1))).reshape(groups * count, -1)
    is_filled = used.any(axis=1).all()
    return blocks if is_filled and np.array_equal(with_zeros(blocks, zeros, groups * count, count), kernel) else None
