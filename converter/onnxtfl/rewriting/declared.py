"""How a value is stored where the value that it replaces was declared to be quantized, or not to be."""

from __future__ import annotations

from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.graph import Value
from onnxtfl.ir.quantized import may_declare
from onnxtfl.ir.types import TensorType, Type


def as_declared(b: Builder, value: Value, wanted: Type | None) -> Value:
    """`value` stored as the type `wanted` says.

    A node that `b` just made, of a real result, declares this so, and rounds once; any other value is converted:
    quantized, dequantized, or quantized anew.
    """
    if not isinstance(wanted, TensorType) or not isinstance(value.type, TensorType):
        return value
    if value.type.quantization == wanted.quantization:
        return value
    if not _may_declare(b, value, value.type):
        value = b(ops.Convert, value, dtype=value.dtype)
    value.type = value.tensor_type.stored_as(wanted.quantization)
    return value


def _may_declare(b: Builder, value: Value, type_: TensorType) -> bool:
    """Whether a node made by `b` gives the real numbers `value`, which nothing has seen yet."""
    node = value.producer
    if node is None or node not in b.created or value.uses or b.graph.shows(value):
        return False
    return type_.quantization is None and may_declare(node, type_)
