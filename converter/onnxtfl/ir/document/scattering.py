"""ScatterND with XLA's dimension numbers and any computation."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from onnxtfl.ir.attributes import Choice
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.computations import COMPUTATIONS, Computation, scattered
from onnxtfl.ir.dimension_numbers import Starts, scattered_windows
from onnxtfl.ir.document.forms import Statement, document_form
from onnxtfl.ir.graph import Node, Value
from onnxtfl.ir.op import BOOLS, INTEGERS, NUMERIC, Operand
from onnxtfl.ir.ops.scattering import ScatterND

_KINDS = {
    "none": Computation.UPDATE,
    "add": Computation.ADD,
    "mul": Computation.MUL,
    "max": Computation.MAX,
    "min": Computation.MIN,
}


def _printed(node: Node) -> Statement | None:
    rank, places = node.result.tensor_type.rank, node.operand(1).tensor_type.shape
    if node.operands[0] is None or rank is None or places is None or not isinstance(places[-1], int):
        return None
    lead, depth = len(places) - 1, places[-1]
    indexed = tuple(range(depth))
    attributes = {
        "computation": _KINDS[node.attr("kind")].name,
        "index_vector_dim": lead,
        "update_window_dims": tuple(range(lead, lead + rank - depth)),
        "inserted_window_dims": indexed,
        "scatter_dims_to_operand_dims": indexed,
        "unique_indices": node.attr("unique_indices"),
    }
    return Statement(node.operands[:3], attributes)


@document_form(
    ScatterND,
    Operand("input", NUMERIC | BOOLS),
    Operand("scatter_indices", INTEGERS),
    Operand("updates", NUMERIC | BOOLS),
    attributes={"computation": Choice(*COMPUTATIONS)},
    printed=_printed,
)
def _scatter(
    b: Builder,
    x: Value,
    indices: Value,
    updates: Value,
    computation: str,
    index_vector_dim: int,
    update_window_dims: Sequence[int],
    inserted_window_dims: Sequence[int],
    scatter_dims_to_operand_dims: Sequence[int],
    input_batching_dims: Sequence[int] = (),
    scatter_indices_batching_dims: Sequence[int] = (),
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
) -> Value:
    """Windows of `updates` (the axes `update_window_dims`) combined with those of `input` at starts that
    `scatter_indices` contains along `index_vector_dim`; they have to be inside.

    Entry i of a vector is the start along axis scatter_dims_to_operand_dims[i], others start at 0. Windows have size 1
    along the axes `inserted_window_dims`, which the updates lack. `computation` is a fold over the updates of an
    element, in order; for ARGMIN and ARGMAX the result is the number of the update with the extreme, from 1 on, or 0 if
    the element itself is the extreme. The batching dims are at the same position in both operands (added from XLA).
    """
    del indices_are_sorted
    found = Computation[computation]
    batching = tuple(zip(input_batching_dims, scatter_indices_batching_dims, strict=True))
    starts = Starts(tuple(scatter_dims_to_operand_dims), index_vector_dim, batching)
    scatter = partial(scattered, b, computation=found, unique=unique_indices)
    return scattered_windows(b, x, indices, updates, starts, update_window_dims, inserted_window_dims, scatter)
