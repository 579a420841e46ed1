"""Replaces dequantized constants by float constants.

::

    %w = constant : 64x64xfloat32, quant<int8 0.01:0>
    %r = Convert(%w) : float32                            ->    %r = constant : 64x64xfloat32
    %y = DotGeneral(%x, %r)                                     %y = DotGeneral(%x, %r)

The file grows by a factor of four, but no RAM is needed for the dequantized values, which matters on microcontrollers.
"""

from __future__ import annotations

from onnxtfl.ir import ops
from onnxtfl.ir.conversions import dequantized_constant
from onnxtfl.ir.graph import Graph
from onnxtfl.ir.types import DType


def store_real_constants(graph: Graph) -> bool:
    """Replace dequantizations of constants; return whether there were any."""
    changed = False
    for node in list(graph.nodes):
        if node.op is not ops.Convert or not node.operand(0).is_constant or not node.operand(0).is_quantized:
            continue
        if node.result.dtype is DType.FLOAT32 and not node.result.is_quantized and not graph.is_output(node.result):
            graph.replace(node, [dequantized_constant(node.operand(0))])
            changed = True
    return changed
