"""Functions whose calls have graphs as attributes, and calls of subgraphs."""

from __future__ import annotations

import io

import numpy as np
import onnx.parser
import pytest
from onnx import TensorProto, helper

import onnxtfl
from onnxtfl.errors import InvalidModelError
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.graph import Graph
from onnxtfl.ir.interpret import run
from onnxtfl.ir.types import tensor
from onnxtfl.options import Options
from onnxtfl.passes.canonical import inline
from onnxtfl.pipeline import onnx_to_tflite
from onnxtfl.rewriting.lift import lift
from tests.harness.rounds import floats, invoked

FUNCTIONS = """
<ir_version: 9, opset_import: ["" : 17, "local" : 1]>
main (bool c, float[3] x, float[3] k) => (float[3] y) {
  w = Exp(k)
  y = local.Outer <mod = scaled () => (float[3] s) { s = Mul(x, w) }> (c, x)
}
<domain: "local", opset_import: ["" : 17, "local" : 1]>
Outer <mod> (c, x) => (y) {
  t = local.Choose <mod : graph = @mod> (c, x)
  y = Neg(t)
}
<domain: "local", opset_import: ["" : 17]>
Choose <mod> (c, x) => (y) {
  u = Sin(x)
  y = If (c) <then_branch : graph = @mod, else_branch = other () => (float[3] o) { o = Add(u, x) }>
}
"""


@pytest.mark.parametrize("condition", [False, True])
def test_functions_take_graphs_that_capture_values(condition: bool) -> None:
    """ONNX Runtime refuses such attributes."""
    there, x, k = io.BytesIO(), floats(3), floats(3) / 2
    onnx_to_tflite(onnx.parser.parse_model(FUNCTIONS).SerializeToString(), there, Options(debug=True))
    ((got,),) = invoked(there.getvalue(), [{"c": np.asarray(condition), "x": x, "k": k}], "AUTO")
    np.testing.assert_allclose(got, -(x * np.exp(k)) if condition else -(np.sin(x) + x), rtol=1e-5)


def test_graphs_that_functions_double_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each call contains the graph of its attribute twice, and that another call."""
    monkeypatch.setattr(inline, "MOST_NODES", 1 << 10)
    graph = "g () => (float s) { s = Neg(x) }"
    for _ in range(30):
        graph = f"g () => (float s) {{ s = local.Both <mod = {graph}> (c) }}"
    text = f"""
    <ir_version: 9, opset_import: ["" : 17, "local" : 1]>
    main (bool c, float x) => (float y) {{ y = local.Both <mod = {graph}> (c) }}
    <domain: "local", opset_import: ["" : 17]>
    Both <mod> (c) => (y) {{ y = If (c) <then_branch : graph = @mod, else_branch : graph = @mod> }}
    """
    with pytest.raises(InvalidModelError, match="expand to over"):
        onnx_to_tflite(onnx.parser.parse_model(text).SerializeToString(), io.BytesIO(), Options())


def test_a_function_of_onnx_whose_graph_captures_values() -> None:
    """FlexAttention with scores times a value of the outer graph; ONNX Runtime has no kernel for it."""
    text = """
    <ir_version: 13, opset_import: ["" : 24, "ai.onnx.preview" : 1]>
    main (float[1,2,4,8] q, float[1,2,4,8] k, float[1,2,4,8] v, float[1] w) => (float[1,2,4,8] y) {
      two = Exp(w)
      y = ai.onnx.preview.FlexAttention <score_mod = scaled (float[B,H,L,S] s) => (float[B,H,L,S] t) {
        t = Mul(s, two)
      }> (q, k, v)
    }
    """
    there, w = io.BytesIO(), np.asarray([0.3], np.float32)
    onnx_to_tflite(onnx.parser.parse_model(text).SerializeToString(), there, Options(debug=True))
    q, k, v = (np.random.default_rng(i).standard_normal((1, 2, 4, 8)).astype(np.float32) for i in range(3))
    ((got,),) = invoked(there.getvalue(), [{"q": q, "k": k, "v": v, "w": w}], "AUTO")
    scores = np.exp(q @ k.transpose(0, 1, 3, 2) / np.sqrt(8) * np.exp(w))
    np.testing.assert_allclose(got, scores / scores.sum(-1, keepdims=True) @ v, rtol=1e-4, atol=1e-5)


def test_a_call_is_the_nodes_of_its_subgraph() -> None:
    """No runtime has a kernel of TFLite's CALL."""
    body, graph = Graph("called"), Graph()
    inside = [body.add_input(tensor("float32", 3)) for _ in range(2)]
    body.outputs = Builder(body).foreign("tfl", "SUB", inside, [tensor("float32", 3)], fused_activation_function="NONE")
    outside = [graph.add_input(tensor("float32", 3)) for _ in range(2)]
    graph.outputs = Builder(graph).foreign("tfl", "CALL", outside[::-1], [tensor("float32", 3)], subgraph=body)
    lift(graph, lambda node: None)
    assert [node.op.name for node in graph.nodes] == ["Sub"]
    np.testing.assert_array_equal(run(graph, [np.float32([1, 2, 3]), np.float32([5, 5, 5])])[0], [4, 3, 2])


def calls(count: int, name: str) -> bytes:
    """A chain of functions, each of which calls the next one, the last by a node of this name."""
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("f", 1)]
    last = helper.make_node("Neg", ["a"], ["b"], name=name)
    bodies = [helper.make_node(f"f{i + 1}", ["a"], ["b"], domain="f", name="n") for i in range(count - 1)]
    functions = [
        helper.make_function("f", f"f{i}", ["a"], ["b"], [call], imports) for i, call in enumerate([*bodies, last])
    ]
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in "xy")
    graph = helper.make_graph([helper.make_node("f0", ["x"], ["y"], domain="f", name="n")], "g", [x], [y])
    model = helper.make_model(graph, opset_imports=imports, functions=functions, ir_version=10)
    return bytes(model.SerializeToString())


def test_a_long_chain_of_functions() -> None:
    assert onnxtfl.onnx_to_tflite(calls(1500, "n"), check=False, load=False).data


def test_names_inside_of_calls_have_a_largest_length() -> None:
    assert len(onnxtfl.onnx_to_tflite(calls(400, "n" * 100_000), check=False, load=False).data) < 100_000
