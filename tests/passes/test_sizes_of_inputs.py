"""Sizes that are those of an input are read from it."""

from __future__ import annotations

import pytest

from onnxtfl.ir import ops
from onnxtfl.ir.text import parse_graph
from onnxtfl.passes.canonical.sizes_of_inputs import read_sizes_of_inputs


@pytest.mark.parametrize(
    ("axes", "source", "order"),
    [
        ("[0, 2]", "x", (1, 0)),
        ("[2]", "x", (0,)),
        ("none", "t", None),  # the other sizes are not those of an input
        ("[1]", "t", (1,)),
    ],
)
def test_sizes_are_read_from_the_input(axes: str, source: str, order: tuple[int, ...] | None) -> None:
    graph = parse_graph(f"""graph main(%z: tensor<[n]xfloat32>, %x: tensor<[m]x[n]x4xfloat32>) -> (%s) {{
      %t = Transpose(%x) {{permutation = [1, 2, 0]}}
      %s = Shape(%t) {{axes = {axes}}}
    }}""")
    read_sizes_of_inputs(graph)
    (shape,) = [node for node in graph.nodes if node.op is ops.Shape]
    assert (shape.operand(0).name, shape.attr("axes")) == (source, order)
