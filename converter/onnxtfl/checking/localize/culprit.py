"""The differing node among several that compute a tensor from corresponding ones, if one model has no counterparts of
the other's tensors in between::

    %a = Conv(%x); %y = Relu(%a)           %y = CONV_2D(%x) {RELU}

The part of one model is lifted to neutral ops, with separate activations, and evaluated in NumPy. The node that differs
is the first node of the other model whose result equals none of these values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from onnxtfl.ir.data import Array
from onnxtfl.ir.graph import Node
from onnxtfl.ir.quantization import Quantization
from onnxtfl.ir.quantized import quantization_of
from onnxtfl.tracing.matches import axis_ways, is_multiple, likely, relative_error
from onnxtfl.tracing.semantics import as_real
from onnxtfl.tracing.trace import InnerModel

CLOSE = 1e-3
"""The largest error of equal values, relative to the largest value."""
FLAT = 2
"""The largest rank of flattened tensors, whose order of elements depends on the layout of their source."""
_BYTE = 8


def culprit(
    nodes: Sequence[Node], last: Node, model: InnerModel, arrays: Mapping[int, Array], others: Sequence[Array]
) -> Node:
    """Return the first of `nodes` whose result equals none of `others` although its operands agree.

    `last`: the node whose result is known to differ. `arrays`: results of the nodes by number, as stored. A result with
    elements in another order may be correct, since weights may be in that order too: therefore the node after it
    differs if it has weights.
    """
    right = {n: n is not last and _any_same(n, model, arrays, others, same) for n in nodes}
    loosely = {n: right[n] or (n is not last and _any_same(n, model, arrays, others, _same_elements)) for n in nodes}
    leading = leading_to_right(loosely)
    found = next((n for n in nodes if not loosely[n] and n not in leading), last)
    leading = leading_to_right(right)
    while not _has_weights(found):
        before = {v.producer for v in found.present_operands}
        earlier = next((n for n in nodes if n in before and not right[n] and n not in leading), None)
        if earlier is None:
            break
        found = earlier
    return found


def _has_weights(node: Node) -> bool:
    """Whether an operand is a constant of several real values or bytes (integers of other types are sizes and axes)."""
    data = [v.data for v in node.present_operands if v.data is not None]
    return any(d.size > 1 and (d.dtype.is_float or d.dtype.bits <= _BYTE) for d in data)


def leading_to_right(right: dict[Node, bool]) -> set[Node]:
    """The nodes on which a node with a correct result depends, directly or not.

    `right`: whether the result of each node is correct, in topological order.
    """
    found = set[Node]()
    for node in reversed(right):
        users = (user for result in node.results for user, _ in result.uses)
        if any(user in found or right.get(user, False) for user in users):
            found.add(node)
    return found


def _any_same(
    node: Node,
    model: InnerModel,
    arrays: Mapping[int, Array],
    others: Sequence[Array],
    same: Callable[[Array, Array, Quantization | None], bool],
) -> bool:
    for result in node.results:
        array = arrays.get(model.number.get(result, -1))
        if array is not None:
            grid = quantization_of(result)
            real = as_real(array, grid)
            if not _tells(real) or any(same(real, other, grid) for other in others):
                return True
    return False


def _tells(array: Array) -> bool:
    """Whether the elements are not all equal: uniform values, such as initial states of zero, are no evidence."""
    return array.dtype.kind not in "biuf" or bool(array.size and (array != array.reshape(-1)[0]).any())


def _same_elements(a: Array, b: Array, grid: Quantization | None) -> bool:
    """Whether two arrays hold the same real values, flattened in any order, padded with zeros, or times a factor."""
    if a.dtype.kind in "Oc" or b.dtype.kind in "Oc":
        return False
    if is_multiple(b, a):
        return True
    if a.size == b.size and a.ndim == b.ndim > FLAT and any(way.shape is None for way in axis_ways(b.shape, a.shape)):
        return False
    x, y = (np.sort(v, axis=None) if a.size == b.size else np.sort(v[v != 0]) for v in (a, b))
    return bool(x.size) and same(x, y, grid)


def same(a: Array, b: Array, grid: Quantization | None) -> bool:
    """Whether two arrays hold the same real values, channels first or last."""
    if a.size != b.size or a.dtype.kind in "Oc" or b.dtype.kind in "Oc":
        return False
    peak = float(np.abs(b[np.isfinite(b)]).max(initial=0.0)) if b.dtype.kind != "b" else 1.0
    step = grid.scales[0] * 1.01 / peak if grid is not None and grid.per_tensor and peak else 0.0
    moved = (way.moved(b, a.shape) for way in likely(axis_ways(b.shape, a.shape)))
    return any(m is not None and relative_error(m, a, None) <= max(CLOSE, step) for m in moved)
