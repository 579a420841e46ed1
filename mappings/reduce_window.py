"""Reductions over windows on any axes: each position in the window is a strided slice."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np

from onnxtfl.rules import *

MOST_TAPS = 256
"""Elements of a window up to which each is a slice."""
_END = np.iinfo(np.int32).max
_REDUCTIONS: dict[str, type[Op]] = {
    "ADD": ops.Add,
    "MUL": ops.Mul,
    "MINIMUM": ops.Min,
    "MAXIMUM": ops.Max,
    "ALL": ops.And,
    "ANY": ops.Or,
}


@lift_tfl("REDUCE_WINDOW")
def _reduce_window(b: Builder, node: Node) -> Value:
    found = [static_ints(node.operand(i)) for i in (2, 3, 4)]
    sizes, strides, dilations = ([] if v is None else v for v in found)
    if None in found:
        raise UnsupportedError("a window that is known at run time only")
    op = _REDUCTIONS.get(node.attr("reduce_function"))
    if op is None:
        raise UnsupportedError(f"reduce_function {node.attr('reduce_function')}")
    return _windows(b, op, node.operand(0), node.operand(1), sizes, strides, dilations)


@lift_tfl("STABLEHLO_REDUCE_WINDOW")
def _stablehlo_reduce_window(b: Builder, node: Node) -> Value:
    x, start, rank = node.operand(0), node.operand(1), node.operand(0).rank

    def numbers(name: str) -> list[int]:
        return [int(n) for n in node.attr(name) or ()] or [1] * rank

    for axis, dilation in enumerate(numbers("base_dilations")):
        x = interleaved(b, x, axis, dilation, start)
    padding = np.asarray(node.attr("padding") if node.attr("padding") else [0] * (2 * rank), np.int64).reshape(-1, 2)
    x = b(ops.Pad, x, padding, start)
    sizes, strides, dilations = (numbers(f"window_{name}") for name in ("dimensions", "strides", "dilations"))
    op = combining_op(node.attr("body_subgraph_index"))
    if op not in _REDUCTIONS.values() or op is None:
        raise UnsupportedError("a reduction by another function than sum, product, maximum, minimum")
    return _windows(b, op, x, start, sizes, strides, dilations)


def _windows(
    b: Builder,
    op: type[Op],
    x: Value,
    start: Value,
    sizes: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
) -> Value:
    """`op` over `start` and all elements of each window, each of its places a strided slice."""
    if math.prod(sizes) > MOST_TAPS:
        raise UnsupportedError(f"a reduction over windows of {math.prod(sizes)} elements")
    result = start
    for tap in itertools.product(*(range(n) for n in sizes)):
        first = [t * d for t, d in zip(tap, dilations, strict=True)]
        rest = [(n - 1 - t) * d for n, t, d in zip(sizes, tap, dilations, strict=True)]
        limits = [-r if r else _END for r in rest]
        result = b(op, result, b(ops.Slice, x, first, limits, list(strides)))
    return result


@regions_of("tfl.STABLEHLO_REDUCE_WINDOW")
def _body_as_it_is(node: Node) -> None:
    """The types of the body's inputs are in the file."""
