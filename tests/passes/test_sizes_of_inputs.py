"""Sizes of computed tensors that are read from an input."""

import numpy as np
import pytest

from onnxtfl.ir import ops
from onnxtfl.ir.interpret import run
from onnxtfl.ir.text import parse_graph
from onnxtfl.passes.canonical.sizes_of_inputs import read_sizes_of_inputs

END = 2**63 - 1


@pytest.mark.parametrize(
    ("axes", "order"),
    [
        ("[0, 2]", (1, 0)),
        ("[2]", (0,)),
        ("[1]", None),  # no dynamic size
    ],
)
def test_sizes_are_read_from_the_input(axes: str, order: tuple[int, ...] | None) -> None:
    graph = parse_graph(f"""graph main(%z: tensor<[n]xfloat32>, %x: tensor<[m]x[n]x4xfloat32>) -> (%s) {{
      %t = Transpose(%x) {{permutation = [1, 2, 0]}}
      %s = Shape(%t) {{axes = {axes}}}
    }}""")
    read_sizes_of_inputs(graph)
    found = [(node.operand(0).name, node.attr("axes")) for node in graph.nodes if node.op is ops.Shape]
    assert found == ([("x", order)] if order else [])
    assert order or (graph.outputs[0].is_constant and graph.outputs[0].numpy() == [4])


@pytest.mark.parametrize(
    ("made", "is_read"),
    [
        ("%t = Transpose(%x) {permutation = [1, 2, 0]}", True),
        ("%p = constant tensor<3x2xint64> [0, 1, 0, 0, 0, 0]\n %t = Pad(%x, %p)", True),
        ("%t = Concatenate(%x, %x, %x) {axis = 1}", True),
        (
            "%a = constant tensor<3xint64> [3, 0, 0]\n"
            f"%b = constant tensor<3xint64> [-4, {END}, {END}]\n"
            "%c = constant tensor<3xint64> [1, 1, 1]\n %t = Slice(%x, %a, %b, %c)",
            True,  # m - 7, or 0 where that is negative
        ),
        ("%r = constant tensor<2xint64> [4, -1]\n %t = Reshape(%x, %r)", True),
        (
            "%a = constant tensor<3xint64> [0, 0, 0]\n %b = constant tensor<3xint64> [9, 9, 9]\n"
            "%c = constant tensor<3xint64> [2, 1, 1]\n %t = Slice(%x, %a, %b, %c)",
            False,  # the size is a quotient
        ),
    ],
)
def test_sizes_are_computed_from_those_of_the_input(made: str, is_read: bool) -> None:
    graph = parse_graph(f"""graph main(%x: tensor<[m]x[n]x4xfloat32>) -> (%s) {{
      {made}
      %s = Shape(%t) {{dtype = !int32}}
    }}""")
    x = np.zeros((3, 5, 4), np.float32)
    (expected,) = run(graph, [x])
    read_sizes_of_inputs(graph)
    (sizes,) = run(graph, [x])
    assert sizes.dtype == np.int32
    np.testing.assert_array_equal(sizes, expected)
    found = [node.operand(0) is graph.inputs[0] for node in graph.nodes if node.op is ops.Shape]
    assert all(found) == is_read
