"""Gather with XLA's dimension numbers."""

from __future__ import annotations

from collections.abc import Sequence

from onnxtfl.ir.builder import Builder
from onnxtfl.ir.dimension_numbers import Starts, gathered
from onnxtfl.ir.dims import is_static
from onnxtfl.ir.document.forms import Statement, document_form
from onnxtfl.ir.graph import Node, Value
from onnxtfl.ir.op import INTEGERS, Operand
from onnxtfl.ir.ops.gathering import Gather


def _printed(node: Node) -> Statement | None:
    x, indices, batch = node.operand(0), node.operand(1), node.attr("batch_dims")
    shape, count = x.tensor_type.shape, indices.tensor_type.rank
    if shape is None or count is None or not is_static(shape):
        return None
    axis = node.attr("axis") % len(shape)
    sizes = [1 if a == axis or a < batch else d for a, d in enumerate(shape)]
    offsets = (*range(batch, axis), *range(axis + count - batch, len(shape) - 1 + count - batch))
    numbers = {"start_index_map": (axis,), "collapsed_slice_dims": (axis,), "offset_dims": offsets}
    batching = dict.fromkeys(("operand_batching_dims", "start_indices_batching_dims"), tuple(range(batch)))
    attributes = {**numbers, "index_vector_dim": count, "slice_sizes": tuple(sizes), **(batching if batch else {})}
    return Statement(node.operands, attributes)


@document_form(Gather, Operand("input"), Operand("start_indices", INTEGERS), printed=_printed)
def _gather(
    b: Builder,
    x: Value,
    indices: Value,
    index_vector_dim: int,
    start_index_map: Sequence[int],
    collapsed_slice_dims: Sequence[int],
    offset_dims: Sequence[int],
    slice_sizes: Sequence[int],
    operand_batching_dims: Sequence[int] = (),
    start_indices_batching_dims: Sequence[int] = (),
    indices_are_sorted: bool = False,
) -> Value:
    """Windows of `slice_sizes` at starts that `start_indices` contains along `index_vector_dim`.

    Entry i of a vector is the start along axis start_index_map[i], others start at 0; starts are clamped so that
    windows fit. Windows drop the axes `collapsed_slice_dims`; the others are the axes `offset_dims` of the result. The
    batching dims are at the same position in both operands (added from XLA). `indices_are_sorted` has no effect.
    """
    del indices_are_sorted
    batching = tuple(zip(operand_batching_dims, start_indices_batching_dims, strict=True))
    starts = Starts(tuple(start_index_map), index_vector_dim, batching)
    return gathered(b, x, indices, starts, slice_sizes, collapsed_slice_dims, offset_dims)
