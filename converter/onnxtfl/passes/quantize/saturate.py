"""Clamps real values that kernels do not saturate when they quantize them.

::

    %y = Convert(%x) : int8 0.5:3      ->      %y = Convert(Clamp(NaN of %x as -65.5, -65.5, 62.0)) : int8 0.5:3

QUANTIZE computes the integer in 32 bits before it saturates, and NaN becomes an arbitrary integer: results for masks of
-infinity would be wrong.

0 / 0, of normalizations whose variance is quantized to 0, becomes the lowest value without a test, for which delegates
have no kernel (t: 2**-100)::

    %x = Div(%a, %d)                   ->      %x = Div(Add(%a, lowest * t), Max(%d, t))
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from onnxtfl.ir import ops
from onnxtfl.ir.assumptions import assume
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.facts import never_negative
from onnxtfl.ir.graph import Graph, Node, Value, constant
from onnxtfl.ir.matching import made_by
from onnxtfl.passes.quantize.extremes import ORDINARY, Extremes, extremes
from onnxtfl.targets import Target

_MARGIN = 2.0**10
"""How much larger than estimated values may be: inputs of moderate magnitude are estimated as 1."""
_TINY = 2.0**-100
"""Smaller by far than divisors that are not 0, and so are its products with the quotients that saturate."""


def saturate_quantized(graph: Graph, target: Target) -> None:
    """Clamp values before quantization if they may be NaN or exceed the range that the kernels of `target` saturate."""
    steps = target.saturated_steps
    found = [node for node in graph.nodes if _quantizes(node)]
    if not found or steps is None:
        return
    known = extremes(graph)
    for node in found:
        quantization, x = node.result.tensor_type.quantization, node.operand(0)
        assert quantization is not None
        extreme, b = known.get(x, ORDINARY), Builder(graph, node, maker="saturate")
        far = extreme.largest * _MARGIN >= steps * min(quantization.scales)
        low, high = (constant(bound) for bound in quantization.bounds_along(x.rank))
        if extreme.nan:
            divided = _with_lowest_for_nan(b, x, low, known) if far and target.delegate_chain else None
            x = divided or b(ops.Select, b(ops.Compare, x, x, comparison_direction="NE"), low, x)
        if extreme.nan or far:
            node.set_operand(0, b(ops.Min, b(ops.Max, x, low), high) if far else x)


def _quantizes(node: Node) -> bool:
    return node.op is ops.Convert and node.result.is_quantized and not node.operand(0).is_quantized


def _with_lowest_for_nan(b: Builder, x: Value, low: Value, known: Mapping[Value, Extremes]) -> Value | None:
    """The quotient `x` with `low` for 0 / 0, and large values for other quotients by 0; None if others may be NaN.

    Other quotients are the same in steps: what is added to the dividend is less than 2**-90, the quotient of it by any
    divisor much less than half a step.
    """
    node = made_by(x, ops.Div)
    if node is None or len(x.uses) > 1 or x in b.graph.outputs or not low.is_single:
        return None
    dividend, divisor = node.operand(0), node.operand(1)
    if not never_negative(divisor) or any(_may_be_extreme(v, known) for v in (dividend, divisor)):
        return None
    assume("divisors of quantized quotients, and dividends by 0, are 0 or not less than 2**-64", is_minor=True)
    added = b.scalar(float(low.numpy().reshape(())) * _TINY, dividend)
    return b(ops.Div, b(ops.Add, dividend, added), b(ops.Max, divisor, b.scalar(_TINY, divisor)))


def _may_be_extreme(value: Value, known: Mapping[Value, Extremes]) -> bool:
    found = known.get(value, ORDINARY)
    return value.is_quantized or found.nan or math.isinf(found.largest)
