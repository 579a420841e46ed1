"""Concatenations read the result of one of their first or last operands."""

from __future__ import annotations

from onnxtfl.passes.canonical.shared_operands import share_operands
from tests.passes.helpers import op_counts, transformed

INPUTS = "graph main(%a: tensor<2x3xfloat32>, %b: tensor<2x3xfloat32>, %c: tensor<2x3xfloat32>) -> (%p, %q)"


def sizes(body: str) -> list[int]:
    """The numbers of operands of the concatenations after the pass."""
    graph = transformed(f"{INPUTS} {{\n{body}\n}}", share_operands)
    return [len(node.operands) for node in graph.nodes if node.op.name == "Concatenate"]


def test_a_dense_block() -> None:
    """Each layer reads what all layers before it made."""
    body = """%p = Concatenate(%a, %b) {axis = 1}
      %r = Concatenate(%a, %b, %c) {axis = 1}
      %q = Concatenate(%a, %b, %c, %a) {axis = -1}"""
    assert sizes(body) == [2, 2, 2]


def test_the_last_operands() -> None:
    assert sizes("%p = Concatenate(%b, %c) {axis = 1}\n %q = Concatenate(%a, %b, %c) {axis = 1}") == [2, 2]


def test_other_axes_and_orders_stay() -> None:
    assert sizes("%p = Concatenate(%a, %b) {axis = 0}\n %q = Concatenate(%a, %b, %c) {axis = 1}") == [2, 3]
    assert sizes("%p = Concatenate(%b, %a) {axis = 1}\n %q = Concatenate(%a, %b, %c) {axis = 1}") == [2, 3]


def test_another_quantization_stays() -> None:
    """The elements of %a would be rounded twice."""
    fine, coarse = "tensor<2x3xfloat32, quant<int8 0.25:0>>", "tensor<2x3xfloat32, quant<int8 0.5:0>>"
    text = f"""graph main(%a: {fine}, %b: {coarse}) -> (%p, %q) {{
      %p = Concatenate(%a, %b) {{axis = 1}} : tensor<2x6xfloat32, quant<int8 0.5:0>>
      %q = Concatenate(%a, %b, %a) {{axis = 1}} : tensor<2x9xfloat32, quant<int8 0.25:0>>
    }}"""
    graph = transformed(text, share_operands)
    assert [len(node.operands) for node in graph.nodes] == [2, 3]
    assert op_counts(graph) == {"Concatenate": 2}
