"""Replaces constants that are dequantized at run time by float constants.

::

    %w = constant : 64x64xfloat32, quant<int8 0.01:0>
    %r = Convert(%w) : float32                            ->    %r = constant : 64x64xfloat32
    %y = DotGeneral(%x, %r)                                     %y = DotGeneral(%x, %r)

Four times as many bytes in the file, and none in the memory of each run: of this microcontrollers have less.
"""

from __future__ import annotations

from onnxtfl.ir import ops
from onnxtfl.ir.conversions import dequantized_constant
from onnxtfl.ir.graph import Graph
from onnxtfl.ir.types import DType


def store_real_constants(graph: Graph) -> bool:
    """Replace what dequantizes constants; returns whether there was any."""
    changed = False
    for node in list(graph.nodes):
        if node.op is not ops.Convert or not node.operand(0).is_constant or not node.operand(0).is_quantized:
            continue
        if node.result.dtype is DType.FLOAT32 and not node.result.is_quantized and not graph.is_output(node.result):
            graph.replace(node, [dequantized_constant(node.operand(0))])
            changed = True
    return changed
