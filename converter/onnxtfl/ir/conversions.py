"""Values in another quantization: the Convert that quantizes, dequantizes or requantizes them."""

from __future__ import annotations

from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.graph import Graph, Value
from onnxtfl.ir.quantization import Quantization
from onnxtfl.ir.quantized import quantization_of


def converted(b: Builder, value: Value, quantization: Quantization | None) -> Value:
    """`value` in `quantization` (None: real); itself if it is in that."""
    if quantization_of(value) == quantization:
        return value
    made = b(ops.Convert, value, dtype=value.dtype)
    made.type = made.tensor_type.stored_as(quantization)
    return made


def output_instead(graph: Graph, old: Value, new: Value) -> None:
    """Let `new` be the output that `old` is, with its name and origins; other uses keep `old`."""
    new.name, new.origins, old.name = old.name, old.origins, None
    graph.outputs = [new if v is old else v for v in graph.outputs]
