"""The allowed error of a tensor from the kernels that compute it: in quantization steps, or as a real value."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from onnxtfl.checking.models.facts import SIGMOID_ERROR
from onnxtfl.ir.graph import Node, Value
from onnxtfl.ir.quantized import quantization_of
from onnxtfl.targets.target import as_form
from onnxtfl.targets.tflite import TfliteTarget

_MEASURED = TfliteTarget()


def coarseness(nodes: Iterable[Node]) -> float:
    """The largest measured error of the TFLite kernels of nodes, in steps."""
    tfl = [node for node in nodes if node.op.dialect == "tfl"]
    return float(max((_MEASURED.steps_off(as_form(node), node.results) for node in tfl), default=0))


def dequantized_step(value: Value, is_known: Callable[[Value], bool]) -> float | None:
    """The step of a real value that is dequantized from a tensor rounded here; None for other values."""
    node = value.producer
    source = node.operands[0] if node is not None and len(node.operands) == 1 else None
    inner = None if source is None or is_known(source) else quantization_of(source)
    return inner.scales[0] if inner is not None and inner.per_tensor and quantization_of(value) is None else None


def roundings(value: Value, is_known: Callable[[Value], bool]) -> float:
    """The allowed error of a quantized tensor in steps: one (more if its kernel was measured to be less exact), and one
    of the tensor from which it is requantized, if that is rounded here too.
    """
    quantization, node = quantization_of(value), value.producer
    source = node.operands[0] if node is not None and len(node.operands) == 1 else None
    inner = None if source is None or is_known(source) else quantization_of(source)
    found = max(1.0, 0.0 if node is None else _MEASURED.steps_off(as_form(node), node.results))
    if quantization is not None and inner is not None and quantization.per_tensor and inner.per_tensor:
        found += inner.scales[0] / quantization.scales[0]
    return found


def least_error(value: Value, sigmoids: Collection[str]) -> float:
    """The error that a real value of the first model may always have; ``sigmoids``: see `Facts`."""
    return SIGMOID_ERROR if value.name in sigmoids else 0.0
