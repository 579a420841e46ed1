"""SpaceToDepth, DepthToSpace, SPACE_TO_BATCH_ND, BATCH_TO_SPACE_ND, Col2Im."""

from __future__ import annotations

from collections.abc import Mapping

from onnxtfl.build.rows import Spelled, row
from onnxtfl.build.runtime_axes import named_factors
from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.graph import Node, Value
from onnxtfl.ir.ops.space_to_depth import from_batch, into_batch
from onnxtfl.ir.reshape import reshape
from onnxtfl.ir.shapes import static_ints
from onnxtfl.rewriting.registry import decompose, expand, lift_tfl


def _ordered(node: Node) -> bool:
    space = tuple(node.attr("space_dims"))
    return len(space) == 2 and space == tuple(sorted(space))


def _ordered_dcr(node: Node) -> bool:
    return _ordered(node) and node.attr("mode") == "DCR"


_NAMES = {"block_size": "blocksize", "mode": "mode"}
_PLAIN: Mapping[str, str | Spelled] = {"block_size": "blocksize", "mode": Spelled("mode", default="DCR")}
row(ops.DepthToSpace, onnx="DepthToSpace", since=(1, 11, 13, 28), attributes=_NAMES, when=_ordered)
row(ops.SpaceToDepth, onnx="SpaceToDepth", since=(1, 13, 28), attributes=_PLAIN, when=_ordered_dcr)
row(ops.DepthToSpace, tfl="DEPTH_TO_SPACE", attributes="block_size", when=_ordered_dcr, lifts=False)
row(ops.SpaceToDepth, tfl="SPACE_TO_DEPTH", attributes="block_size", when=_ordered_dcr, lifts=False)


for _op in (ops.DepthToSpace, ops.SpaceToDepth, ops.SpaceToBatch, ops.BatchToSpace):
    decompose(_op, "ethos-u")(expand)


def _has_images_last(node: Node) -> bool:
    last = node.attr("depth_dim") == 3 and tuple(node.attr("space_dims")) == (1, 2)
    return last and node.operand(0).is_static and node.operand(0).shape[0] != 1


@decompose(ops.DepthToSpace, "gpu", order="axes", when=_has_images_last)
@decompose(ops.SpaceToDepth, "gpu", order="axes", when=_has_images_last)
def _blocks_of_joined_images(b: Builder, node: Node) -> Value:
    """Take the images of a batch for one high image: no block is in two of them."""
    x = node.operand(0)
    joined = reshape(b, x, (1, x.size(0) * x.size(1), *x.shape[2:]))
    return reshape(b, b(node.op, joined, **node.attributes), node.result.shape)


@lift_tfl("DEPTH_TO_SPACE", "SPACE_TO_DEPTH")
def _from_tfl_blocks(b: Builder, node: Node) -> Value:
    op = ops.DepthToSpace if node.op.name == "tfl.DEPTH_TO_SPACE" else ops.SpaceToDepth
    return b(op, node.operand(0), block_size=node.attr("block_size"), mode="DCR", depth_dim=3, space_dims=(1, 2))


@lift_tfl("SPACE_TO_BATCH_ND", "BATCH_TO_SPACE_ND")
def _from_tfl_batch(b: Builder, node: Node) -> Value:
    x, sizes, amounts = (node.operand(i) for i in range(3))
    into, blocks = node.op.name == "tfl.SPACE_TO_BATCH_ND", static_ints(sizes)
    if blocks is not None:
        return b(ops.SpaceToBatch if into else ops.BatchToSpace, x, amounts, blocks=tuple(blocks))
    count = x.rank - 2  # the kernels accept no other number of blocks (space_to_batch_nd.cc)
    amounts = reshape(b, amounts, (count, 2))
    factors, entries = named_factors(b, reshape(b, sizes, (count,)))
    return (into_batch if into else from_batch)(b, x, amounts, entries, factors)


# --- columns ---------------------------------------------------------------------------------------------------------
