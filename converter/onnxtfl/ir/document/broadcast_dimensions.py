"""The form of binary ops with `broadcast_dimensions`."""

from __future__ import annotations

from collections.abc import Sequence

from onnxtfl.ir.builder import Builder
from onnxtfl.ir.dims import Dim
from onnxtfl.ir.document.forms import document_form
from onnxtfl.ir.graph import Value
from onnxtfl.ir.op import Op, Operand
from onnxtfl.ir.reshape import reshape


def declare_broadcast(op: type[Op]) -> None:
    """Declare the form of a binary op."""

    @document_form(op, Operand("lhs"), Operand("rhs"))
    def broadcast(b: Builder, lhs: Value, rhs: Value, broadcast_dimensions: Sequence[int]) -> Value:
        """The operand of lower rank is broadcast: its axis i is axis broadcast_dimensions[i] of the result."""
        if lhs.rank < rhs.rank:
            return b(op, _spread(b, lhs, rhs.rank, broadcast_dimensions), rhs)
        return b(op, lhs, _spread(b, rhs, lhs.rank, broadcast_dimensions))


def _spread(b: Builder, x: Value, rank: int, places: Sequence[int]) -> Value:
    """`x` with axis i at places[i] of `rank` axes, the others of size 1."""
    if list(places) != sorted(set(places)) or len(places) != x.rank or not set(places) <= set(range(rank)):
        raise ValueError(f"broadcast_dimensions {list(places)} of rank {x.rank} in rank {rank}")
    dims: list[Dim] = [1] * rank
    for place, size in zip(places, x.shape, strict=True):
        dims[place] = size
    return reshape(b, x, dims)
