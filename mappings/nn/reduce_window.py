"""Reductions over windows along any axes."""

from __future__ import annotations

import numpy as np

from onnxtfl.build.stablehlo import body_as_it_is, combining_op, int_list
from onnxtfl.errors import UnsupportedError
from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.computations import reduced_by_graph
from onnxtfl.ir.formula import Term
from onnxtfl.ir.graph import Node, Value
from onnxtfl.ir.reshape import reshape
from onnxtfl.ir.shapes import static_ints
from onnxtfl.ir.spatial import Window
from onnxtfl.ir.types import DType
from onnxtfl.rewriting.registry import lift_tfl, regions_of

MOST_TAPS = 256
"""The maximum of window elements, each of which becomes a slice."""
_KINDS = {"ADD": "sum", "MUL": "prod", "MINIMUM": "min", "MAXIMUM": "max", "ALL": "all", "ANY": "any"}
_OF_BOOLS = {"sum": "any", "prod": "all", "max": "any", "min": "all"}
"""The bool ops that C's arithmetic is; nonzero is true (LiteRT's stablehlo_reduce_window.cc)."""


@lift_tfl("REDUCE_WINDOW")
def _reduce_window(b: Builder, node: Node) -> Value:
    found = [static_ints(node.operand(i)) for i in (2, 3, 4)]
    sizes, strides, dilations = found
    if sizes is None or strides is None or dilations is None:
        raise UnsupportedError("a window known only at run time", code="E-SHAPE-002")
    kind = _KINDS.get(node.attr("reduce_function"))
    if kind is None:
        raise UnsupportedError(f"reduce_function {node.attr('reduce_function')}")
    return _reduced(b, node.operand(0), node.operand(1), kind, Window.filled(sizes, strides, dilations, ()))


@lift_tfl("STABLEHLO_REDUCE_WINDOW")
def _stablehlo_reduce_window(b: Builder, node: Node) -> list[Value]:
    """Reduce windows of one operand by ReduceWindow if the body is one op, else each window by pairs of elements."""
    count, rank, body = len(node.operands) // 2, node.operand(0).rank, node.attr("body_subgraph_index")
    starts = [reshape(b, node.operand(count + i), ()) for i in range(count)]
    gaps = tuple(dilation - 1 for dilation in int_list(node, "base_dilations") or [1] * rank)
    padding = np.asarray(int_list(node, "padding") or [0] * (2 * rank)).reshape(-1, 2)
    dilated = [b(ops.InteriorPad, node.operand(i), starts[i], interior_padding=gaps) for i in range(count)]
    operands = [b(ops.Pad, x, padding, start) for x, start in zip(dilated, starts, strict=True)]
    names = ("window_dimensions", "window_strides", "window_dilations")
    sizes, strides, dilations = (int_list(node, name) for name in names)
    window = Window.filled(sizes or [1] * rank, strides, dilations, ())
    join = combining_op(body)
    if count == 1 and join is not None and join.reduction:
        return [_reduced(b, operands[0], starts[0], join.reduction, window)]
    stacks = [ops.stacked_windows(b, x, window, start) for x, start in zip(operands, starts, strict=True)]
    return reduced_by_graph(b, stacks, starts, body, [rank])


def _reduced(b: Builder, x: Value, start: Value, kind: str, window: Window) -> Value:
    if sum(window.shape) > MOST_TAPS:
        raise UnsupportedError(f"a reduction over windows of {list(window.shape)}")
    attributes = ops.reduce_window_attributes(window)
    if x.dtype is DType.BOOL:
        kind = _OF_BOOLS.get(kind, kind)
    elif kind in ("all", "any"):
        nonzero = (Term(b, v).differs(0).value for v in (x, start))
        return b(ops.Convert, b(ops.ReduceWindow, *nonzero, kind=kind, **attributes), dtype=x.dtype)
    return b(ops.ReduceWindow, x, start, kind=kind, **attributes)


regions_of("tfl.STABLEHLO_REDUCE_WINDOW")(body_as_it_is)
