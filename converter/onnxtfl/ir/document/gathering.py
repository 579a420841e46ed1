"""Gather with XLA's dimension numbers."""

from __future__ import annotations

from collections.abc import Sequence

from onnxtfl.ir.builder import Builder
from onnxtfl.ir.dimension_numbers import Starts, gathered
from onnxtfl.ir.document.forms import document_form
from onnxtfl.ir.graph import Value
from onnxtfl.ir.op import INTEGERS, Operand
from onnxtfl.ir.ops.gathering import Gather


@document_form(Gather, Operand("input"), Operand("start_indices", INTEGERS))
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
