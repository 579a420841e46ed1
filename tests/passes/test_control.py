"""Conditions and loops: regions go the whole way, each like the graph around it."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx.parser
import pytest

import onnxtfl
from onnxtfl.errors import InvalidModelError, UnsupportedError
from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.graph import Graph, constant
from onnxtfl.ir.interpret import run
from onnxtfl.ir.text import parse_graph, print_graph
from onnxtfl.ir.types import tensor
from onnxtfl.ir.verify import verify
from onnxtfl.options import Options
from onnxtfl.passes.canonical.branches import IF_SIMPLIFICATION
from onnxtfl.pipeline import inspect, onnx_to_tflite, tflite_to_onnx
from tests.harness.litert import run_onnx, run_tflite
from tests.passes.helpers import op_counts, simplify

Array = np.ndarray[Any, Any]
HEADER = '<ir_version: 8, opset_import: ["" : 17]>\n'
OPTIONS = Options(debug=True)


def there_and_back(text: str, feeds: Mapping[str, Array]) -> Counter[str]:
    """The ops of the converted model, which gives what ONNX Runtime does, as does the model converted back."""
    model = onnx.parser.parse_model(HEADER + text)
    source = model.SerializeToString()
    wanted = run_onnx(source, feeds)
    there, back = io.BytesIO(), io.BytesIO()
    report = onnx_to_tflite(source, there, OPTIONS)
    given = {name: array for name, array in feeds.items() if any(n == name for n, _, _ in report.inputs)}
    for (_, got), want in zip(run_tflite(there.getvalue(), given), wanted.values(), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
    tflite_to_onnx(there.getvalue(), back, OPTIONS)
    for got, want in zip(run_onnx(back.getvalue(), given).values(), wanted.values(), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
    return Counter(report.ops_after)


def floats(*shape: int) -> Array:
    return np.random.default_rng(len(shape)).standard_normal(shape).astype(np.float32)


IMAGES = """
main (bool c, float[1,3,6,6] x) => (float[1,4,6,6] y, float[1,3,6,6] z)
<float[4,3,3,3] w = {%s}, float[1] bias = {0.5}> {
  r = Relu(x)
  y, z = If (c) <
    then_branch = one () => (float[1,4,6,6] a, float[1,3,6,6] b) {
      k = Conv <pads = [1, 1, 1, 1]> (r, w)
      a = Tanh(k)
      b = Identity(x)
    },
    else_branch = two () => (float[1,4,6,6] p, float[1,3,6,6] q) {
      k = Conv <pads = [1, 1, 1, 1]> (x, w)
      p = Add(k, bias)
      q = Mul(r, r)
    }>
}
""" % ", ".join(f"{v:.4f}" for v in floats(108))  # noqa: UP031 - the text is full of braces


@pytest.mark.parametrize("condition", [False, True])
def test_branches_over_images(condition: bool) -> None:
    found = there_and_back(IMAGES, {"c": np.asarray(condition), "x": floats(1, 3, 6, 6)})
    assert found["IF"] == 1
    assert found["CONV_2D"] == 2


KNOWN = """
main (float[2,N] x) => (float[M] y) <bool yes = {%d}> {
  y = If (yes) <
    then_branch = one () => (float[K] a) { a = ReduceSum <keepdims = 0> (x, axis) },
    else_branch = two () => (float[K] b) { e = Exp(x)  b = ReduceMax <keepdims = 0, axes = [0]> (e) }>
}
"""


@pytest.mark.parametrize("condition", [0, 1])
def test_a_known_condition_leaves_one_branch(condition: int) -> None:
    text = (KNOWN % condition).replace("<bool yes", "<int64[1] axis = {0}, bool yes")
    found = there_and_back(text, {"x": floats(2, 5)})
    assert found["IF"] == 0
    assert found["EXP"] == 1 - condition


def test_a_condition_over_shapes_is_known() -> None:
    """As exporters write squeeze: is the axis of size one?"""
    text = """
    main (float[2,1,3] x) => (float[M,N] y) <int64 one = {1}, int64[1] at = {1}> {
      s = Shape(x)
      d = Gather(s, one)
      c = Equal(d, one)
      y = If (c) <
        then_branch = yes () => (float[A,B] a) { a = Squeeze(x, at) },
        else_branch = no () => (float[A,B,C] b) { b = Identity(x) }>
    }
    """
    assert there_and_back(text, {"x": floats(2, 1, 3)})["IF"] == 0


@pytest.mark.parametrize(("outer", "inner"), [(False, False), (True, False), (True, True)])
def test_branches_within_branches(outer: bool, inner: bool) -> None:
    text = """
    main (bool c, bool d, float[2,3] x) => (float[2,3] y) <float half = {0.5}> {
      t = Sin(x)
      y = If (c) <
        then_branch = one () => (float[2,3] a) {
          u = Mul(t, half)
          a = If (d) <
            then_branch = three () => (float[2,3] e) { e = Add(u, x) },
            else_branch = four () => (float[2,3] f) { f = Sub(t, half) }>
        },
        else_branch = two () => (float[2,3] b) { b = Neg(t) }>
    }
    """
    found = there_and_back(text, {"c": np.asarray(outer), "d": np.asarray(inner), "x": floats(2, 3)})
    assert found["IF"] == 2


@pytest.mark.parametrize("condition", [False, True])
def test_branches_of_other_sizes(condition: bool) -> None:
    text = """
    main (bool c, float[4,3] x) => (float[M,3] y) <int64[1] zero = {0}, int64[1] two = {2}> {
      b = If (c) <
        then_branch = one () => (float[A,3] a) { a = Slice(x, zero, two, zero) },
        else_branch = two_ () => (float[B,3] b) { b = Concat <axis = 0> (x, x) }>
      y = Neg(b)
    }
    """
    assert there_and_back(text, {"c": np.asarray(condition), "x": floats(4, 3)})["IF"] == 1


@pytest.mark.parametrize("condition", [False, True])
def test_branches_in_half_precision_and_of_scalars(condition: bool) -> None:
    text = """
    main (bool c, float16[2,3] x, float s) => (float16[2,3] y, float t) {
      v = Exp(x)
      y, t = If (c) <
        then_branch = one () => (float16[2,3] a, float b) { a = Tanh(x)  b = Neg(s) },
        else_branch = two () => (float16[2,3] p, float q) { p = Identity(v)  q = Identity(s) }>
    }
    """
    x = np.asarray([[0.5, -1, 2], [1, 0, 3]], np.float16)
    model = onnx.parser.parse_model(HEADER + text).SerializeToString()
    there = io.BytesIO()
    onnx_to_tflite(model, there, OPTIONS)
    feeds = {"c": np.asarray(condition), "x": x, "s": np.asarray(3, np.float32)}
    for (_, got), want in zip(run_tflite(there.getvalue(), feeds), run_onnx(model, feeds).values(), strict=True):
        np.testing.assert_allclose(got, want, rtol=2e-3)


def conditional() -> Graph:
    """If(p, x, k, x, s): a constant, a value twice, and one that no branch needs."""
    graph = Graph()
    p, x, s = (graph.add_input(t, n) for t, n in zip(_types("bool", 2, 3), "pxs", strict=True))
    k = constant(np.asarray([1, 2], np.float32))
    regions = []
    for op, which in ((ops.Add, (0, 1)), (ops.Mul, (2, 2))):
        region = Graph(op.name)
        inputs = [region.add_input(v.type) for v in (x, k, x, s)]
        region.outputs = [Builder(region)(op, *(inputs[i] for i in which))]
        regions.append(region)
    graph.outputs = [Builder(graph)(ops.If, p, x, k, x, s, then_branch=regions[0], else_branch=regions[1])]
    return graph


def _types(*of: Any) -> list[Any]:
    return [tensor("bool") if d == "bool" else tensor("float32", d) for d in of]


def test_branches_take_what_they_need() -> None:
    graph = conditional()
    inputs = [np.asarray(True), np.asarray([3, 4], np.float32), np.zeros(3, np.float32)]
    assert IF_SIMPLIFICATION.apply(graph)
    verify(graph)
    (node,) = graph.nodes
    assert len(node.operands) == 2
    np.testing.assert_array_equal(run(graph, inputs)[0], [4, 6])
    np.testing.assert_array_equal(run(graph, [np.asarray(False), *inputs[1:]])[0], [9, 16])
    assert not IF_SIMPLIFICATION.apply(graph)


def test_a_branch_that_is_known_stands_in_the_graph() -> None:
    graph = conditional()
    node = graph.first
    assert node is not None
    node.set_operand(0, constant(np.asarray(False)))
    simplify(graph)
    verify(graph)
    assert op_counts(graph) == {"Mul": 1}


def test_regions_have_a_text_form() -> None:
    text = print_graph(conditional())
    assert print_graph(parse_graph(text)) == text


def test_regions_hold_neutral_ops_only_after_lifting() -> None:
    graph = inspect(onnx.parser.parse_model(HEADER + IMAGES).SerializeToString(), "lifted", OPTIONS)
    assert all(node.op.dialect == "neutral" for node in graph.walk())
    assert op_counts(graph)["Conv"] == 2


def test_a_loop_with_a_trip_count_and_captures() -> None:
    """The weight is captured, so is what the loop does not change; the count is known at run time."""
    text = """
    main (int64 n, float[2,3] x, float[2,3] s) => (float[2,3] y, int64 k)
    <bool yes = {1}, int64 two = {2}, int64 k0 = {1}> {
      t = Exp(s)
      w = Constant <value = float[3,3] {0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9}> ()
      y, k = Loop (n, yes, x, k0) <
        body = one (int64 i, bool c, float[2,3] v, int64 m) => (bool d, float[2,3] o, int64 p) {
          a = MatMul(v, w)
          f = Cast <to = 1> (i)
          b = Add(a, f)
          o = Sub(b, t)
          p = Mul(m, two)
          d = Identity(c)
        }>
    }
    """
    for rounds in (0, 1, 4):
        feeds = {"n": np.asarray(rounds, np.int64), "x": floats(2, 3), "s": floats(2, 3) - 1}
        found = there_and_back(text, feeds)
        assert found["WHILE"] == 1
        assert found["FULLY_CONNECTED"] + found["BATCH_MATMUL"] == 1


def test_a_loop_that_ends_by_its_condition() -> None:
    text = """
    main (float[4] x, float limit) => (float[4] y) <int64 most = {9223372036854775807}, bool yes = {1}> {
      y = Loop (most, yes, x) <
        body = one (int64 i, bool c, float[4] v) => (bool d, float[4] o) {
          o = Add(v, v)
          t = ReduceMax <keepdims = 0> (o)
          d = Less(t, limit)
        }>
    }
    """
    found = there_and_back(text, {"x": np.asarray([1, 2, 3, 0.5], np.float32), "limit": np.asarray(50, np.float32)})
    assert found["WHILE"] == 1


@pytest.mark.parametrize("condition", [False, True])
def test_branches_of_vectors_only(condition: bool) -> None:
    text = """
    main (bool c, float[4] x) => (float[4] y) {
      y = If (c) <
        then_branch = one () => (float[4] a) { a = Neg(x) },
        else_branch = two () => (float[4] b) { b = Abs(x) }>
    }
    """
    assert there_and_back(text, {"c": np.asarray(condition), "x": floats(4)})["IF"] == 1


@pytest.mark.parametrize(
    "node",
    [
        'y = If (c) <then_branch = 3, else_branch = "x">',
        "y = If (c) <then_branch = one () => (float a) { a = Neg(x) }>",
        "y = If () <then_branch = a () => (float a) { a = Neg(x) }, else_branch = b () => (float b) { b = Abs(x) }>",
        "y = If (c) <then_branch = a () => () { a = Neg(x) }, else_branch = b () => (float b) { b = Abs(x) }>",
        "y = Loop (n, c, x) <body = 3>",
        "y = Loop () <body = a (int64 i, bool d, float v) => (bool e, float a) { e = Not(d)  a = Neg(v) }>",
        "y = Loop (n, c, x) <body = a () => (bool c, float a) { a = Neg(x) }>",
        "y = Loop (n, c, x) <body = a (int64 i, bool d, float v) => (float a) { a = Neg(v) }>",
    ],
)
def test_what_is_no_good_is_told(node: str) -> None:
    model = onnx.parser.parse_model(f"{HEADER} main (bool c, int64 n, float x) => (float y) {{ {node} }}")
    with pytest.raises((InvalidModelError, UnsupportedError)):
        onnx_to_tflite(model.SerializeToString(), io.BytesIO(), OPTIONS)


@pytest.mark.parametrize(
    ("kind", "one", "other"),
    [
        ("float[3]", "Constant <value = float[3] {1, 2, 3}> ()", "Constant <value = float[3] {3, 2, 1}> ()"),
        ("int64", "Constant <value_int = 3> ()", "Constant <value_int = 5> ()"),
        ("int64[2]", "Shape(x)", "Constant <value_ints = [5, 6]> ()"),
        ("bool", "Not(c)", "Constant <value = bool {0}> ()"),
    ],
)
def test_branches_that_return_constants_run_again(kind: str, one: str, other: str) -> None:
    """LiteRT computes such outputs once, in memory that the branch must not give away (the check runs twice)."""
    text = f"""
    main (bool c, float[N,2] x) => ({kind} y) {{
      y = If (c) <
        then_branch = one () => ({kind} p) {{ p = {one} }},
        else_branch = other () => ({kind} q) {{ q = {other} }}>
    }}
    """
    model = onnx.parser.parse_model(HEADER + text)
    conversion = onnxtfl.onnx_to_tflite(model, check="require")
    assert conversion.report.ops_after["SLICE"] == (1 if kind == "bool" else 2)
