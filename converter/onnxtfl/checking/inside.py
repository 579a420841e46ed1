"""Which node of several differs: those that compute a tensor from corresponding ones, where one model has no tensor for
what the other computes in between::

    %a = Conv(%x); %y = Relu(%a)           %y = CONV_2D(%x) {RELU}

The part of one model is lifted to neutral ops, in which an activation is an op of its own, and evaluated in NumPy. The
first node of the other whose result is none of these values differs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from onnxtfl.checking.corresponding import axis_ways, is_multiple, likely, relative_error
from onnxtfl.checking.inner_values import InnerModel, isolate, numbered
from onnxtfl.ir.data import Array
from onnxtfl.ir.graph import Graph, Node, Value
from onnxtfl.ir.interpret import evaluate_node
from onnxtfl.ir.quantization import Quantization, dequantize, quantize
from onnxtfl.ir.quantized import quantization_of
from onnxtfl.pipeline import lifted_where_possible

CLOSE = 1e-3
"""The error, relative to the largest value, of values that are the same."""
MOST_ELEMENTS = 1 << 22
MOST_NODES = 400
_BYTE = 8


def culprit(
    nodes: Sequence[Node], model: InnerModel, arrays: Mapping[int, Array], others: Sequence[Array]
) -> Node | None:
    """The first of `nodes`, in order, whose result is none of `others` although what it reads is right.

    `arrays`: results of the nodes by number, quantized ones as stored. None if all are right. A result whose
    elements are in another order may be right, as weights may be in that order too: so the node after it differs if it
    has weights.
    """
    right = {node: _any_same(node, model, arrays, others, _same) for node in nodes}
    loosely = {node: right[node] or _any_same(node, model, arrays, others, _same_elements) for node in nodes}
    wrong = [node for node in nodes if not loosely[node] and not _leads_to_right(node, loosely)]
    first = wrong[0] if wrong else next((n for n in nodes if not right[n] and not _leads_to_right(n, right)), None)
    if first is None or _has_weights(first):
        return first
    before = {v.producer for v in first.operands if v is not None}
    return next((node for node in nodes if node in before and not right[node]), first)


def _has_weights(node: Node) -> bool:
    """Whether an operand is a constant of several real values or bytes; sizes and axes are other integers."""
    data = [v.data for v in node.operands if v is not None and v.data is not None]
    return any(d.size > 1 and (d.dtype.is_float or d.dtype.bits <= _BYTE) for d in data)


def _leads_to_right(node: Node, right: Mapping[Node, bool]) -> bool:
    """Whether a node that reads results of `node`, directly or not, has a right result."""
    users = [user for result in node.results for user, _ in result.uses if user in right]
    return any(right[user] or _leads_to_right(user, right) for user in users)


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
            if any(same(real, other, grid) for other in others):
                return True
    return False


def _same_elements(a: Array, b: Array, grid: Quantization | None) -> bool:
    """Whether two arrays hold the same real values in any order, padded with zeros or not, or times a factor."""
    if a.dtype.kind in "Oc" or b.dtype.kind in "Oc":
        return False
    if is_multiple(b, a):
        return True
    x, y = (np.sort(v, axis=None) if a.size == b.size else np.sort(v[v != 0]) for v in (a, b))
    return bool(x.size) and _same(x, y, grid)


def _same(a: Array, b: Array, grid: Quantization | None) -> bool:
    """Whether two arrays hold the same real values, channels first or last."""
    if a.size != b.size or a.dtype.kind in "Oc" or b.dtype.kind in "Oc":
        return False
    peak = float(np.abs(b[np.isfinite(b)]).max(initial=0.0)) if b.dtype.kind != "b" else 1.0
    step = grid.scales[0] * 1.01 / peak if grid is not None and grid.per_tensor and peak else 0.0
    moved = (way.moved(b, a.shape) for way in likely(axis_ways(b.shape, a.shape)))
    return any(m is not None and relative_error(m, a, None) <= max(CLOSE, step) for m in moved)


def neutral_values(model: InnerModel, number: int, fed: Mapping[int, Array], grid: Quantization | None) -> list[Array]:
    """All values, real ones, that the neutral ops compute of a tensor of `model` from the tensors `fed`.

    `grid`: how the tensor is stored by the model that these are for; real values are rounded to it too. As many as can
    be evaluated.
    """
    part = model.read()
    values = numbered(part.main)
    arrays = isolate(part, {values[i]: array for i, array in fed.items()}, [values[number]])
    graph = lifted_where_possible(part)
    given = [*(np.asarray(v) for v in model.given), *arrays]
    known = dict(zip(graph.inputs, given, strict=False))
    found = [as_real(array, quantization_of(value)) for value, array in known.items()]
    if len(list(graph.nodes)) > MOST_NODES:
        return found
    found += _evaluated(graph, known)
    return found + ([dequantize(quantize(v, grid), grid) for v in found if v.dtype.kind == "f"] if grid else [])


def _evaluated(graph: Graph, known: dict[Value, Array]) -> list[Array]:
    found = list[Array]()
    for node in graph.nodes:
        operands = [None if v is None else v.stored() if v.is_constant else known.get(v) for v in node.operands]
        absent = [v for v, array in zip(node.operands, operands, strict=True) if v is not None and array is None]
        sizes = [math.prod(array.shape) for array in operands if array is not None]
        if absent or node.op.dialect != "neutral" or sum(sizes) > MOST_ELEMENTS:
            continue
        try:
            results = evaluate_node(node, operands)
        except Exception:  # a part that cannot be evaluated tells nothing
            continue
        known.update(zip(node.results, results, strict=True))
        found += [as_real(array, quantization_of(v)) for v, array in zip(node.results, results, strict=True)]
    return found


def as_real(array: Array, grid: Quantization | None) -> Array:
    return dequantize(array, grid) if grid is not None and array.dtype.kind in "iu" else array
