"""Real values only: clamps stay where stored integers saturate, and only there."""

from __future__ import annotations

import pytest

from onnxtfl.ir import ops
from onnxtfl.ir.text import parse_graph
from onnxtfl.passes.quantize.dequantize import dequantize_all

NARROW, WIDE = "quant<int8 0.25:0>", "quant<int8 0.5:0>"


def ops_of(node: str, result: str) -> list[type]:
    graph = parse_graph(f"""graph main(%x: tensor<1x4x4x3xfloat32, {WIDE}>) -> (%y) {{
      %a = {node} : tensor<{result}>
      %y = Convert(%a) {{dtype = !float32}} : tensor<{result.partition(",")[0]}>
    }}""")
    dequantize_all(graph)
    return [n.op for n in graph.nodes if n.op is not ops.Convert]


MEAN = 'Reduce(%x, _) {kind = "mean", keepdims = true}'
LARGEST = 'Reduce(%x, _) {kind = "max", keepdims = true}'
SUM = 'Reduce(%x, _) {kind = "sum", keepdims = true}'


@pytest.mark.parametrize(
    ("node", "result", "clamped"),
    [
        (MEAN, f"1x1x1x1xfloat32, {WIDE}", False),
        (LARGEST, f"1x1x1x1xfloat32, {WIDE}", False),
        (MEAN, f"1x1x1x1xfloat32, {NARROW}", True),
        (SUM, f"1x1x1x1xfloat32, {WIDE}", True),
        ("Max(%x, %x)", f"1x4x4x3xfloat32, {WIDE}", False),
        ("Add(%x, %x)", f"1x4x4x3xfloat32, {WIDE}", True),
        ("Relu6(%x)", f"1x4x4x3xfloat32, {WIDE}", False),
    ],
)
def test_elements_and_means_of_stored_values_are_not_clamped(node: str, result: str, clamped: bool) -> None:
    assert (ops.Clamp in ops_of(node, result)) == clamped
