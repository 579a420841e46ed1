"""Quantizes what ops that move elements make of dequantized values, as ONNX Runtime's integer kernels expect it.

::

    %a = Convert(%q) : float32              %a = Convert(%q) : float32
    %b = Reshape(%a)                  ->    %c = Reshape(%a)
                                            %d = Convert(%c) : float32 as int8 0.25:3
                                            %b = Convert(%d) : float32

This is exact, as the elements are on the grid. ONNX Runtime adds such pairs itself where they are missing, at opset 21
with the type of another zero point, and then refuses the model (its optimizer QDQPropagationTransformer, 1.31).
"""

from __future__ import annotations

from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.conversions import converted, output_instead
from onnxtfl.ir.graph import Graph, Value
from onnxtfl.ir.quantized import quantization_of


def surround_moves(graph: Graph) -> None:
    """Quantize and dequantize the results of ops that move dequantized elements."""
    for node in list(graph.nodes):
        source = node.operands[0].producer if node.operands and node.operands[0] is not None else None
        if node.op.moves is None or source is None or source.op is not ops.Convert or len(node.results) != 1:
            continue
        quantization = source.operand(0).tensor_type.quantization
        if quantization is None or not quantization.per_tensor or source.result.is_quantized or node.op.inserts:
            continue
        if node.op.moves == slice(0, 1) and not _is_quantized_next(node.result):
            _surround(graph, node.result)


def _is_quantized_next(value: Value) -> bool:
    return bool(value.uses) and all(user.op is ops.Convert and user.result.is_quantized for user in value.users())


def _surround(graph: Graph, value: Value) -> None:
    node = value.producer
    assert node is not None
    source = node.operand(0).producer
    assert source is not None
    uses, b = list(value.uses), Builder(graph, node.next, cause=node, maker="surround moves")
    real = converted(b, converted(b, value, quantization_of(source.operand(0))), None)
    for user, index in uses:
        user.set_operand(index, real)
    if graph.is_output(value):
        output_instead(graph, value, real)
