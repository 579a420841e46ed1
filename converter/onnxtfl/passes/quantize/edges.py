"""Quantized or float inputs and outputs, by option.

::

    (%x: float32) %q = Convert(%x) : int8 0.5:3    ->    (%q: int8 0.5:3)                         "int8"
    (%q: int8 0.5:3) ...                           ->    (%x: float32) %q = Convert(%x) ...       "float"

An input becomes 8-bit only if all its readers quantize it in the same way, an output only if it is dequantized from 8
bits; others are unchanged. "int16" is about 16 bits in the same way.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder, infer
from onnxtfl.ir.conversions import convert_quantization, quantization_read
from onnxtfl.ir.formula import Term
from onnxtfl.ir.graph import Graph, Node, Value, take_name
from onnxtfl.ir.quantization import Quantization, shifted_to_int8, shifted_to_uint8
from onnxtfl.ir.quantized import may_declare
from onnxtfl.ir.types import DType, TensorType

QuantizedIo = Literal["source", "float", "int8", "uint8", "int16"]


def set_quantized_io(graph: Graph, kind: QuantizedIo) -> bool:
    """Make the inputs and outputs of `graph` float, or 8-bit where they are quantized; False if they stay."""
    if kind == "source":
        return False
    for value in graph.inputs:
        if isinstance(value.type, TensorType):
            _set_input(graph, value, kind)
    for i, value in enumerate(graph.outputs):
        if isinstance(value.type, TensorType) and value not in graph.inputs:
            graph.outputs[i] = _output(graph, value, kind)
    return True


def count_steps_of_outputs(graph: Graph) -> None:
    """Return outputs quantized as int32, for which ONNX has no QuantizeLinear, as counts of steps (int32).

    ::

        (%y: float32, int32 0.5:3)    ->    %y = Convert(Clamp(RoundNearestEven(%x / 0.5) + 3)) : int32
    """
    for i, value in enumerate(graph.outputs):
        if not isinstance(value.type, TensorType) or value in graph.inputs:
            continue
        quantization = value.type.quantization
        if quantization is None or quantization.storage != "int32" or not quantization.per_tensor:
            continue
        b = Builder(graph, None, cause=value.producer, maker="quantized inputs and outputs")
        steps = Term(b, _as_real(b, value)) / quantization.scales[0]
        whole = steps.apply(ops.RoundNearestEven) + float(quantization.zero_points[0])
        counted = whole.clamp(-(2.0**31), float(np.nextafter(np.float32(2**31), np.float32(0)))).to(DType.INT32).value
        take_name(value, counted)
        graph.outputs[i] = counted


def _as_real(b: Builder, value: Value) -> Value:
    """Remove the quantization of an output from its node and the nodes that move its elements."""
    chain = [value]
    while not _is_computed(chain[-1]):
        moved = _only_moved(chain[-1].producer)
        if value.uses or moved is None or len(moved.uses) > 1:
            return convert_quantization(b, value, None)
        chain.append(moved)
    if value.uses:
        return convert_quantization(b, value, None)
    for real in chain:
        real.type = real.tensor_type.stored_as(None)
    return value


def _is_computed(value: Value) -> bool:
    """Whether `value` is computed by a node that may quantize its result."""
    return value.producer is not None and may_declare(value.producer, infer(value.producer)[value.index])


def _only_moved(node: Node | None) -> Value | None:
    """Return the only operand whose elements `node` moves."""
    moved = [] if node is None else node.moved_operands
    return moved[0] if len(moved) == 1 else None


def _set_input(graph: Graph, value: Value, kind: QuantizedIo) -> None:
    read = value.tensor_type.quantization or quantization_read(graph, value)
    if read is None or graph.is_output(value) or not _is_of(read, kind):
        return
    before, uses = value.tensor_type, list(value.uses)
    value.type = before.stored_as(None if kind == "float" else _stored(read, kind))
    if value.type == before:
        return
    b = Builder(graph, graph.first, maker="quantized inputs and outputs")
    made = convert_quantization(b, value, read)
    for user, index in uses:
        if before.quantization is None:
            graph.replace(user, [made])
        else:
            user.set_operand(index, made)


def _output(graph: Graph, value: Value, kind: QuantizedIo) -> Value:
    """Return the output stored as `kind` that replaces `value`."""
    node, source = value.producer, value
    if not value.is_quantized and node is not None and node.op is ops.Convert and node.operand(0).is_quantized:
        source = node.operand(0)
    quantization = source.tensor_type.quantization
    if quantization is None or not _is_of(quantization, kind):
        return value
    wanted = None if kind == "float" else _stored(quantization, kind)
    if wanted == value.tensor_type.quantization:
        return value
    b = Builder(graph, None if node is None else node.next, cause=node, maker="quantized inputs and outputs")
    made = convert_quantization(b, source, wanted)
    take_name(value, made)
    return made


def _is_of(quantization: Quantization, kind: QuantizedIo) -> bool:
    storages = ("int16",) if kind == "int16" else ("int8", "uint8")
    return quantization.per_tensor and quantization.storage in storages


def _stored(quantization: Quantization, kind: QuantizedIo) -> Quantization:
    """Return the type with the same real values stored as `kind`."""
    if quantization.storage == kind:
        return quantization
    return shifted_to_int8(quantization) if kind == "int8" else shifted_to_uint8(quantization)
