"""Which node of several differs: those that compute a tensor from corresponding ones, where one model has no tensor for
what the other computes in between::

    %a = Conv(%x); %y = Relu(%a)           %y = CONV_2D(%x) {RELU}

The part of one model is lifted to neutral ops, in which an activation is an op of its own, and evaluated in NumPy. The
first node of the other whose result is none of these values differs.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from onnxtfl.checking.models.trace import InnerModel, isolate, numbered
from onnxtfl.checking.pairing.tensors import axis_ways, is_multiple, likely, relative_error
from onnxtfl.ir.data import Array
from onnxtfl.ir.graph import Graph, Node, Value
from onnxtfl.ir.interpret import evaluate_node
from onnxtfl.ir.quantization import Quantization, dequantize, quantize, with_other_sign
from onnxtfl.ir.quantized import quantization_of
from onnxtfl.pipeline import lifted_where_possible

CLOSE = 1e-3
"""The error, relative to the largest value, of values that are the same."""
FLAT = 2
"""The largest rank of flattened tensors, whose order of elements depends on the layout before."""
MOST_ELEMENTS = 1 << 22
MOST_NODES = 400
_BYTE = 8


def culprit(
    nodes: Sequence[Node], last: Node, model: InnerModel, arrays: Mapping[int, Array], others: Sequence[Array]
) -> Node:
    """The first of `nodes`, in order, whose result is none of `others` although what it reads is right.

    `last`: the one whose result is known to differ. `arrays`: results of the nodes by number, as stored. A result whose
    elements are in another order may be right, as weights may be in that order too: so the node after it differs if it
    has weights.
    """
    right = {n: n is not last and _any_same(n, model, arrays, others, same) for n in nodes}
    loosely = {n: right[n] or (n is not last and _any_same(n, model, arrays, others, _same_elements)) for n in nodes}
    leading = leading_to_right(loosely)
    found = next((n for n in nodes if not loosely[n] and n not in leading), last)
    leading = leading_to_right(right)
    while not _has_weights(found):
        before = {v.producer for v in found.operands if v is not None}
        earlier = next((n for n in nodes if n in before and not right[n] and n not in leading), None)
        if earlier is None:
            break
        found = earlier
    return found


def _has_weights(node: Node) -> bool:
    """Whether an operand is a constant of several real values or bytes; sizes and axes are other integers."""
    data = [v.data for v in node.operands if v is not None and v.data is not None]
    return any(d.size > 1 and (d.dtype.is_float or d.dtype.bits <= _BYTE) for d in data)


def leading_to_right(right: dict[Node, bool]) -> set[Node]:
    """The nodes of which a node that reads their results, directly or not, has a right result.

    `right`: whether the result of each node is right, in topological order.
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
    """Whether not all elements are equal: zeros, as initial states are, say nothing."""
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


def neutral_values(
    model: InnerModel, number: int, fed: Mapping[int, Array], grid: Quantization | None
) -> tuple[list[Array], Array | None]:
    """All values that the neutral ops compute of a tensor of `model` from the tensors `fed`, and that of the tensor.

    `grid`: how the tensor is stored by the model that these are for; real values are rounded to it too. As many as can
    be evaluated.
    """
    part = model.read()
    values = numbered(part.main)
    arrays = isolate(part, {values[i]: array for i, array in fed.items()}, [values[number]])
    graph = lifted_where_possible(part)
    given = [*(np.asarray(v) for v in model.given), *arrays]
    known = dict(zip(graph.inputs, given, strict=False))
    if len(list(graph.nodes)) <= MOST_NODES:
        _evaluate(graph, known)
    final = known.get(graph.outputs[0])
    found = [form for value, array in known.items() for form in forms(array, quantization_of(value))]
    found += [dequantize(quantize(v, grid), grid) for v in found if v.dtype.kind == "f"] if grid else []
    return found, None if final is None else as_real(final, quantization_of(graph.outputs[0]))


def _evaluate(graph: Graph, known: dict[Value, Array]) -> None:
    """Add to `known` the results of the nodes, as many as can be evaluated."""
    for node in graph.nodes:
        operands = [None if v is None else v.stored() if v.is_constant else known.get(v) for v in node.operands]
        absent = [v for v, array in zip(node.operands, operands, strict=True) if v is not None and array is None]
        sizes = [math.prod(array.shape) for array in operands if array is not None]
        if absent or node.op.dialect != "neutral" or sum(sizes) > MOST_ELEMENTS:
            continue
        with contextlib.suppress(Exception):  # a node that cannot be evaluated tells nothing
            known.update(zip(node.results, evaluate_node(node, operands), strict=True))


def forms(array: Array, grid: Quantization | None) -> list[Array]:
    """The real values of a stored array; the stored ones too, also with the other sign: ONNX has no scales there."""
    found = [as_real(array, grid)]
    if array.dtype.name not in ("int8", "uint8"):
        return found
    return [*found, array, with_other_sign(array)]


def as_real(array: Array, grid: Quantization | None) -> Array:
    return dequantize(array, grid) if grid is not None and array.dtype.kind in "iu" else array
