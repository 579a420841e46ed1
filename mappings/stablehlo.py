"""The StableHLO ops that LiteRT has kernels for, and its own window reduction.

TFLite: STABLEHLO_ADD STABLEHLO_MULTIPLY STABLEHLO_MAXIMUM STABLEHLO_MINIMUM STABLEHLO_AND STABLEHLO_SHIFT_LEFT
STABLEHLO_PAD STABLEHLO_REDUCE_WINDOW REDUCE_WINDOW.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np

from onnxtfl.errors import UnsupportedError
from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.graph import Graph, Node, Value
from onnxtfl.ir.op import Op
from onnxtfl.ir.shapes import static_ints
from onnxtfl.rules import lift_tfl, regions_of, reshape

MOST_TAPS = 256
"""Elements of a window up to which each is a slice."""
_END = np.iinfo(np.int32).max
_BINARY: dict[str, type[Op]] = {
    "STABLEHLO_ADD": ops.Add,
    "STABLEHLO_MULTIPLY": ops.Mul,
    "STABLEHLO_MAXIMUM": ops.Max,
    "STABLEHLO_MINIMUM": ops.Min,
    "STABLEHLO_AND": ops.And,
}
_REDUCTIONS: dict[str, type[Op]] = {
    "ADD": ops.Add,
    "MUL": ops.Mul,
    "MINIMUM": ops.Min,
    "MAXIMUM": ops.Max,
    "ALL": ops.And,
    "ANY": ops.Or,
}


@lift_tfl(*_BINARY)
def _binary(b: Builder, node: Node) -> Value:
    return b(_BINARY[node.op.name.partition(".")[2]], node.operand(0), node.operand(1))


@lift_tfl("STABLEHLO_SHIFT_LEFT")
def _shift_left(b: Builder, node: Node) -> Value:
    return b(ops.ShiftLeft, node.operand(0), node.operand(1))


@lift_tfl("STABLEHLO_PAD")
def _pad(b: Builder, node: Node) -> Value:
    """Room between the elements, then at the ends; negative amounts cut off."""
    x, value = node.operand(0), node.operand(1)
    for axis, gap in enumerate(node.attr("interior_padding")):
        x = spaced(b, x, axis, int(gap), value)
    amounts = np.stack([node.attr("edge_padding_low"), node.attr("edge_padding_high")], axis=1)
    return b(ops.Pad, x, amounts.astype(np.int64), value)


def spaced(b: Builder, x: Value, axis: int, gap: int, value: Value) -> Value:
    """`gap` times `value` between each two elements along `axis`."""
    if gap == 0 or x.shape[axis] == 0:
        return x
    shape = x.shape
    amounts = np.zeros((x.rank + 1, 2), np.int64)
    amounts[axis + 1, 1] = gap
    apart = b(ops.Pad, reshape(b, x, (*shape[: axis + 1], 1, *shape[axis + 1 :])), amounts, value)
    joined = reshape(b, apart, (*shape[:axis], shape[axis] * (gap + 1), *shape[axis + 1 :]))
    limits = [_END] * x.rank
    limits[axis] = -gap
    return b(ops.Slice, joined, [0] * x.rank, limits, [1] * x.rank)


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
        x = spaced(b, x, axis, dilation - 1, start)
    padding = np.asarray(node.attr("padding") if node.attr("padding") else [0] * (2 * rank), np.int64).reshape(-1, 2)
    x = b(ops.Pad, x, padding, start)
    sizes, strides, dilations = (numbers(f"window_{name}") for name in ("dimensions", "strides", "dilations"))
    op = joining_op(node.attr("body_subgraph_index"))
    if op not in _REDUCTIONS.values() or op is None:
        raise UnsupportedError("a reduction by another function than sum, product, maximum, minimum")
    return _windows(b, op, x, start, sizes, strides, dilations)


def joining_op(body: object) -> type[Op] | None:
    """The one binary op over both inputs that a (lifted) body is; None for other bodies."""
    nodes = list(body.nodes) if isinstance(body, Graph) else []
    if len(nodes) != 1 or not isinstance(body, Graph) or set(nodes[0].operands) != set(body.inputs):
        return None
    return nodes[0].op


@regions_of("tfl.STABLEHLO_REDUCE_WINDOW")
@regions_of("tfl.STABLEHLO_SCATTER")
def _body_as_it_is(node: Node) -> None:
    """The types of the body's inputs stand in the file."""


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
