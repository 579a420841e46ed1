"""Order along an axis: Sort."""

from __future__ import annotations

from onnxtfl.ir.builder import Builder
from onnxtfl.ir.formula import by_expansion
from onnxtfl.ir.graph import Value
from onnxtfl.ir.op import ANY, Operand, SharedAxes
from onnxtfl.ir.ops.gathering import GatherElements
from onnxtfl.ir.ops.top_k import TopK
from onnxtfl.ir.reshape import dim_value
from onnxtfl.ir.shapes import normalize_axis


@by_expansion(
    Operand("inputs", ANY, variadic=True),
    results=(Operand("outputs", variadic=True),),
    shared_axes=SharedAxes(None, ("dimension",)),
    discrete=True,
)
def Sort(
    b: Builder, *inputs: Value, dimension: int = -1, descending: bool = False, is_stable: bool = True
) -> list[Value]:
    """All operands sorted along `dimension` as the first one is: its TopK, and the others gathered the same way.

    Source: neutral-ops 3.126.
    """
    x, axis = inputs[0], normalize_axis(dimension, inputs[0].rank)
    count = dim_value(b, x.shape[axis], x)
    values, order = b.many(TopK, x, count, axis=axis, largest=descending, sorted=True)
    return [values, *(b(GatherElements, v, order, axis=axis) for v in inputs[1:])]
