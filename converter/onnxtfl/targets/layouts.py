"""The axis orders in which kernels accept operands: those that a target prefers, and the forms of a matmul.

An axis order is a permutation: axis i in memory is axis order[i] of the value. Each op declares how it changes when its
operands are permuted (`Op.permuted`); this module decides for which of these changes a kernel exists.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence

from onnxtfl.ir import ops
from onnxtfl.ir.graph import Node
from onnxtfl.ir.op import Op, Permutation, Permuted, attributes_of
from onnxtfl.ir.ops.convolution import is_depthwise
from onnxtfl.ir.permutations import physical_axes, unless_identity
from onnxtfl.ir.types import rank_of

MOST_BATCH_AXES = 3
"""The highest number of batch axes of a matmul for which all their orders are tried."""


def preferred(node: Node, channels_last: bool) -> Permuted | None:
    """The permutation of `node` for channels-last (or channels-first) kernels; None for ops without such kernels."""
    if issubclass(node.op, ops.Convolution):
        return _convolution(node, channels_last)
    orders = _ORDERS.get(node.op)
    order = None if orders is None else orders(node, channels_last)
    return None if order is None else node.op.permuted(node, 0, order)


def has_preference(op: type[Op]) -> bool:
    """Whether `preferred` may return a permutation for nodes of `op`."""
    return op in _ORDERS or issubclass(op, ops.Convolution)


def _convolution(node: Node, channels_last: bool) -> Permuted | None:
    """Input and result in the order batch, spatial, feature (or as in ONNX); the kernel separately."""
    attributes = attributes_of(node)
    batch, feature = attributes["input_batch_dimension"], attributes["input_feature_dimension"]
    spatial = attributes["input_spatial_dimensions"]
    data = node.op.permuted(node, 0, (batch, *spatial, feature) if channels_last else (batch, feature, *spatial))
    kernel = node.op.permuted(node, 1, _kernel_order(node, channels_last))
    if data is None or kernel is None:
        return None
    operands = tuple(a or b for a, b in zip(data.operands, kernel.operands, strict=True))
    return Permuted(operands, data.results, {**data.attributes, **kernel.attributes})


def _kernel_order(node: Node, channels_last: bool) -> Permutation:
    """The axis order of a convolution's filter, which depends on the number of spatial axes and groups."""
    attributes, transposed = attributes_of(node), node.op is ops.ConvTranspose
    inside, out = attributes["kernel_input_feature_dimension"], attributes["kernel_output_feature_dimension"]
    spatial = tuple(attributes["kernel_spatial_dimensions"])
    if not channels_last:
        return (inside, out, *spatial) if transposed else (out, inside, *spatial)
    if len(spatial) == 3:
        return (*spatial, out, inside) if transposed else (*spatial, inside, out)
    return (inside, *spatial, out) if not transposed and is_depthwise(node) else (out, *spatial, inside)


def _windows(node: Node, channels_last: bool) -> Permutation:
    """One axis, the spatial ones in order, then the others; or the spatial ones at the end."""
    spatial = tuple(node.attr("dims"))
    others = [axis for axis in range(node.operand(0).rank) if axis not in spatial]
    return (*others[:1], *spatial, *others[1:]) if channels_last else (*others, *spatial)


def _blocks(node: Node, channels_last: bool) -> Permutation | None:
    """The depth after the spatial axes, or before them."""
    rank = rank_of(node.operand(0).type)
    if rank is None:
        return None
    depth, spatial = node.attr("depth_dim") % rank, tuple(node.attr("space_dims"))
    others = tuple(axis for axis in range(rank) if axis != depth and axis not in spatial)
    return (*others, *spatial, depth) if channels_last else (*others, depth, *spatial)


_ORDERS: dict[type[Op], Callable[[Node, bool], Permutation | None]] = {
    ops.MaxPool: _windows,
    ops.AveragePool: _windows,
    ops.Resize: _windows,
    ops.SpaceToDepth: _blocks,
    ops.DepthToSpace: _blocks,
}
"""The order of the first operand that ops with dimension numbers prefer."""


def has_alternatives(op: type[Op]) -> bool:
    """Whether `alternatives` returns axis orders for nodes of `op`."""
    return op is ops.DotGeneral


def alternatives(node: Node) -> Iterator[Permuted]:
    """All axis orders in which kernels compute a matrix product, the one without flags first; none for other nodes."""
    if not has_alternatives(node.op):
        return
    roles = ops.DotRoles.of(node)
    if roles.is_batch_matmul:
        yield from _batched(node, len(roles.lhs_batch))
    elif not roles.lhs_batch and len(roles.lhs_contract) == 1 and node.operand(1).rank == 2:
        yield from filter(None, [node.op.permuted(node, 1, (1, 0))])


def _batched(node: Node, count: int) -> Iterator[Permuted]:
    """Kernels have a flag that transposes the last two axes of an operand, compute the transposed result if the
    operands are swapped, and accept any order of the batch axes that operands and result share.
    """
    orders = itertools.permutations(range(count)) if count <= MOST_BATCH_AXES else [tuple(range(count))]
    for order in orders:
        for flips in itertools.product((False, True), repeat=3):
            yield _matmul(node, order, flips)


def _matmul(node: Node, order: Sequence[int], flips: Sequence[bool]) -> Permuted:
    """The batch axes in `order`, and the last two axes of lhs, rhs or result swapped."""
    count = len(order)
    lhs, rhs, result = ((*order, *((count + 1, count) if flip else (count, count + 1))) for flip in flips)
    before = node.attr("output_permutation")
    swapped = (bool(before) and before[-1] == count) != flips[2]
    attributes = {
        "lhs_contracting_dimensions": physical_axes(node.attr("lhs_contracting_dimensions"), lhs),
        "rhs_contracting_dimensions": physical_axes(node.attr("rhs_contracting_dimensions"), rhs),
        "output_permutation": (*range(count), count + 1, count) if swapped else (),
    }
    return Permuted((unless_identity(lhs), unless_identity(rhs)), (unless_identity(result),), attributes)
