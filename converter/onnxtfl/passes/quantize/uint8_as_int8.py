"""Stores uint8 tensors as int8, for which kernels exist: values and zero point minus 128.

::

    %y = Relu(%x) : uint8 0.25:128    ->    %y = Relu(%x) : int8 0.25:0

Inputs and outputs keep their type and are converted. int8 kernels have no zero point for weights: weights get zero
point 0, some of them as sums (`wide_weights`); if that is not possible for some uint8 weights, the graph stays uint8,
whose kernels have a zero point.
"""

from __future__ import annotations

import math

from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.conversions import convert_quantization, output_instead
from onnxtfl.ir.graph import Graph, Value, constant
from onnxtfl.ir.quantization import UINT8_OFFSET, shifted_to_int8
from onnxtfl.ir.quantized import quantization_of
from onnxtfl.ir.types import DType, TensorType, Type
from onnxtfl.passes.quantize.weights import centered, weights_of
from onnxtfl.passes.quantize.wide_weights import MOST_GROWTH, wide_weights

_MAKER = "int8 storage"


def store_as_int8(graph: Graph, *, always: bool = False) -> None:
    """Store quantized uint8 tensors as int8; inputs and outputs are converted.

    `always`: even if convolutions of asymmetric weights then compute in float.
    """
    if not _center_weights(graph, always) and not always:
        return
    for value in graph.inputs:
        if _shifted(value.type) is not None:
            _convert_input(graph, value)
    outputs = graph.output_set()
    for node in list(graph.nodes):
        for i, operand in enumerate(node.operands):
            if operand is not None and operand.data is not None and (type_ := _shifted(operand.type)) is not None:
                node.set_operand(i, constant(operand.data.cast(DType.INT8, -UINT8_OFFSET), type_=type_))
        for result in node.results:
            type_ = _shifted(result.type)
            if type_ is None or (result in outputs and node.op is ops.Convert and not result.uses):
                continue
            before, result.type = quantization_of(result), type_
            if result in outputs:
                b = Builder(graph, node.next, cause=node, maker=_MAKER)
                output_instead(graph, result, convert_quantization(b, result, before))


def _center_weights(graph: Graph, always: bool) -> bool:
    """Store weights with zero point 0 where possible; return whether those of all convolutions can be int8 then.

    Weights with several scales always are: no kernel for uint8 has several.
    """
    found = {node: value for node in graph.nodes if (value := weights_of(node)) is not None}
    moved = {node: centered(value) for node, value in found.items()}
    sums = [wide for node, value in found.items() if moved[node] is None and (wide := wide_weights(node, value))]
    single = {node for node, value in found.items() if _has_one_scale(value)}
    unsigned = {node for node in single if _shifted(found[node].type) is not None}
    whole = unsigned - {node for node, value in moved.items() if value is not None} - {wide.node for wide in sums}
    elements = sum(math.prod(value.shape) for value in found.values())
    convolutions = [wide for wide in sums if wide.node in single and issubclass(wide.node.op, ops.Convolution)]
    is_small = sum(wide.growth for wide in convolutions) <= MOST_GROWTH * elements
    as_int8 = always or (is_small and not any(issubclass(node.op, ops.Convolution) for node in whole))
    for node, value in moved.items():
        if value is not None and (as_int8 or node not in unsigned):
            node.set_operand(1, value)
    for wide in sums:
        if wide.node not in single or (as_int8 and (always or wide.growth <= MOST_GROWTH * elements)):
            wide.apply(graph)
    return as_int8


def _has_one_scale(weights: Value) -> bool:
    quantization = weights.tensor_type.quantization
    return quantization is not None and quantization.per_tensor


def _convert_input(graph: Graph, value: Value) -> None:
    users = list(value.uses)
    if all(user.op is ops.Convert for user, _ in users):
        return
    wanted = _shifted(value.type)
    assert wanted is not None
    stored = convert_quantization(Builder(graph, graph.first, maker=_MAKER), value, wanted.quantization)
    for user, index in users:
        user.set_operand(index, stored)


def _shifted(type_: Type | None) -> TensorType | None:
    """Return the type with int8 instead of uint8 storage; None for other types."""
    if not isinstance(type_, TensorType) or type_.quantization is None or type_.storage is not DType.UINT8:
        return None
    return type_.stored_as(shifted_to_int8(type_.quantization))
