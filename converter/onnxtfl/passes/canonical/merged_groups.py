"""Groups of few features, several of which are computed as one, for the CPU's kernels: ResNeXt, ShuffleNet.

::

    %y = Conv(%x, %k), 32 groups from 4 features to 4
      ->
    %y = Conv(%x, %m), 16 groups from 8 features to 8; %m has zeros where a feature reads those of the other group

XNNPACK computes blocks of 16 features, or of 8, so that most of a block is unused in small groups. Microseconds in one
thread (x86 with and without AVX-512), merged to groups of up to 4, 8 and 16 features:

==================================  ===================  ===================
groups, input                       with AVX-512         without
==================================  ===================  ===================
32 x 4 to 4, 28 x 28, 3 x 3          495       438  405   301       221  356
32 x 4 to 4, 28 x 28, 1 x 1           87        55   50    93        50   60
32 x 2 to 2, 28 x 28, 3 x 3          305  235  211  194   180  134  102  177
32 x 1 to 2, 28 x 28, 3 x 3          135  107  102   98   139   85   64   88
16 x 16 to 4, 28 x 28, 3 x 3         384       375  373   180       171  315
16 x 6 to 6, 28 x 28, 3 x 3          150            142    84            134
16 x 8 to 8, 28 x 28, 3 x 3          403            387   217            347
int8: 32 x 4 to 4, 28 x 28, 3 x 3    205       102   81   429       213  335
int8: 32 x 2 to 2, 28 x 28, 3 x 3    205  103   51   40   429  213  106  162
int8: 16 x 8 to 8, 28 x 28, 3 x 3    101             81   208            324
==================================  ===================  ===================

Products with zeros are exact for finite elements, as quantized ones are.
"""

from __future__ import annotations

import numpy as np

from onnxtfl.ir import ops
from onnxtfl.ir.assumptions import assume
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.data import Array, ArrayData
from onnxtfl.ir.facts import facts_of
from onnxtfl.ir.graph import Graph, Node, Value, constant
from onnxtfl.ir.quantized import quantization_of, touches_quantized
from onnxtfl.ir.types import DType
from onnxtfl.passes.canonical.growth import Growth, stored_size
from onnxtfl.targets.properties import GROUP_CHANNELS

BLOCK = 8
"""The most features that merged groups make: the smallest block of XNNPACK's kernels."""
MOST_READ = 16
"""The most features that a group reads: with more, the time hardly changes."""
_EIGHT_BITS = ("int8", "uint8")


def merge_groups(graph: Graph, growth: Growth | None = None) -> bool:
    """Merge adjacent groups of each convolution by a constant kernel, as far as constants may grow."""
    growth, changed = growth or Growth(), False
    for node in list(graph.nodes):
        count = _count(node)
        data = node.operand(1).data if count > 1 else None
        if data is not None and growth.take(graph, stored_size(data) * (count - 1)):
            _merge(graph, node, count)
            changed = True
    return changed


def merged_count(groups: int, read: int, made: int) -> int:
    """How many of `groups` from `read` features to `made` are merged to one; 1 if they stay."""
    if (read, made) == (1, 1) or read > MOST_READ:
        return 1
    count = max(n for n in range(1, max(1, BLOCK // made) + 1) if groups % n == 0)
    is_taken = read > 1 or count * read % GROUP_CHANNELS == count * made % GROUP_CHANNELS == 0
    return count if is_taken else 1


def _count(node: Node) -> int:
    """The number of groups of `node` that are merged to one; 1 for other nodes."""
    if node.op is not ops.Conv or node.attr("feature_group_count") == 1 or not has_kernel(node):
        return 1
    kernel, groups = node.operand(1), int(node.attr("feature_group_count"))
    read, made = (kernel.size(node.attr(f"kernel_{side}_feature_dimension")) for side in ("input", "output"))
    return merged_count(groups, read, made // groups)


def has_kernel(node: Node) -> bool:
    """Whether the delegate's kernels of floats or 8 bits compute a convolution by constants."""
    x, kernel = node.operand(0), node.operand(1)
    if not kernel.is_constant or not kernel.is_static or x.dtype is not DType.FLOAT32:
        return False
    if not touches_quantized(node):
        return kernel.dtype is DType.FLOAT32
    found = [quantization_of(v) for v in (x, kernel, node.result)]
    if any(q is None or q.storage not in _EIGHT_BITS or q.block for q in found) or found[1] is None:
        return False
    return found[1].per_tensor or found[1].axis == node.attr("kernel_output_feature_dimension")


def _merge(graph: Graph, node: Node, count: int) -> None:
    x, kernel, groups = node.operand(0), node.operand(1), node.attr("feature_group_count")
    if not facts_of(x).is_finite:
        assume("elements that grouped convolutions read are finite", is_minor=True)
    merged = with_zeros(kernel_of(node), zeros_of(kernel), groups, count)
    operands = (x, with_kernel(node, merged), *node.operands[2:])
    b = Builder(graph, node, maker="merged groups")
    graph.replace(node, b.remade(node, *operands, feature_group_count=groups // count))


def kernel_of(node: Node) -> Array:
    """The stored elements of the kernel, [made, read, ..]."""
    return np.moveaxis(node.operand(1).stored(), _sides(node), (0, 1))


def with_kernel(node: Node, stored: Array) -> Value:
    """The kernel of `node` with other stored elements, [made, read, ..]."""
    ordered = np.ascontiguousarray(np.moveaxis(stored, (0, 1), _sides(node)))
    return constant(ArrayData(ordered), type_=node.operand(1).tensor_type.with_shape(ordered.shape))


def _sides(node: Node) -> list[int]:
    return [node.attr(f"kernel_{side}_feature_dimension") for side in ("output", "input")]


def zeros_of(kernel: Value) -> Array:
    """The stored zeros: one, or one for each feature of the result."""
    quantization = quantization_of(kernel)
    return np.zeros(1) if quantization is None else np.asarray(quantization.zero_points)


def with_zeros(kernel: Array, zeros: Array, groups: int, count: int) -> Array:
    """The kernel [made, read, ..] of `groups` as that of groups with `count` times as many features, by `zeros`."""
    made, read, *window = kernel.shape
    each = made // groups
    merged = np.empty((made, count, read, *window), kernel.dtype)
    merged[:] = zeros.reshape(-1, *(1,) * (merged.ndim - 1))
    shape = (groups // count, count, each)
    merged, parts = merged.reshape(*shape, count, read, *window), kernel.reshape(*shape, read, *window)
    for i in range(count):
        merged[:, i, :, i] = parts[:, i]
    return merged.reshape(made, count * read, *window)
