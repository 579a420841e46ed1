"""Softmax over few classes, as at the end of segmentation models, for the CPU's kernels: after a transpose.

::

    %s = Softmax(%x: [1, h, w, 3]) {axis = 3}               %t = Transpose(%x) [1, 3, h, w]
    %y = Transpose(%s) {permutation = [0, 3, 1, 2]}   ->    %e = Exp(%t - Reduce(%t) {axes = [1], kind = "max"})
                                                            %y = %e / Reduce(%e) {axes = [1], kind = "sum"}

The kernel of Softmax computes one row of the last axis at a time, however short it is. Microseconds in XNNPACK, one
thread (x86 with AVX-512), of a convolution, the Softmax and the transpose:

=======================  ======  =================
positions, classes       kernel  after a transpose
=======================  ======  =================
96 x 96, 2                  585                 78
96 x 96, 8                  737                133
96 x 96, 21                 863                338
256 x 256, 21              7119               4050
64 x 64, 32                 190                195
48 x 48, 64                 158                210
=======================  ======  =================
"""

from __future__ import annotations

from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.dims import size_or
from onnxtfl.ir.formula import Term
from onnxtfl.ir.graph import Graph, Node, Value
from onnxtfl.ir.matching import made_by, single_use
from onnxtfl.ir.reshape import reshape, transposed
from onnxtfl.ir.types import DType
from onnxtfl.targets import Target

MOST_CLASSES = 24
"""With more, exponentials and quotients of the whole tensor take the time that short rows take."""


def compute_softmax_across_rows(graph: Graph, target: Target) -> None:
    """Transpose before Softmax in place of after it, where sums over another axis than the last are faster in kernels
    of `target`.
    """
    for node in list(graph.nodes):
        if node.op is ops.Transpose and (softmax := _softmax(graph, node)) is not None:
            _compute_across_rows(graph, softmax, node, target)


def _softmax(graph: Graph, transpose: Node) -> Node | None:
    """The Softmax along the last axis, which `transpose` then moves to another place; a reshape may be between them."""
    value, last = transpose.operand(0), transpose.operand(0).rank - 1
    if last < 1 or transpose.attr("permutation")[last] == last or not single_use(value, graph):
        return None
    between = made_by(value, ops.Reshape)
    if between is not None:
        before = between.operand(0)
        if not before.rank or not isinstance(size := value.shape[last], int) or before.shape[-1] != size:
            return None
        value = before
    softmax = made_by(value, ops.Softmax) if single_use(value, graph) else None
    is_along_last = softmax is not None and softmax.attr("axis") in (-1, value.rank - 1)
    is_short = value.dtype is DType.FLOAT32 and 0 < size_or(value.shape[-1], 0) <= MOST_CLASSES
    return softmax if is_along_last and is_short else None


def _compute_across_rows(graph: Graph, softmax: Node, transpose: Node, target: Target) -> None:
    b, read = Builder(graph, transpose, cause=softmax, maker="softmax rows"), transpose.operand(0)
    order = transpose.attr("permutation")
    moved = transposed(b, reshape(b, softmax.operand(0), read.shape, read), order)
    before, axis = len(b.created), order.index(read.rank - 1)
    result = _across(Term(b, moved), axis)
    if target.gains("softmax rows", [softmax], b.created[before:]):
        graph.replace(transpose, [result])
    else:
        b.undo()


def _across(x: Term, axis: int) -> Value:
    """Softmax along `axis`, by its formula."""
    powers = (x - x.reduce("max", [axis])).exp()
    return (powers / powers.reduce("sum", [axis])).value
