"""Products read an operand in the quantization that its kernel computes, without rounding it again.

::

    %a = Sigmoid(%x) : int8 1/256:-128
    %b = Convert(%a) : int8 0.0039:-128      ->      %y = Mul(%a, %x), if no element of %a is outside of the range of %b
    %y = Mul(%b, %x)
"""

from __future__ import annotations

import numpy as np

from onnxtfl.ir import ops
from onnxtfl.ir.facts import facts_of
from onnxtfl.ir.graph import Graph, Node, Value, attributes_of
from onnxtfl.ir.matching import made_by
from onnxtfl.ir.quantization import Quantization, limits
from onnxtfl.ir.quantized import quantization_of
from onnxtfl.targets import Target

_HALF = 0.5
"""In steps: what rounding changes as well."""
_WIDEST = 1.05
"""The largest ratio of steps: those of a result that is rounded to wider ones differ by more than its own rounding."""


def round_once(graph: Graph, target: Target) -> None:
    """Let products read values before a requantization that legalization inserted, where it saturates none."""
    for node in graph.nodes:
        if node.op is ops.Mul and node.result.is_quantized:
            for place in (0, 1):
                _skip(node, place, target)


def _skip(node: Node, place: int, target: Target) -> None:
    convert = made_by(node.operand(place), ops.Convert, quantized=True)
    if convert is None or "requantize" not in convert.made_by:
        return
    before, after = node.operand(place), convert.operand(0)
    wanted, own = quantization_of(before), quantization_of(after)
    if wanted is None or own is None or not (wanted.per_tensor and own.per_tensor):
        return
    if wanted.scales[0] > _WIDEST * own.scales[0] or not _is_inside(after, wanted):
        return
    node.set_operand(place, after)
    if target.accepted(node) is None:
        node.set_operand(place, before)


def _is_inside(value: Value, wanted: Quantization) -> bool:
    """Whether the real values that `value` is rounded from are at most half a step outside of the range of `wanted`."""
    node = value.producer
    if node is None or not node.op.monotonic or len(node.operands) != 1:
        return False
    found = facts_of(node.operand(0))
    ends = node.op.evaluate(attributes_of(node), np.asarray([found.low, found.high], np.float64))
    low, high = (float((limit - wanted.zero_points[0]) * wanted.scales[0]) for limit in limits(wanted.dtype))
    step = _HALF * wanted.scales[0]
    return bool(low - step <= np.min(ends) and np.max(ends) <= high + step)
