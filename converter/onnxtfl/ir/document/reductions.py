"""Reduce by any computation, from initial values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from onnxtfl.ir.attributes import Choice
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.computations import COMPUTATIONS, Computation, neutral_element, reduced_by_graph, reduced_together
from onnxtfl.ir.document.forms import Statement, document_form
from onnxtfl.ir.graph import Graph, Node, Value
from onnxtfl.ir.op import BOOLS, NUMERIC, Operand
from onnxtfl.ir.ops.reductions import Reduce, reduced_axes
from onnxtfl.ir.reshape import reshape
from onnxtfl.ir.shapes import check_agree, normalize_axes
from onnxtfl.ir.types import DType

MEAN = "mean".upper()
_COMPUTED = {"sum": Computation.ADD, "prod": Computation.MUL, "max": Computation.MAX, "min": Computation.MIN}
_OF_BOOLS = {"any": Computation.OR, "all": Computation.AND}
_KINDS = {computation: kind for kind, computation in (_COMPUTED | _OF_BOOLS).items()}


class ComputationOrGraph(Choice):
    """The name of a computation, or a graph from two elements of each operand to one of each."""

    def __init__(self, *others: str) -> None:
        super().__init__(*COMPUTATIONS, *others)

    def item(self, name: str, value: Any) -> Any:
        return value if isinstance(value, Graph) else super().item(name, value)


def split_operands(
    b: Builder, operands: Sequence[Value], computation: Computation | None
) -> tuple[list[Value], list[Value]]:
    """The inputs, of one shape, and the initial value of each, a scalar: of one input by default the neutral element.

    ValueError for any other number of operands.
    """
    if len(operands) == 1 and computation is not None:
        return list(operands), [neutral_element(b, operands[0], computation)]
    count, odd = divmod(len(operands), 2)
    if odd or not count:
        raise ValueError(f"{len(operands)} operands: as many initial values as inputs are expected")
    for x in operands[:count]:
        check_agree(x.shape, operands[0].shape, "the shape of an input")
    return list(operands[:count]), [reshape(b, start, ()) for start in operands[count:]]


def _printed(node: Node) -> Statement | None:
    name, axes = node.attr("kind"), reduced_axes(node)
    computation = (_COMPUTED | _OF_BOOLS).get(name)
    if node.attr("keepdims") or axes is None or not (computation or name == "mean"):
        return None
    attributes = {"dimensions": axes, "computation": computation.name if computation else MEAN}
    return Statement(node.operands[:1], attributes)


@document_form(
    Reduce,
    Operand("operands", NUMERIC | BOOLS, variadic=True),
    attributes={"computation": ComputationOrGraph(MEAN)},
    results=None,
    printed=_printed,
)
def _reduce(
    b: Builder, *operands: Value, dimensions: Sequence[int], computation: str | Graph, type: str = ""
) -> list[Value]:
    """The fold of the elements along `dimensions` by a computation, which begins with the initial value.

    `operands`: the inputs, then the initial value of each (of one input it may be absent: the neutral element). Of
    several inputs, MIN, MAX, ARGMIN and ARGMAX select the elements at the position of the first extreme of the first
    input, or the initial values if that is not beyond the first of these. `computation` may be a graph from two
    elements of each input to one of each. ARGMIN and ARGMAX of one input are positions, as elements of its type; MEAN
    has no initial value. `type` has no meaning.
    """
    del type
    axes = normalize_axes(dimensions, operands[0].rank)
    if isinstance(computation, Graph):
        inputs, starts = split_operands(b, operands, None)
        return reduced_by_graph(b, inputs, starts, computation, axes)
    if computation == MEAN:
        return [b(Reduce, operands[0], list(axes), kind="mean")]
    found = Computation[computation]
    inputs, starts = split_operands(b, operands, found)
    kind = _KINDS.get(found)
    if len(operands) == 1 and kind and (kind in ("any", "all")) is (inputs[0].dtype is DType.BOOL):
        return [b(Reduce, inputs[0], list(axes), kind=kind)]
    return reduced_together(b, inputs, starts, axes, found)
