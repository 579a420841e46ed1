"""Clamps real values that kernels do not saturate when they quantize them.

::

    %y = Convert(%x) : int8 0.5:3      ->      %y = Convert(Clamp(NaN of %x as -65.5, -65.5, 62.0)) : int8 0.5:3

QUANTIZE computes the integer in 32 bits before it saturates, and NaN becomes an arbitrary integer: results for masks of
-infinity would be wrong.
"""

from __future__ import annotations

from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.graph import Graph, Node, Value, constant
from onnxtfl.ir.quantization import Quantization
from onnxtfl.passes.quantize.extremes import ORDINARY, Extremes, extremes
from onnxtfl.targets import Target


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
        extreme = known.get(x, ORDINARY)
        far = extreme.largest >= steps * min(quantization.scales)
        if extreme.nan or far:
            node.set_operand(0, _saturated(Builder(graph, node, maker="saturate"), x, quantization, extreme, far))


def _quantizes(node: Node) -> bool:
    return node.op is ops.Convert and node.result.is_quantized and not node.operand(0).is_quantized


def _saturated(b: Builder, x: Value, quantization: Quantization, extreme: Extremes, far: bool) -> Value:
    low, high = (constant(bound) for bound in quantization.bounds_along(x.rank))
    if extreme.nan:
        x = b(ops.Select, b(ops.Compare, x, x, comparison_direction="NE"), low, x)
    return b(ops.Min, b(ops.Max, x, low), high) if far else x
