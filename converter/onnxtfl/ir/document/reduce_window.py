"""ReduceWindow by any computation."""

from __future__ import annotations

from collections.abc import Sequence

from onnxtfl.ir.builder import Builder
from onnxtfl.ir.computations import Computation, reduced_by_graph, reduced_together
from onnxtfl.ir.document.forms import Statement, document_form
from onnxtfl.ir.document.reductions import ComputationOrGraph, split_operands
from onnxtfl.ir.document.windows import AUTO_PAD, resolved
from onnxtfl.ir.graph import Graph, Node, Value
from onnxtfl.ir.op import BOOLS, NUMERIC, Operand
from onnxtfl.ir.ops.padding import InteriorPad
from onnxtfl.ir.ops.reduce_window import ReduceWindow, reduce_window_attributes, stacked_windows
from onnxtfl.ir.spatial import Window
from onnxtfl.ir.window_padding import missing, same_amounts, with_amounts

_BY_AXIS = {Computation.ADD: "sum", Computation.MUL: "prod", Computation.MIN: "min", Computation.MAX: "max"}
"""Computations that are done axis by axis."""


def _printed(node: Node) -> Statement | None:
    computation = next((c for c, kind in _BY_AXIS.items() if kind == node.attr("kind")), None)
    if computation is None:
        return None
    others = {name: value for name, value in node.attributes.items() if name != "kind"}
    return Statement(node.operands, {**others, "computation": computation.name})


@document_form(
    ReduceWindow,
    Operand("operands", NUMERIC | BOOLS, variadic=True),
    attributes={"computation": ComputationOrGraph(), "auto_pad": AUTO_PAD},
    results=None,
    printed=_printed,
)
def _reduce_window(
    b: Builder,
    *operands: Value,
    computation: str | Graph,
    window_dimensions: Sequence[int],
    window_strides: Sequence[int] = (),
    base_dilations: Sequence[int] = (),
    window_dilations: Sequence[int] = (),
    auto_pad: str = "NOTSET",
    ceil_mode: bool = False,
    padding: Sequence[int] = (),
) -> list[Value]:
    """Each window of the inputs reduced as by Reduce, whose operands and computations are the same.

    Padding, and the d - 1 elements that a base dilation d inserts between two, have the initial value. `auto_pad` and
    `ceil_mode` as for AveragePool.
    """
    found = None if isinstance(computation, Graph) else Computation[computation]
    inputs, starts = split_operands(b, operands, found)
    window = Window.filled(window_dimensions, window_strides, window_dilations, padding)
    spread = inputs
    if any(d > 1 for d in base_dilations):
        gaps = tuple(d - 1 for d in base_dilations)
        spread = [b(InteriorPad, x, s, interior_padding=gaps) for x, s in zip(inputs, starts, strict=True)]
    axes = range(window.rank)
    padded = resolved(b, spread[0], axes, window, auto_pad, ceil_mode)
    if padded.window.is_same:
        padded = with_amounts(window, axes, same_amounts(missing(b, spread[0], axes, window)))
    window = padded.window
    spread = [padded.operand(b, x, start) for x, start in zip(spread, starts, strict=True)]
    if len(inputs) == 1 and found in _BY_AXIS:
        return [b(ReduceWindow, spread[0], starts[0], kind=_BY_AXIS[found], **reduce_window_attributes(window))]
    stacks = [stacked_windows(b, x, window, start) for x, start in zip(spread, starts, strict=True)]
    last = [stacks[0].rank - 1]
    if isinstance(computation, Graph):
        return reduced_by_graph(b, stacks, starts, computation, last)
    return reduced_together(b, stacks, starts, last, Computation[computation])
