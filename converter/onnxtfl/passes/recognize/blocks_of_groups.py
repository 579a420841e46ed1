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
from onnxtfl.ir.graph import Node, Value, constant
from onnxtfl.ir.types import DType
from onnxtfl.passes.canonical.merged_groups import BLOCK, merged_count, with_zeros
from onnxtfl.rewriting.patterns import Patterns

BLOCKS_OF_GROUPS = Patterns()


@BLOCKS_OF_GROUPS.on(ops.Conv, local=True)
def more_groups(b: Builder, node: Node) -> Value | None:
    """The convolution with the most groups that are merged to those of `node`."""
    kernel, groups = node.operand(1), int(node.attr("feature_group_count"))
    if not kernel.is_constant or kernel.dtype is not DType.FLOAT32 or not kernel.tensor_type.is_static:
        return None
    sides = [node.attr(f"kernel_{side}_feature_dimension") for side in ("output", "input")]
    made, read = kernel.size(sides[0]) // groups, kernel.size(sides[1])
    counts = [
        n
        for n in range(min(made, BLOCK), 1, -1)
        if made % n == read % n == 0 and merged_count(groups * n, read // n, made // n) == n
    ]
    if not 1 < made <= BLOCK or not counts:
        return None
    merged = np.moveaxis(kernel.numpy(), sides, (0, 1))
    blocks = next((found for n in counts if (found := _blocks(merged, groups, n)) is not None), None)
    if blocks is None:
        return None
    more = groups * (read // blocks.shape[1])
    parts = constant(np.ascontiguousarray(np.moveaxis(blocks, (0, 1), sides)))
    return b.remade(node, node.operand(0), parts, *node.operands[2:], feature_group_count=more)[0]


def _blocks(kernel: Array, groups: int, count: int) -> Array | None:
    """The kernel [made, read, ..] of `count` times as many groups; None for other elements, or empty blocks."""
    made, read, *window = kernel.shape
    split = kernel.reshape(groups, count, made // groups // count, count, read // count, *window)
    parts = np.stack([split[:, i, :, i] for i in range(count)], 1)
    blocks = parts.reshape(made, read // count, *window)
    is_filled = parts.any(axis=tuple(range(2, parts.ndim))).all()
    return blocks if is_filled and np.array_equal(with_zeros(blocks, groups * count, count), kernel) else None
