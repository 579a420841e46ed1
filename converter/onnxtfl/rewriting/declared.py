"""Declared quantization: a value that replaces another gets the quantization of its declared type."""

from __future__ import annotations

from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.graph import Value
from onnxtfl.ir.quantization import Quantization
from onnxtfl.ir.quantized import may_declare, quantization_of
from onnxtfl.ir.types import TensorType, Type


def as_declared(b: Builder, value: Value, wanted: Type | None) -> Value:
    """Return `value` with the quantization of the type `wanted`.

    If `b` has just created the producer of `value` and the result is not quantized, the type of that result changes, so
    that it is rounded once. Any other value gets a Convert. Plain integers have no scale, even if the file declares
    one: kernels ignore it. ValueError if they cannot be stored in the wanted type.
    """
    if not isinstance(wanted, TensorType) or not isinstance(value.type, TensorType):
        return value
    if value.type.quantization == wanted.quantization:
        return value
    if wanted.quantization is not None and not (value.dtype.is_float or value.is_quantized):
        if wanted.quantization.dtype is not value.dtype:
            raise ValueError(f"the result is {value.dtype.value}, not quantized {wanted.quantization.dtype.value}")
        return value
    if not _may_declare(b, value, value.type) and not _declare_moved(b, value, wanted):
        value = b(ops.Convert, value, dtype=value.dtype)
    value.type = value.tensor_type.stored_as(wanted.quantization)
    return value


def _declare_moved(b: Builder, value: Value, wanted: TensorType) -> bool:
    """Quantize the operand that the node of `value` moves, if `b` has created both; return whether it did."""
    node, quantization = value.producer, wanted.quantization
    if node is None or node not in b.created or len(value.uses) or len(node.results) != 1:
        return False
    moved = node.moved_operands
    if len(moved) != 1 or len(moved[0].uses) != 1 or quantization is None or not quantization.per_tensor:
        return False
    (use,) = moved[0].uses
    node.set_operand(use[1], None)
    declared = as_declared(b, moved[0], moved[0].tensor_type.stored_as(quantization))
    if declared.producer is not None and declared.producer.op is ops.Convert and declared is not moved[0]:
        maker = declared.producer
        b.graph.unlink(maker)
        b.graph.insert(maker, node)
    node.set_operand(use[1], declared)
    return True


def _may_declare(b: Builder, value: Value, type_: TensorType) -> bool:
    """Whether `value` is an unquantized, unused result of a node created by `b`."""
    node = value.producer
    if node is None or node not in b.created or value.uses or b.graph.is_output(value):
        return False
    return type_.quantization is None and may_declare(node, type_)


def reinterpret_stored(b: Builder, value: Value, quantization: Quantization) -> Value:
    """Reinterpret the stored integers of `value` (per-tensor parameters) with `quantization`.

    With scale s and zero point z, stored q is s (q - z); the new parameters t and y make it x t / s + t (z - y).
    """
    given = quantization_of(value)
    if given is None:
        raise ValueError(f"{value} is not quantized")
    scale, new = given.scales[0], quantization.scales[0]
    real = b(ops.Convert, value, dtype=value.dtype)
    scaled = b(ops.Mul, real, b.scalar(new / scale, real))
    moved = b(ops.Add, scaled, b.scalar(new * (given.zero_points[0] - quantization.zero_points[0]), real))
    return as_declared(b, moved, value.tensor_type.stored_as(quantization))
