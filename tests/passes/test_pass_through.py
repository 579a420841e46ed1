"""Loops return what they only read."""

from onnxtfl.ir import ops
from onnxtfl.ir.text import parse_graph
from onnxtfl.passes.tfl.pass_through import pass_through
from tests.fuzz.both_ways import assert_converts_both_ways

V = "tensor<2xfloat32>"
LOOP = f"""graph main(%i: tensor<int32>, %x: {V}, %y: {V}) -> (%a, %b, %c) {{
  %a, %b, %c = tfl.WHILE@1(%i, %x, %y) {{
    cond_subgraph_index = graph cond(%i1: tensor<int32>, %x1: {V}, %y1: {V}) -> (%t) {{
      %n = constant tensor<int32> [3]
      %t = tfl.LESS@1(%i1, %n) : tensor<bool>
    }},
    body_subgraph_index = graph body(%i2: tensor<int32>, %x2: {V}, %y2: {V}) -> (%i3, %x3, %y3) {{
      %one = constant tensor<int32> [1]
      %s = constant tensor<1xint32> [2]
      %i3 = tfl.ADD@1(%i2, %one) : tensor<int32>
      %x3 = tfl.RESHAPE@1(%x2, %s) : {V}
      %y3 = tfl.RESHAPE@1(%x2, %s) : {V}
    }}
  }} : tensor<int32>, {V}, {V}
}}"""


def test_copies_at_the_same_place_are_removed() -> None:
    """%x3 is %x2, but %y3 is not %y2."""
    graph = parse_graph(LOOP)
    (loop,) = graph.nodes
    body = loop.attr("body_subgraph_index")
    loop.lowered_from = ops.While
    for node in list(body.nodes)[1:]:
        node.lowered_from = ops.Copy
    pass_through(graph)
    assert [node.op.name for node in body.nodes] == ["tfl.ADD", "tfl.RESHAPE"]
    assert body.outputs[1] is body.inputs[1]
    assert body.outputs[2] is not body.inputs[2]


def test_an_input_that_is_an_output_in_both_directions() -> None:
    assert_converts_both_ways("g (float[2, 3] x) => (float[2, 3] x, float y) { y = Relu (x) }")
