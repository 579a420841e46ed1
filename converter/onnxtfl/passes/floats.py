"""Float types that the target computes in another float type.

::

    %y: float64 = Add(%x: float64, %c)     ->     %y: float32 = Add(%x: float32, %c')

    %y: float16 = MatMul(%x: float16, %w)  ->     %v = Convert(%w) float32; %u = Convert(%x) float32
                                                  %y = Convert(MatMul(%u, %v)) float16
"""

from __future__ import annotations

from typing import Literal

from onnxtfl.errors import UnsupportedError
from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.graph import Graph, Node, Value, constant
from onnxtfl.ir.types import DType, TensorType

_NARROW = {DType.FLOAT64: DType.FLOAT32, DType.COMPLEX128: DType.COMPLEX64}
_HALF = {DType.FLOAT16: DType.FLOAT32, DType.BFLOAT16: DType.FLOAT32}
_SMALL = 256
"""The most elements of a half-precision constant that is stored as float32."""


def narrow_float64(graph: Graph, mode: Literal["narrow", "error"]) -> None:
    """Compute everything that is float64 in float32, inputs and outputs too; UnsupportedError in mode "error"."""
    _refuse_bits(graph, _NARROW)
    for value in graph.inputs:
        _narrow_value(value, mode)
    for node in graph.nodes:
        for i, operand in enumerate(node.operands):
            if operand is not None and operand.is_constant:
                node.set_operand(i, _narrow_constant(operand))
        node.attributes = {k: _replaced(v, _NARROW) for k, v in node.attributes.items()}
        for result in node.results:
            _narrow_value(result, mode)
    graph.outputs = [_narrow_constant(v) for v in graph.outputs]


def _refuse_bits(graph: Graph, table: dict[DType, DType]) -> None:
    """UnsupportedError for ops that read the bits of a float whose type changes."""
    for node in graph.nodes:
        if node.op is ops.BitcastConvert and (node.operand(0).dtype in table or node.attr("dtype") in table):
            raise UnsupportedError(
                "it reads the bits of a float type that is computed in another type", node=node.name, op=node.op.name
            )


def _narrow_value(value: Value, mode: str) -> None:
    if isinstance(value.type, TensorType) and value.type.dtype in _NARROW:
        if mode == "error":
            raise UnsupportedError(
                "is float64", node=value.name, type_=value.type, hint="--float64 narrow computes in float32"
            )
        value.type = value.type.with_dtype(_NARROW[value.type.dtype])


def _narrow_constant(value: Value) -> Value:
    known = value.is_constant and value.dtype in _NARROW
    return _cast(value, _NARROW[value.dtype]) if known else value


def _cast(value: Value, dtype: DType) -> Value:
    """A constant in another float type; a quantized one keeps its stored integers."""
    assert value.data is not None
    data = value.data if value.is_quantized else value.data.cast(dtype)
    return constant(data, type_=value.tensor_type.with_dtype(dtype))


def _replaced(attribute: object, table: dict[DType, DType]) -> object:
    return table.get(attribute, attribute) if isinstance(attribute, DType) else attribute


def compute_in_float32(graph: Graph) -> None:
    """Compute float16 and bfloat16 in float32; inputs, outputs and weights keep their type and are converted."""
    _refuse_bits(graph, _HALF)
    widened = _Widening(graph)
    for node in list(graph.nodes):
        widened.node(node)
    widened.boundary()


def compute_region_in_float32(graph: Graph) -> None:
    """Compute float16 and bfloat16 in float32 in a region, whose inputs and outputs become float32."""
    _refuse_bits(graph, _HALF)
    for value in graph.inputs:
        if _is_half(value):
            value.type = value.tensor_type.with_dtype(DType.FLOAT32)
    widened = _Widening(graph)
    for node in list(graph.nodes):
        widened.node(node)
    graph.outputs = [widened.widened(v) if v.is_constant and _is_half(v) else v for v in graph.outputs]


def _is_half(value: Value | None) -> bool:
    return value is not None and isinstance(value.type, TensorType) and value.type.dtype in _HALF


class _Widening:
    """Widens the values of one graph; quantized values keep their storage, their real values become float32."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.inputs = {v: v.dtype for v in graph.inputs if _is_half(v) and not v.is_quantized}
        self.outputs = [v.dtype if _is_half(v) and not v.is_quantized else None for v in graph.outputs]
        for value in graph.inputs:
            if _is_half(value) and value.is_quantized:
                value.type = value.tensor_type.with_dtype(DType.FLOAT32)
        self.wide: dict[object, Value] = {}

    def node(self, node: Node) -> None:
        for i, operand in enumerate(node.operands):
            if operand is not None and (operand in self.inputs or (operand.is_constant and _is_half(operand))):
                node.set_operand(i, self.widened(operand))
        node.attributes = {k: _replaced(v, _HALF) for k, v in node.attributes.items()}
        for result in node.results:
            if _is_half(result):
                result.type = result.tensor_type.with_dtype(DType.FLOAT32)

    def boundary(self) -> None:
        """Convert the outputs back to the type that they had."""
        for i, dtype in enumerate(self.outputs):
            value = self.graph.outputs[i]
            if dtype is None or value.is_constant or value in self.inputs:
                continue
            self.graph.outputs[i] = Builder(self.graph, cause=value.producer, maker="floats")(
                ops.Convert, value, dtype=dtype
            )
            self.graph.outputs[i].name, value.name = value.name, None
            self.graph.outputs[i].origins = value.origins

    def widened(self, value: Value) -> Value:
        """`value`, a constant or an input, in float32."""
        key = value if value.data is None else (value.data.key, value.type)
        if key not in self.wide:
            self.wide[key] = self._convert(value)
        return self.wide[key]

    def _convert(self, value: Value) -> Value:
        if value.data is not None and (value.data.size <= _SMALL or value.data.dtype is not DType.FLOAT16):
            return _cast(value, DType.FLOAT32)
        return Builder(self.graph, self.graph.first, maker="floats")(ops.Convert, value, dtype=DType.FLOAT32)
