"""Fuses DequantizeLinear, op, QuantizeLinear to the op on quantized types.

::

    %a = Convert(%q) : float32                          %y = Relu(%q) : float32 as int8 0.25:-128
    %b = Relu(%a) : float32                      ->
    %y = Convert(%b) : float32 as int8 0.25:-128

This is exact: a neutral op on quantized types is quantize(evaluate(dequantize)). Legalization
decomposes it again if the target has no kernel.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.conversions import convert_quantization, quantization_read
from onnxtfl.ir.data import ArrayData
from onnxtfl.ir.graph import Graph, Node, Value, constant
from onnxtfl.ir.history import Remark
from onnxtfl.ir.matching import single_use, splat_value
from onnxtfl.ir.quantization import Quantization, limits, quantize
from onnxtfl.ir.quantized import quantization_of, selected_operands
from onnxtfl.ir.types import TensorType
from onnxtfl.passes.quantize.biases import dequantized_source, quantized_bias, rescaled_bias
from onnxtfl.rewriting.patterns import Patterns

PATTERNS = Patterns()
_FOLDED = 1 << 10
"""The most elements of a quantized constant that is stored as float for float ops."""
_SMALL = 1 << 20
"""The most elements of a constant that is quantized here: a bias, a scalar, a small table."""


def fuse_quantized(graph: Graph) -> None:
    """Let each op with dequantized operands, whose results are only read quantized, compute on quantized types."""
    quantize_early(graph)
    for node in list(graph.nodes):
        if node.graph is graph and not _moved(graph, node):
            _fused(graph, node)
    quantize_early(graph)
    for node in list(graph.nodes):
        _dequantize_small_constant(graph, node)


def quantize_early(graph: Graph) -> None:
    """Move quantization before clamps and moves, so that the preceding op can be computed on integers."""
    PATTERNS.apply(graph)


def _dequantize_small_constant(graph: Graph, node: Node) -> None:
    """Dequantize a small constant that float ops read, so that folding can continue."""
    source = dequantized_source(node.result) if node.op is ops.Convert else None
    if source is not None and source.data is not None and source.data.size <= _FOLDED:
        graph.replace(node, [constant(source.numpy(), node.result.dtype)])


@PATTERNS.on(ops.Convert, quantized=True)
def before_clamp(b: Builder, node: Node) -> Value | None:
    """Quantize before a clamp with representable bounds; remove a clamp to the whole range.

    ::

        Convert(Relu(%x)) : int8 0.25:3    ->    Relu(Convert(%x) : int8 0.25:3) : int8 0.25:3
        Convert(Relu(%x)) : uint8 0.25:0   ->    Convert(%x) : uint8 0.25:0
    """
    quantization, clamp = node.result.tensor_type.quantization, node.operand(0).producer
    if quantization is None or not quantization.per_tensor or clamp is None or not single_use(node.operand(0), b.graph):
        return None
    bounds = clamp_bounds(clamp)
    if bounds is None or clamp.operand(0).is_quantized or clamp.operand(0).producer is None:
        return None
    if _source(clamp.operand(0)) is not None:
        return None  # the clamp itself quantizes
    inside = [is_stored(bound, quantization) for bound in bounds]
    if not all(inside):
        return None
    return _clamped(b, clamp, quantization, bounds)


@PATTERNS.on(ops.Convert, quantized=True)
def before_move(b: Builder, node: Node) -> Value | None:
    """Quantize before an op that moves elements, so that the op before it can be computed on quantized types.

    ::

        Convert(BroadcastTo(%x)) : int8 0.25:3    ->    BroadcastTo(Convert(%x) : int8 0.25:3)
    """
    quantization, move = node.result.tensor_type.quantization, node.operand(0).producer
    if quantization is None or not quantization.per_tensor or move is None or not single_use(node.operand(0), b.graph):
        return None
    if not move.only_moves_first or len(move.results) != 1 or move.operand(0).is_quantized:
        return None
    if _source(move.operand(0)) is not None or move.operand(0).producer is None:
        return None
    x = convert_quantization(b, move.operand(0), quantization)
    return b(move.op, x, *move.operands[1:], **move.attributes)


def _clamped(b: Builder, clamp: Node, quantization: Quantization, bounds: tuple[float, float]) -> Value:
    x = convert_quantization(b, clamp.operand(0), quantization)
    if tuple(quantize(np.asarray(bounds, np.float32), quantization).tolist()) == limits(quantization.dtype):
        return x
    made = b(clamp.op, x, *clamp.operands[1:], **clamp.attributes)
    made.type = made.tensor_type.stored_as(quantization)
    return made


@PATTERNS.on(ops.Convert, quantized=True)
def requantization(b: Builder, node: Node) -> Value | None:
    """Merge DequantizeLinear and QuantizeLinear to one requantization.

    ::

        Convert(Convert(%q: int8 0.5:1) : float32) : int8 0.25:3    ->    Convert(%q: int8 0.5:1) : int8 0.25:3
    """
    source = dequantized_source(node.operand(0))
    if source is None or not node.result.is_quantized or source.dtype is not node.result.dtype:
        return None
    return convert_quantization(b, source, quantization_of(node.result))


@PATTERNS.on(ops.Relu, ops.Relu6, ops.Clamp, quantized=True)
def clamp_of_real(b: Builder, node: Node) -> Value | None:
    """Replace a clamp with a quantized result by a requantization if it clamps to the whole range.

    ::

        Relu(%x: float32) : uint8 0.25:0    ->    Convert(%x) : uint8 0.25:0
    """
    quantization, bounds = node.result.tensor_type.quantization, clamp_bounds(node)
    if quantization is None or bounds is None or not quantization.per_tensor or node.operand(0).is_quantized:
        return None
    return _clamped(b, node, quantization, bounds) if all(is_stored(v, quantization) for v in bounds) else None


def clamp_bounds(node: Node) -> tuple[float, float] | None:
    """Return the bounds to which `node` clamps; None for other ops."""
    if node.op.clamps is None:
        return None
    low, high = node.op.clamps
    if low is None and high is None:
        ends = ((1, -math.inf), (2, math.inf))
        low, high = (splat_value(v) if (v := node.optional(i)) is not None else end for i, end in ends)
    return None if low is None or high is None else (low, high)


def is_stored(bound: float, quantization: Quantization) -> bool:
    """Whether `bound` is representable, or saturates to the lowest or highest stored integer."""
    stored = int(quantize(np.asarray(bound, np.float32), quantization))
    return stored in limits(quantization.dtype) or quantization.stores(bound)


def _moved(graph: Graph, node: Node) -> bool:
    """Move or select stored integers, and dequantize afterwards."""
    chosen = selected_operands(node)
    if chosen is None or node.regions or not node.results or any(r.is_quantized for r in node.results):
        return False
    places = range(len(node.operands))[chosen]
    sources = [_source(node.operands[i]) for i in places]
    first = sources[0] if sources else None
    if first is None or first.tensor_type.quantization is None or not first.tensor_type.quantization.per_tensor:
        return False
    same = first.tensor_type.quantization
    if not all(v is not None and v.tensor_type.quantization == same for v in sources):
        return False
    b = Builder(graph, node, maker="fuse quantized")
    operands = list(node.operands)
    for i, source in zip(places, sources, strict=True):
        operands[i] = source
    made = b.many(node.op, *operands, **node.attributes)
    if node.op.moves is None:
        made[0].type = made[0].tensor_type.stored_as(same)
    if any(v.tensor_type.quantization != same for v in made):
        b.undo()
        return False
    graph.replace(node, [b(ops.Convert, v, dtype=v.dtype) for v in made])
    return True


def _source(value: Value | None) -> Value | None:
    """Return the quantized value (at most 16 bits: wider ones are biases) from which `value` is converted."""
    source = dequantized_source(value)
    return None if source is None or _is_wide(source) else source


def _is_wide(value: Value) -> bool:
    quantization = value.tensor_type.quantization
    return quantization is not None and quantization.dtype.bits > 16


def _fused(graph: Graph, node: Node) -> None:
    if node.op.dialect != "neutral" or not node.is_pure or node.regions:
        return
    if node.op is ops.Convert or not any(v is not None and (v.is_quantized or _source(v)) for v in node.operands):
        return
    if any(r.is_quantized for r in node.results):
        return
    wanted = [quantization_read(graph, r) for r in node.results]
    unquantized = [r for q, r in zip(wanted, node.results, strict=True) if q is None and _is_real(graph, r)]
    operands = None if unquantized else _operands(node, wanted[0])
    if operands is None:
        node.remarks += (_unquantized(graph, node, unquantized),)
        return
    b = Builder(graph, node, maker="fuse quantized")
    results = b.many(node.op, *operands, **node.attributes)
    if (remark := rescaled_bias(node, operands)) is not None and results[0].producer is not None:
        results[0].producer.remarks += (remark,)
    for new, old, quantization in zip(results, node.results, wanted, strict=True):
        if quantization is not None:
            new.type = new.tensor_type.stored_as(quantization)
            for user in old.users():
                graph.replace(user, [new])
    graph.replace(node, results, retyped=True)


def _is_real(graph: Graph, result: Value) -> bool:
    """Whether `result` has real readers."""
    is_read = bool(result.uses) or graph.is_output(result)
    return is_read and isinstance(result.type, TensorType) and result.type.dtype.is_float


def _operands(node: Node, wanted: Quantization | None) -> Sequence[Value | None] | None:
    """Return the operands in quantized types; None if one is computed in float."""
    if not all(_is_by_output(node, i, v) for i, v in enumerate(node.operands)):
        return None
    operands: list[Value | None] = []
    bias = next((i for i, o in enumerate(node.op.operands) if o.name == "bias"), None)
    for i, value in enumerate(node.operands):
        source = _source(value)
        if value is None or value.is_quantized or not value.tensor_type.dtype.is_float:
            operands.append(value)
        elif source is not None and i != bias:
            operands.append(source)
        elif i == bias:
            operands.append(quantized_bias(value, operands, wanted))
        elif _is_moved(node, i) and (stored := _stored_as(value, wanted)) is not None:
            operands.append(stored)
        elif value.data is not None and _is_parameter(node, i):
            operands.append(value)
        elif value.data is not None and value.data.size == 1:
            operands.append(_scalar(value, node, i))
        else:
            return None
        if i == bias and value is not None and operands[-1] is None:
            return None
    return operands


def _is_moved(node: Node, index: int) -> bool:
    """Whether results have elements of operand `index`."""
    return node.op.moves is not None and not node.op.inserts and index in range(len(node.operands))[node.op.moves]


def _stored_as(value: Value, wanted: Quantization | None) -> Value | None:
    """Return a small real constant in the quantization `wanted`; None for other values."""
    if value.data is None or value.data.size > _SMALL or wanted is None or not wanted.per_tensor:
        return None
    stored = quantize(value.numpy().astype(np.float32), wanted)
    return constant(ArrayData(stored, wanted.dtype), type_=value.tensor_type.stored_as(wanted))


def _is_parameter(node: Node, index: int) -> bool:
    """Whether operand `index` has separate element types, like the factors of Resize, and is never quantized."""
    formals = node.op.operands
    return index < len(formals) and formals[index].dtypes != formals[0].dtypes


def _unquantized(graph: Graph, node: Node, results: Sequence[Value]) -> Remark:
    """Return why `node` computes in float although some of its operands are dequantized."""
    if results:
        read = {u.op is ops.Convert and u.result.is_quantized for u in results[0].users()}
        several = read == {True} and not graph.is_output(results[0])
        if several:
            return Remark("island", node.op.name, "its result is read in several quantizations")
        return Remark("float", node.op.name, "its result is read in float")
    for i, value in enumerate(node.operands):
        name = node.op.operands[min(i, len(node.op.operands) - 1)].name
        if not _is_by_output(node, i, value):
            return Remark("island", node.op.name, f"the scales of {name} are not by output feature")
        if value is not None and value.tensor_type.dtype.is_float and not value.is_constant and not _source(value):
            return Remark("float", node.op.name, f"{name} is float")
        if value is not None and name != "bias" and _is_float_vector(node, i, value):
            return Remark("float", node.op.name, f"{name} is a float constant")
        if value is not None and name == "bias":
            return Remark("island", node.op.name, "the bias has no exact integers")
    return Remark("float", node.op.name, "a constant is float")


def _is_float_vector(node: Node, index: int, value: Value) -> bool:
    """Whether operand `index` is a constant of several real values, which are not quantized here."""
    is_real = value.data is not None and not value.is_quantized and value.tensor_type.dtype.is_float
    return is_real and value.data is not None and value.data.size != 1 and not _is_parameter(node, index)


def _scalar(value: Value, node: Node, index: int) -> Value:
    """Quantize a constant of one element of a binary op exactly."""
    other = node.operands[1 - index] if index < 2 else None
    source = _source(other) or other
    if node.op.operands[index].name not in ("lhs", "rhs") or source is None or source.tensor_type.quantization is None:
        return value
    number, storage = np.float32(value.numpy().reshape(())), source.tensor_type.quantization.storage
    if not np.isfinite(number):
        return value
    quantization, stored = _exact(number, storage)
    array = np.full(value.shape, stored, quantization.dtype.numpy)
    return constant(array, type_=value.tensor_type.stored_as(quantization))


def _exact(number: np.float32, storage: str) -> tuple[Quantization, int]:
    """Return parameters and an integer that represent `number` exactly, with the smallest scale for 8 bits."""
    size = np.abs(number)
    for count in range(127, 0, -1):
        scale = np.float32(size / count) if size else np.float32(1 / 128)
        if np.float32(scale * count) == size or not size:
            break
    sign = int(np.sign(number)) * count
    zero = 128 if storage == "uint8" else 0
    return Quantization(storage, (float(scale),), (zero,)), sign + zero


def _is_by_output(node: Node, index: int, value: Value | None) -> bool:
    """Whether per-axis parameters of operand `index` are per output feature, as kernels require."""
    source = dequantized_source(value)
    quantization = source.tensor_type.quantization if source is not None else None
    if quantization is None or quantization.per_tensor:
        return True
    if index != 1:
        return index < len(node.op.operands) and node.op.operands[index].name == "bias"
    if quantization.block is not None:
        return False
    contracting = node.attr("rhs_contracting_dimensions")
    if contracting is not None:
        return quantization.axis not in (*contracting, *node.attr("rhs_batching_dimensions"))
    return bool(quantization.axis == node.attr("kernel_output_feature_dimension"))
