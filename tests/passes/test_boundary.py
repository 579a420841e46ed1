"""The model's edge: shapes of inputs, cuts, outputs that are inputs or stand twice, names."""

import pytest

from onnxtfl.errors import UsageError
from onnxtfl.ir.text import parse_graph
from onnxtfl.passes.boundary.parts import cut, keep_names, separate_outputs, set_input_shapes
from onnxtfl.passes.types.floats import compute_in_float32, narrow_float64
from tests.passes.helpers import only_node, op_counts

CHAIN = """graph main(%x: tensor<[n]x3xfloat32>, %z: tensor<[n]x3xfloat32>) -> (%y) {
  %a = Exp(%x)
  %b = Add(%a, %z)
  %y = Log(%b)
}"""


def no_definition(node):
    return None


def test_shapes_are_fixed_named_and_opened() -> None:
    graph = parse_graph(CHAIN)
    assert not set_input_shapes(graph, {"x": [2, 3]})
    assert graph.inputs[0].shape == (2, 3)
    assert set_input_shapes(graph, {"x": ["batch", -1]})
    assert str(graph.inputs[0].shape[0]) == "batch"
    assert not isinstance(graph.inputs[0].shape[1], int)


@pytest.mark.parametrize("shapes", [{"q": [1, 3]}, {"x": [1]}])
def test_shapes_that_do_not_fit_are_refused(shapes: dict[str, list[int]]) -> None:
    with pytest.raises(UsageError):
        set_input_shapes(parse_graph(CHAIN), shapes)


def test_a_part_is_cut_out() -> None:
    graph = parse_graph(CHAIN)
    assert cut(graph, ["a", "z"], ["b"], no_definition) == ["b"]
    assert [v.name for v in graph.inputs] == ["a", "z"]
    assert op_counts(graph) == {"Add": 1}


def test_a_cut_that_leaves_inputs_open_is_refused() -> None:
    with pytest.raises(UsageError, match="'z'"):
        cut(parse_graph(CHAIN), ["a"], None, no_definition)


def test_a_cut_at_an_unknown_tensor_is_refused() -> None:
    with pytest.raises(UsageError, match="'nowhere'"):
        cut(parse_graph(CHAIN), None, ["nowhere"], no_definition)


def test_outputs_are_values_of_their_own() -> None:
    graph = parse_graph("""graph main(%x: tensor<2xfloat32>) -> (%x, %y, %y, %c) {
      %c = constant tensor<2xfloat32> [1.0, 2.0]
      %y = Exp(%x)
    }""")
    separate_outputs(graph)
    assert op_counts(graph) == {"Exp": 1, "Copy": 3}
    assert len(set(graph.outputs)) == 4


def test_names_stay_at_the_outputs() -> None:
    graph = parse_graph(CHAIN)
    graph.output_names = ["b"]
    keep_names(graph)
    assert graph.outputs[0].name == "b"
    assert [r.name for n in graph.nodes for r in n.results] == ["a", None, "b"]


def test_float64_is_computed_in_float32() -> None:
    graph = parse_graph("""graph main(%x: tensor<2xfloat64>) -> (%y) {
      %c = constant tensor<2xfloat64> [1.0, 2.0]
      %a = Add(%x, %c)
      %y = Convert(%a) {dtype = !float64}
    }""")
    narrow_float64(graph, "narrow")
    assert {v.dtype.value for n in graph.nodes for v in [*n.operands, *n.results]} == {"float32"}


def test_half_precision_keeps_its_weights_and_edges() -> None:
    numbers = ", ".join("1" * 300)
    graph = parse_graph(f"""graph main(%x: tensor<300xfloat16>) -> (%y) {{
      %c = constant tensor<300xfloat16> [{numbers}]
      %y = Mul(%x, %c)
    }}""")
    compute_in_float32(graph)
    assert graph.inputs[0].dtype.value == graph.outputs[0].dtype.value == "float16"
    product = only_node(graph, "Mul")
    assert product.result.dtype.value == "float32"
    assert any(n.operand(0).is_constant and n.operand(0).dtype.value == "float16" for n in graph.nodes)
