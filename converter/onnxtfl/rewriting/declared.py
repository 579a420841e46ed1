"""The quantization of a value that replaces another: that of the replaced value's declared type."""

from __future__ import annotations

from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.graph import Value
from onnxtfl.ir.quantized import may_declare
from onnxtfl.ir.types import TensorType, Type


def as_declared(b: Builder, value: Value, wanted: Type | None) -> Value:
    """Return `value` with the quantization of the type `wanted`.

    If `b` has just made the node that produces `value` and the result is not quantized, the type of that result is
    changed, so that it is rounded once. Any other value is quantized, dequantized or requantized by a Convert.
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
    """Whether `value` is an unquantized result of a node made by `b`, without uses so far."""
    node = value.producer
    if node is None or node not in b.created or value.uses or b.graph.is_output(value):
        return False
    return type_.quantization is None and may_declare(node, type_)
