"""What putting ops on quantized types does with constants and with ops that move elements."""

from __future__ import annotations

import numpy as np
import pytest

from onnxtfl.ir import ops
from onnxtfl.ir.graph import Node
from onnxtfl.ir.interpret import run
from onnxtfl.ir.text import parse_graph
from onnxtfl.passes.quantize import fuse_quantized, read_quantized_types
from onnxtfl.targets.tflite import TfliteTarget
from tests.passes.helpers import only_node, op_counts, simplify

CONVERT = "{dtype = !float32}"
TARGET = TfliteTarget()


@pytest.mark.parametrize("number", [0.0, 0.1, -3.7, 1e-6, 12345.678, 3e5])
@pytest.mark.parametrize(("storage", "zero"), [("int8", 3), ("uint8", 130), ("int16", 0)])
def test_a_scalar_of_a_binary_op_is_quantized_without_rounding(number: float, storage: str, zero: int) -> None:
    text = f"""graph main(%q: tensor<4xfloat32, quant<{storage} 0.5:{zero}>>) -> (%y) {{
      %x = Convert(%q) {CONVERT}
      %c = constant tensor<float32> [{np.float32(number)!s}]
      %s = Add(%x, %c)
      %y = Convert(%s) {CONVERT} : tensor<4xfloat32, quant<{storage} 0.5:{zero}>>
    }}"""
    graph = parse_graph(text)
    fuse_quantized(graph)
    node = only_node(graph, "Add")
    scalar = node.operand(1)
    assert scalar.is_quantized and scalar.tensor_type.storage.value == storage
    assert scalar.numpy() == np.float32(number)


def test_quantizing_moves_before_what_moves_elements() -> None:
    """So that the largest of quantized values is computed on integers."""
    text = f"""graph main(%q: tensor<2x4xfloat32, quant<int8 0.5:3>>) -> (%y) {{
      %x = Convert(%q) {CONVERT}
      %axes = constant tensor<1xint64> [1]
      %m = Reduce(%x, %axes) {{kind = "max", keepdims = true}}
      %shape = constant tensor<2xint64> [2, 4]
      %b = BroadcastTo(%m, %shape)
      %y = Convert(%b) {CONVERT} : tensor<2x4xfloat32, quant<int8 0.25:0>>
    }}"""
    graph, twin = parse_graph(text), parse_graph(text)
    fuse_quantized(graph)
    simplify(graph)
    assert op_counts(graph) == {"Reduce": 1, "BroadcastTo": 1}
    stored = np.arange(-4, 4, dtype=np.int8).reshape(2, 4)
    np.testing.assert_array_equal(run(graph, [stored])[0], run(twin, [stored])[0])


def _padded_integers(value: str) -> str:
    return f"""graph main(%x: tensor<3xfloat32>) -> (%y) {{
      %s = constant tensor<float32> [0.5]
      %z = constant tensor<uint8> [9]
      %q = QuantizeLinear(%x, %s, %z) {{dtype = !uint8, axis = 0}}
      %rows = constant tensor<1x2xint64> [1, 0]
      %value = constant tensor<uint8> [{value}]
      %p = Pad(%q, %rows{", %value" if value else ""})
      %y = DequantizeLinear(%p, %s, %z) {{axis = 0}}
    }}""".replace("      %value = constant tensor<uint8> []\n", "")


@pytest.mark.parametrize(("value", "real"), [("9", 0.0), ("11", 1.0), ("", -4.5)])
def test_padding_of_stored_integers_is_padding_of_real_values(value: str, real: float) -> None:
    """Without a value integers are padded by a stored 0, whose real value is not 0."""
    graph = parse_graph(_padded_integers(value))
    read_quantized_types(graph, TARGET)
    fuse_quantized(graph)
    assert not any(n.op in (ops.QuantizeLinear, ops.DequantizeLinear) for n in graph.nodes)
    np.testing.assert_array_equal(run(graph, [np.float32([1, 2, 3])])[0], np.float32([real, 1, 2, 3]))


def test_small_constants_that_float_ops_read_are_folded() -> None:
    text = f"""graph main(%x: tensor<3xfloat32>) -> (%y) {{
      %c = constant tensor<3xfloat32, quant<int8 0.5:1>> [1, 2, 3]
      %r = Convert(%c) {CONVERT}
      %e = Exp(%r)
      %y = Mul(%x, %e)
    }}"""
    graph = parse_graph(text)
    fuse_quantized(graph)
    simplify(graph)
    assert op_counts(graph) == {"Mul": 1}


def _sum(storage: str) -> Node:
    text = f"""graph main(%a: tensor<4xfloat32, quant<{storage} 0.5:0>>, %b: tensor<4xfloat32, quant<{storage} 0.3:0>>)
      -> (%y) {{
      %y = Add(%a, %b) : tensor<4xfloat32, quant<{storage} 0.7:0>>
    }}"""
    (node,) = parse_graph(text.replace("\n      ->", " ->")).nodes
    return node


@pytest.mark.parametrize("storage", ["int8", "int16"])
def test_sums_of_int16_have_any_scales(storage: str) -> None:
    """LiteRT takes them for powers of two otherwise, and refuses others."""
    form = TARGET.accepted(_sum(storage))
    assert form is not None and form.op == "ADD"
    assert {k: v for k, v in form.attributes.items() if k == "pot_scale_int16"} == {"pot_scale_int16": False}


def test_the_reason_names_the_operand_that_is_not_quantized() -> None:
    text = """graph main(%x: tensor<2x3xfloat32, quant<int8 0.5:3>>) -> (%y) {
      %a = Convert(%x) {dtype = !float32}
      %w = constant tensor<3x2xfloat32> [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
      %b = constant tensor<2xfloat32> [1.0, 2.0]
      %p = DotGeneralBias(%a, %w, %b) {lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [0]}
      %y = Convert(%p) {dtype = !float32} : tensor<2x2xfloat32, quant<int8 0.5:3>>
    }"""
    graph = parse_graph(text)
    fuse_quantized(graph)
    (product,) = (node for node in graph.nodes if node.op is ops.DotGeneralBias)
    assert [(r.kind, r.text) for r in product.remarks] == [("float", "rhs is a float constant")]
