"""int8 activations become uint8 for ONNX Runtime; inputs, outputs and weights do not."""

from __future__ import annotations

import numpy as np

from onnxtfl.ir.graph import Graph
from onnxtfl.ir.interpret import run
from onnxtfl.ir.text import parse_graph, print_graph
from onnxtfl.ir.verify import verify
from onnxtfl.passes.quantize import store_as_uint8

STORED = np.random.default_rng(0).integers(-128, 128, (2, 4)).astype(np.int8)


def _stored_as_uint8(text: str) -> Graph:
    graph = parse_graph(text)
    wanted = run(graph, [STORED])
    store_as_uint8(graph)
    verify(graph, "after")
    for found, array in zip(run(graph, [STORED]), wanted, strict=True):
        np.testing.assert_array_equal(found, array)
    return graph


def test_what_is_computed_and_read_is_uint8() -> None:
    graph = _stored_as_uint8("""
    graph main(%x: tensor<2x4xfloat32, quant<int8 0.5:3>>) -> (%z) {
      %s = constant tensor<2xint64> [4, 2]
      %a = Reshape(%x, %s) : tensor<4x2xfloat32, quant<int8 0.5:3>>
      %b = Tanh(%a) : tensor<4x2xfloat32, quant<int8 0.0078125:0>>
      %c = Transpose(%b) {permutation = [1, 0]} : tensor<2x4xfloat32, quant<int8 0.0078125:0>>
      %z = Sigmoid(%c) : tensor<2x4xfloat32, quant<int8 0.00390625:-128>>
    }""")
    found = [str(node.result.type) for node in graph.nodes]
    assert [t.split("quant<")[1].split(" ")[0] for t in found] == [
        "int8",
        "uint8",
        "uint8",
        "uint8",
        "uint8",
        "int8",
    ], found
    assert "0.5:131" in found[1]
    assert "0.5:3" in found[0]
    assert "0.00390625:-128" in found[5]


def test_weights_stay_int8_and_other_constants_do_not() -> None:
    graph = _stored_as_uint8("""
    graph main(%x: tensor<2x4xfloat32, quant<int8 0.5:3>>) -> (%z) {
      %w = constant tensor<3x4xfloat32, quant<int8 0.01:0>> [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]
      %c = constant tensor<3xfloat32, quant<int8 0.25:0>> [1, 2, -3]
      %a = DotGeneral(%x, %w) {lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [1]} :
        tensor<2x3xfloat32, quant<int8 0.1:0>>
      %z = Add(%a, %c) : tensor<2x3xfloat32, quant<int8 0.1:0>>
    }""")
    types = {node.op.name: str(node.operand(1).type) for node in graph.nodes if len(node.operands) > 1}
    assert "int8 0.01:0" in types["DotGeneral"]
    assert "uint8 0.25:128" in types["Add"]


def test_a_graph_of_one_op_stays_as_it_is() -> None:
    text = """
    graph main(%x: tensor<2x4xfloat32, quant<int8 0.5:3>>) -> (%z) {
      %z = Tanh(%x) : tensor<2x4xfloat32, quant<int8 0.0078125:0>>
    }"""
    assert print_graph(_stored_as_uint8(text)) == print_graph(parse_graph(text))
