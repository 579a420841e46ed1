"""Stores uint8 tensors as int8, for which kernels exist: 128 less, and so the zero point.

::

    %y = Relu(%x) : uint8 0.25:128    ->    %y = Relu(%x) : int8 0.25:0

Inputs and outputs keep their type and are converted. A graph whose convolutions have uint8 weights with another zero
point than 128 stays uint8: int8 kernels take no zero point for weights, uint8 kernels do.
"""

from __future__ import annotations

from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.graph import Graph, Node, Value, constant
from onnxtfl.ir.quantization import shifted_to_int8
from onnxtfl.ir.types import DType, TensorType, Type

_OFFSET = 128


def store_as_int8(graph: Graph) -> None:
    """Store quantized uint8 tensors as int8; inputs and outputs are converted."""
    if any(_has_weights_with_zero_point(node) for node in graph.nodes):
        return
    for value in graph.inputs:
        if _shifted(value.type) is not None:
            _convert_input(graph, value)
    outputs = graph.output_set()
    for node in list(graph.nodes):
        for i, operand in enumerate(node.operands):
            if operand is not None and operand.data is not None and (type_ := _shifted(operand.type)) is not None:
                node.set_operand(i, constant(operand.data.cast(DType.INT8, -_OFFSET), type_=type_))
        for result in node.results:
            type_ = _shifted(result.type)
            if type_ is not None and result in outputs:
                _convert_output(graph, result)
            if type_ is not None:
                result.type = type_


def _has_weights_with_zero_point(node: Node) -> bool:
    if not issubclass(node.op, ops.Convolution):
        return False
    type_ = _shifted(node.operand(1).type)
    return type_ is not None and type_.quantization is not None and any(type_.quantization.zero_points)


def _convert_input(graph: Graph, value: Value) -> None:
    users = list(value.uses)
    if all(user.op is ops.Convert for user, _ in users):
        return
    b = Builder(graph, graph.first, maker="int8 storage")
    stored = b(ops.Convert, value, dtype=value.dtype)
    stored.type = _shifted(value.type)
    for user, index in users:
        user.set_operand(index, stored)


def _convert_output(graph: Graph, value: Value) -> None:
    """Let the output be converted from `value`, which its other users keep."""
    producer = value.producer
    if producer is None or producer.op is ops.Convert:
        return
    b = Builder(graph, producer.next, cause=producer, maker="int8 storage")
    made = b(ops.Convert, value, dtype=value.dtype)
    made.type, made.name, made.origins = value.type, value.name, value.origins
    value.name = None
    graph.outputs = [made if v is value else v for v in graph.outputs]


def _shifted(type_: Type | None) -> TensorType | None:
    """The type with int8 instead of uint8 storage; None for other types."""
    quantization = type_.quantization if isinstance(type_, TensorType) else None
    if not isinstance(type_, TensorType) or quantization is None or quantization.storage != "uint8":
        return None
    return type_.stored_as(shifted_to_int8(quantization))
