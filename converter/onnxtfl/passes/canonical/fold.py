"""Constant folding, within the budget of the conversion, with a limit on the bytes that it may add to the model.

::

    %y = Add(%constant, %constant)            %y = constant
    %t = Transpose(%weight) [1, 0]      ->    %t = weight, transposed lazily when it is written

Transposes and reshapes of large weights are lazy. A node that would enlarge the model much (a Range or BroadcastTo to
megabytes) stays; constants of up to an eighth of its weights (a mask or the position biases of attention) are computed,
since kernels would compute them in each run. Weights of few bits stay so: runtimes widen them once. An empty result is
a constant for any operands, except for a copy: an output that is an input stays.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from onnxtfl.errors import InvalidModelError, UnsupportedError, reason
from onnxtfl.ir import ops
from onnxtfl.ir.budget import current_budget
from onnxtfl.ir.builder import Builder, check
from onnxtfl.ir.data import LARGEST_EMPTY, Array, ArrayData, PartData, TensorData
from onnxtfl.ir.dims import known_sizes, size_or
from onnxtfl.ir.graph import Graph, Node, Value, constant
from onnxtfl.ir.interpret import evaluate_node
from onnxtfl.ir.quantized import moves_stored, touches_quantized
from onnxtfl.ir.reshape import broadcast_to_sizes
from onnxtfl.ir.shapes import static_ints
from onnxtfl.ir.source_names import source_name
from onnxtfl.ir.types import DType, TensorType

SMALL = 16 << 10
"""The most bytes of a folded result that is larger than its operands."""
LARGEST = 64 << 20
"""The most bytes of operands that are folded eagerly."""
_REDUNDANT = (ops.Convert, ops.BroadcastTo)
"""Ops whose results hold no more than their operand, which kernels widen or repeat by themselves."""


def fold(graph: Graph) -> None:
    """Replace pure nodes with constant operands by their results.

    Raises InvalidModelError if the operands of a node do not fit the folded value of one of them.
    """
    budget, held, made = current_budget(), dict[Value, int](), set[Value]()
    for node in graph.nodes:
        budget.step(node.name, node.op.name)
        values = fold_node(node)
        if values is None:
            if not made.isdisjoint(node.operands):
                check(node)
            continue
        made.update(values)
        held.update((v, v.data.nbytes) for v in values if isinstance(v.data, ArrayData))
        read = list(filter(None, node.operands))
        graph.replace(node, values)
        budget.release(sum(held.pop(v, 0) for v in read if not v.uses and not graph.is_output(v)))


def fold_node(node: Node) -> list[Value] | None:
    """Return constants for the results of `node`; None if it is not constant or the results would be too large."""
    if node.regions or not node.is_pure:
        return None
    if node.op is not ops.Copy and node.results and all(map(_is_empty, node.results)):
        return [_result(np.zeros(result.shape, object), result) for result in node.results]
    for value in node.operands:  # of each node; a generator would take twice as long
        if value is not None and value.data is None:
            return None
    if _is_compressed(node) or not node.op.folds(node):
        return None
    lazy = _fold_lazily(node)
    if lazy is not None:
        return [lazy]
    operand_bytes = sum(v.data.nbytes for v in set(node.operands) if v is not None and v.data is not None)
    result_bytes = _result_bytes(node)
    if operand_bytes > LARGEST or result_bytes is None or result_bytes > max(_largest(node), operand_bytes):
        return None
    if not current_budget().may_compute(work_of(node)) or not current_budget().may_hold(result_bytes):
        return None
    try:
        results = evaluate_node(node, [None if v is None else v.stored() for v in node.operands])
    except NotImplementedError:
        return None
    except (ValueError, IndexError, TypeError, ZeroDivisionError, OverflowError) as error:
        shown = ", ".join(str(v.type) for v in node.present_operands)
        raise InvalidModelError(
            f"its constant result cannot be computed: {reason(error)}",
            node=source_name(node),
            op=node.op.name,
            type_=shown,
            code="E-FILE-009",
        ) from error
    return [_result(array, r) for array, r in zip(results, node.results, strict=True)]


def _largest(node: Node) -> int:
    """The most bytes of a folded result: more for a target whose kernels do not compute on constants alone, and for a
    model with many weights.
    """
    budget = current_budget()
    if budget.folds_all:
        return LARGEST
    return SMALL if node.op in _REDUNDANT else max(SMALL, budget.growth - budget.held)


def _is_empty(result: Value) -> bool:
    """Whether a result is known to be empty: some kernels crash on empty results."""
    if not isinstance(result.type, TensorType) or 0 not in (result.type.shape or ()) or not result.type.is_static:
        return False
    return math.prod(int(d) for d in result.shape if d != 0) <= LARGEST_EMPTY


def _same(node: Node, result: Value) -> Value | None:
    """Return the operand of `node` with the type of the empty `result`."""
    return next((v for v in node.present_operands if v.type == result.type), None)


def empty_results(graph: Graph) -> None:
    """Replace empty results with dynamic sizes by operands or zeros of that shape.

    Some kernels refuse empty tensors or abort.
    """
    for node in graph.nodes:
        values = _empty_results_of(graph, node)
        if values is not None:
            graph.replace(node, values)


def _empty_results_of(graph: Graph, node: Node) -> list[Value] | None:
    """Return replacements for the empty results (with dynamic sizes) of a node; None for other nodes."""
    if not node.results or not all(map(_has_axis_of_0, node.results)):
        return None
    if node.op in (ops.BroadcastTo, ops.Copy) or not node.is_pure or node.regions:
        return None
    try:
        return Builder(graph, node).tried(_empty, node)
    except UnsupportedError:  # a size that is known only from the node's result
        return None


def _empty(b: Builder, node: Node) -> list[Value]:
    """Operands or zeros with the shapes of the empty results of `node`."""
    read = node.present_operands
    zeros = [constant(np.zeros((), result.dtype.numpy)) for result in node.results]
    pairs = zip(zeros, node.results, strict=True)
    return [_same(node, result) or broadcast_to_sizes(b, zero, result.shape, *read) for zero, result in pairs]


def _has_axis_of_0(result: Value) -> bool:
    kind = result.type
    if not isinstance(kind, TensorType) or 0 not in (kind.shape or ()):
        return False
    return not kind.is_static and kind.quantization is None


def _is_compressed(node: Node) -> bool:
    """Whether `node` dequantizes a constant, which is smaller, and which integer kernels may read."""
    return node.op is ops.Convert and node.operand(0).is_quantized and not node.result.is_quantized


def _result(array: Array, result: Value) -> Value:
    dtype = result.tensor_type.storage
    stored = array if dtype is DType.STRING else array.astype(dtype.numpy, copy=False)
    return _constant(ArrayData(stored, dtype), result)


def _constant(data: TensorData, result: Value) -> Value:
    """Return `data` as a constant of the type of `result`, with its sizes."""
    return constant(data, type_=result.tensor_type.with_shape(data.shape))


def _result_bytes(node: Node) -> int | None:
    """The bytes of the results, at most; None if a rank is unknown.

    A size that depends on elements (how many are nonzero, or distinct) is at most the number of elements read.
    """
    read = sum(math.prod(known_sizes(v.shape)) for v in node.present_operands)
    result_bytes = 0
    for result in node.results:
        if not isinstance(result.type, TensorType) or result.type.shape is None:
            return None
        sizes = [size_or(dim, read) for dim in result.shape]
        result_bytes += math.prod(sizes) * max(1, result.type.storage.bits // 8)
    return result_bytes


def work_of(node: Node) -> int:
    """Return a bound of the elements that `node`, of static sizes, reads, writes and multiplies.

    A product of matrices M x K and K x N has M K N = sqrt(MK KN MN) multiplications (floats: 1/32 of the time each); a
    window op reads the window's volume for each result.
    """
    shapes = [v.type.shape or () for v in (*node.operands, *node.results) if v and isinstance(v.type, TensorType)]
    sizes = [math.prod(known_sizes(shape)) for shape in shapes]
    work = sum(sizes)
    if node.op.multiplies == "matrices":
        products = math.isqrt(sizes[0] * sizes[1] * sizes[-1])
        work += products // 32 if node.operand(0).dtype.is_float else products
    elif node.op.multiplies == "windows":
        work += sizes[1] * max(sizes[0], sizes[-1])
    window = node.attributes.get("kernel_shape") or node.attributes.get("window_dimensions") or ()
    return work + sizes[-1] * math.prod(window) if window else work


def _fold_lazily(node: Node) -> Value | None:
    """Return the lazily computed result of a node that moves or converts large data; None for other nodes."""
    data = node.operands[0].data if node.operands and node.operands[0] is not None else None
    if data is None or data.nbytes <= SMALL:
        return None
    if touches_quantized(node) and not moves_stored(node):
        return None
    moved = _moved_lazily(node, data)
    return None if moved is None else _constant(moved, node.result)


def _moved_lazily(node: Node, data: TensorData) -> TensorData | None:
    if node.op is ops.Transpose:
        return data.transpose(node.attr("permutation"))
    if node.op is ops.Reshape and node.result.is_static:
        return data.reshape(node.result.shape)
    if node.op is ops.Convert and node.attr("dtype").bits <= data.dtype.bits:
        return data.cast(node.attr("dtype"))
    if node.op is ops.Slice and node.result.is_static and not data.in_memory:
        return _sliced(data, *(static_ints(node.operand(i)) for i in (1, 2, 3)))
    return None


def _sliced(data: TensorData, *vectors: Sequence[int] | None) -> TensorData | None:
    """The elements of a slice; None if it has unknown bounds, or strides."""
    starts, limits, strides = vectors
    if starts is None or limits is None or strides is None or set(strides) - {1}:
        return None
    for axis, (start, limit, size) in enumerate(zip(starts, limits, data.shape, strict=True)):
        first, last, _ = slice(start, limit).indices(size)
        data = data if (first, last) == (0, size) else PartData(data, first, max(first, last), axis)
    return data
