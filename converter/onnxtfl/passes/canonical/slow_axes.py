"""Ops along an axis for which the CPU's kernels are slow, along another axis or in another direction.

::

    %s = Softmax(%x: [1, h, w, 3]) {axis = 3}               %t = Transpose(%x) [1, 3, h, w]
    %y = Transpose(%s) {permutation = [0, 3, 1, 2]}   ->    %e = Exp(%t - Reduce(%t) {axes = [1], kind = "max"})
                                                            %y = %e / Reduce(%e) {axes = [1], kind = "sum"}

    %y = ArgMax(%x: [1, 80, n]) {axis = 1}            ->    %y = ArgMax(Transpose(%x) [1, n, 80]) {axis = 2}

    %v, %i = TopK(%x: [n, 80]) {k = 1}                ->    %v = Reduce(%x) {kind = "max"}, %i = ArgMax(%x)

    %y = Slice(%x: [8, 56, 56]) [7:-9:-1, ...]        ->    %y = Reverse(%x) {dimensions = [0]}

The kernel of Softmax computes one row of the last axis at a time, however short it is; that of ARG_MAX reads other axes
in strides; TOPK_V2 keeps a heap for each row; STRIDED_SLICE copies element by element where a stride is not 1.
Microseconds, one thread, x86:

=====================================  ======  ====
                                       before   now
=====================================  ======  ====
Softmax, 96 x 96 positions, 2 classes     585    78
8 classes                                 737   133
21 classes                                863   338
256 x 256, 21 classes                    7119  4050
64 x 64, 32 classes                       190   195
ArgMax, 80 x 8400                        4180   485
21 x 96 x 96                             1174   192
TopK of 1, 8400 x 80                     2571   475
16 x 1000                                  28    15
reversed, 32 x 56 x 56                    460     8
=====================================  ======  ====
"""

from __future__ import annotations

import numpy as np

from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.dims import size_or
from onnxtfl.ir.formula import Term
from onnxtfl.ir.graph import Graph, Node, Value
from onnxtfl.ir.matching import made_by, single_use
from onnxtfl.ir.ops.slicing import positions_read
from onnxtfl.ir.reshape import reshape, transposed
from onnxtfl.ir.shapes import normalize_axis, static_ints
from onnxtfl.ir.types import DType
from onnxtfl.rewriting.patterns import Patterns

MOST_CLASSES = 24
"""With more, exponentials and quotients of the whole tensor take the time that short rows take."""
SOFTMAX_ROWS = Patterns()
SLOW_AXES = Patterns()


@SOFTMAX_ROWS.on(ops.Transpose)
def softmax_across_rows(b: Builder, node: Node) -> Value | None:
    """Transpose before a Softmax of few classes in place of after it."""
    read, order = node.operand(0), node.attr("permutation")
    softmax = _softmax(b.graph, node)
    if softmax is None:
        return None
    moved = Term(b, transposed(b, reshape(b, softmax.operand(0), read.shape, read), order))
    axis = order.index(read.rank - 1)
    powers = (moved - moved.reduce("max", [axis])).exp()
    return (powers / powers.reduce("sum", [axis])).value


def _softmax(graph: Graph, transpose: Node) -> Node | None:
    """The Softmax along the last axis, which `transpose` then moves to another place; a reshape may be between them."""
    value, order = transpose.operand(0), transpose.attr("permutation")
    shape, last = value.tensor_type.shape, len(order) - 1
    if not shape or order[last] == last or not single_use(value, graph):
        return None
    between = made_by(value, ops.Reshape)
    if between is not None:
        value = between.operand(0)
        if (value.tensor_type.shape or (None,))[-1] != shape[last]:
            return None
    softmax = made_by(value, ops.Softmax) if single_use(value, graph) else None
    is_along_last = softmax is not None and softmax.attr("axis") in (-1, value.rank - 1)
    is_short = value.dtype is DType.FLOAT32 and 0 < size_or(shape[last], 0) <= MOST_CLASSES
    return softmax if is_along_last and is_short else None


@SLOW_AXES.on(ops.ArgMax, ops.ArgMin, quantized=True)
def arg_along_last_axis(b: Builder, node: Node) -> Value | None:
    """Find the positions of extremes along the last axis."""
    x = node.operand(0)
    last, axis = x.rank - 1, normalize_axis(node.attr("axis"), x.rank)
    if axis == last or not x.is_static or node.attr("keepdims"):
        return None
    order = (*(a for a in range(x.rank) if a != axis), axis)
    return b.remade(node, transposed(b, x, order), axis=last)[0]


@SLOW_AXES.on(ops.TopK)
def top_one(b: Builder, node: Node) -> list[Value] | None:
    """Find one largest element of each row by maximum and ArgMax; both take the first of equal ones."""
    x, axis = node.operand(0), normalize_axis(node.attr("axis"), node.operand(0).rank)
    if static_ints(node.operand(1)) != [1] or not node.attr("largest") or x.dtype is not DType.FLOAT32:
        return None
    if not x.is_static or x.size(axis) == 0:
        return None
    index = b(ops.ArgMax, x, axis=axis, keepdims=False, dtype=node.attr("dtype"))
    return [b(ops.Reduce, x, [axis], kind="max", keepdims=True), reshape(b, index, node.results[1].shape)]


@SLOW_AXES.on(ops.Slice)
def reversed_slice(b: Builder, node: Node) -> Value | None:
    """Slice forward, then reverse."""
    read = positions_read(node)
    if read is None or not all(read) or min((positions.step for positions in read), default=1) != -1:
        return None
    forward = [positions[::-1] if positions.step == -1 else positions for positions in read]
    bounds = np.asarray([(positions[0], positions[-1] + 1, positions.step) for positions in forward], np.int64).T
    x = node.operand(0)
    if any(len(positions) != size for positions, size in zip(forward, x.shape, strict=True)):
        x = b(ops.Slice, x, *bounds)
    for axis, positions in enumerate(read):
        if positions.step == -1 and len(positions) > 1:
            x = b(ops.Reverse, x, dimensions=(axis,))
    return x
