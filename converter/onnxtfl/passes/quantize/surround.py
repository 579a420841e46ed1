"""Adds Q/DQ pairs after ops that move dequantized elements, as ONNX Runtime's integer kernels require.

::

    %a = Convert(%q) : float32              %a = Convert(%q) : float32
    %b = Reshape(%a)                  ->    %c = Reshape(%a)
                                            %d = Convert(%c) : float32 as int8 0.25:3
                                            %b = Convert(%d) : float32

This is exact, since the elements are representable. ONNX Runtime's QDQPropagationTransformer (1.31) adds missing pairs,
at opset 21 with the dtype of another zero point, and then refuses the model. Its MatMulAddFusion reshapes to fuse a
product and an added row to Gemm; that form is therefore written here::

    %a = Convert(%q) : 2x3x4xfloat32              %b = Reshape(%a) : 6x4xfloat32
    %m = DotGeneral(%a, %w) : 2x3x8         ->    %m = DotGeneral(%b, %w) : 6x8
    %y = Add(%m, %row)                            %y = Reshape(Add(%m, %row)) : 2x3x8
"""

from __future__ import annotations

from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.conversions import convert_quantization, output_instead
from onnxtfl.ir.dims import product
from onnxtfl.ir.graph import Graph, Node, Value
from onnxtfl.ir.quantized import quantization_of, touches_quantized
from onnxtfl.ir.reshape import has_constant_target, reshape


def surround_moves(graph: Graph) -> None:
    """Quantize and dequantize the results of moves of dequantized elements, also in products with an added row."""
    for node in list(graph.nodes):
        source = node.operands[0].producer if node.operands and node.operands[0] is not None else None
        if node.op.moves is None or source is None or source.op is not ops.Convert or len(node.results) != 1:
            continue
        quantization = source.operand(0).tensor_type.quantization
        if quantization is None or not quantization.per_tensor or source.result.is_quantized or node.op.inserts:
            continue
        if node.op.moves == slice(0, 1) and not _is_quantized_next(node.result):
            _surround(graph, node.result)
    for node in list(graph.nodes):
        if node.op is ops.DotGeneral and _is_row_product(graph, node):
            _flatten(graph, node)


def _is_quantized_next(value: Value) -> bool:
    return bool(value.uses) and all(user.op is ops.Convert and user.result.is_quantized for user in value.users())


def _surround(graph: Graph, value: Value) -> None:
    node = value.producer
    assert node is not None
    source = node.operand(0).producer
    assert source is not None
    uses, b = list(value.uses), Builder(graph, node.next, cause=node, maker="surround moves")
    real = convert_quantization(b, convert_quantization(b, value, quantization_of(source.operand(0))), None)
    for user, index in uses:
        user.set_operand(index, real)
    if graph.is_output(value):
        output_instead(graph, value, real)


def _is_row_product(graph: Graph, node: Node) -> bool:
    """Whether a row is added to this product of a dequantized tensor of rank >= 3 and a matrix."""
    rows, matrix, user = node.operand(0), node.operand(1), next(iter(node.result.users()), None)
    source = rows.producer
    if source is None or source.op is not ops.Convert or not source.operand(0).is_quantized or touches_quantized(node):
        return False
    if rows.rank < 3 or matrix.rank != 2 or node.attr("lhs_batching_dimensions") or node.attr("output_permutation"):
        return False
    ways = node.attr("lhs_contracting_dimensions"), node.attr("rhs_contracting_dimensions")
    if [list(way) for way in ways] != [[rows.rank - 1], [0]] or not has_constant_target(node.result.shape):
        return False
    if user is None or user.op is not ops.Add or len(node.result.uses) != 1 or graph.is_output(node.result):
        return False
    if touches_quantized(user):
        return False
    other = user.operand(1 - user.operands.index(node.result))
    return other.shape[-1:] == node.result.shape[-1:] and set(other.shape[:-1]) <= {1}


def _flatten(graph: Graph, node: Node) -> None:
    """Compute the product and the sum on rank 2."""
    rows, matrix = node.operand(0), node.operand(1)
    (add,) = node.result.users()
    other = add.operand(1 - add.operands.index(node.result))
    b = Builder(graph, add, cause=node, maker="surround moves")
    flat = reshape(b, rows, [product(rows.shape[:-1]), rows.shape[-1]])
    contracting = {"lhs_contracting_dimensions": [1], "rhs_contracting_dimensions": [0]}
    total = b(ops.Add, b(ops.DotGeneral, flat, matrix, **contracting), reshape(b, other, other.shape[-1:]))
    graph.replace(add, [reshape(b, total, add.result.shape)])
    graph.remove(node)
    _surround(graph, flat)
