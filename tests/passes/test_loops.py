"""Loop simplification, and what is recognized as a Scan."""

# ruff: noqa: E501 - graphs in text form

from __future__ import annotations

import numpy as np
import pytest

from onnxtfl.ir.interpret import run
from onnxtfl.ir.text import parse_graph
from onnxtfl.ir.verify import verify
from onnxtfl.passes.loops.invariants import LOOP_INVARIANTS
from onnxtfl.passes.loops.simplification import LOOP_SIMPLIFICATION
from onnxtfl.passes.recognize.loops import LOOPS
from onnxtfl.rewriting.patterns import Patterns
from tests.passes.helpers import op_counts, simplify

SCAN = """
graph main(%x: tensor<4x2xfloat32>, %s: tensor<2xfloat32>, %k: tensor<2xfloat32>) -> (%OUTPUTS) {
  %c = constant tensor<2xfloat32> [1.0, 2.0]
  %a, %b, %t, %d = Scan(_, %s, %k, %s, %x, %c, %k, %k) {axes = [0], body = graph step(%s1: tensor<2xfloat32>, %k1: tensor<2xfloat32>, %u1: tensor<2xfloat32>, %x1: tensor<2xfloat32>, %c1: tensor<2xfloat32>, %k2: tensor<2xfloat32>, %k3: tensor<2xfloat32>) -> (%s2, %k1, %u2, %e) {
    %p = Mul(%x1, %c1) : tensor<2xfloat32>
    %q = Add(%p, %k2) : tensor<2xfloat32>
    %r = Add(%q, %k3) : tensor<2xfloat32>
    %s2 = Add(%s1, %r) : tensor<2xfloat32>
    %u2 = Exp(%u1) : tensor<2xfloat32>
    %e = Sin(%u1) : tensor<2xfloat32>
  }, carried = 3, result_axes = [0], result_reversed = [false], reversed = [false]} : tensor<2xfloat32>, tensor<2xfloat32>, tensor<2xfloat32>, tensor<4x2xfloat32>
}
"""


@pytest.mark.parametrize(("outputs", "operands"), [("%a, %b", 3), ("%a, %d", 4), ("%d", 2), ("%b", 0), ("%a", 3)])
def test_a_scan_takes_what_its_rounds_need(outputs: str, operands: int) -> None:
    """%k is carried and captured, but no round changes it; %d depends on the third carried value and the length only."""
    graph = parse_graph(SCAN.replace("%OUTPUTS", outputs))
    inputs = [np.random.default_rng(0).standard_normal(v.shape).astype(np.float32) for v in graph.inputs]
    wanted = run(graph, inputs)
    simplify(graph)
    verify(graph)
    scans = [node for node in graph.nodes if node.op.name == "Scan"]
    assert sum(v is not None for node in scans for v in node.operands) == operands
    for got, want in zip(run(graph, inputs), wanted, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-6)


WHILE = """
graph main(%x: tensor<[n]x2xfloat32>, %s: tensor<2xfloat32>) -> (%last, %all) {
  %zero = constant tensor<int32> [0]
  %n = Shape(%x) {axes = [0], dtype = !int32} : tensor<1xint32>
  %e = constant tensor<1xint64> [2]
  %m = Convert(%n) {dtype = !int64} : tensor<1xint64>
  %sizes = Concatenate(%m, %e) {axis = 0} : tensor<2xint64>
  %blank = constant tensor<float32> [0.0]
  %empty = BroadcastTo(%blank, %sizes) : tensor<[n]x2xfloat32>
  %i0, %last, %all, %x0 = While(%zero, %s, %empty, %x) {body = graph body(%i: tensor<int32>, %a: tensor<2xfloat32>, %w: tensor<[n]x2xfloat32>, %y: tensor<[n]x2xfloat32>) -> (%j, %c, %v, %y) {
    %one = constant tensor<int32> [1]
    %j = Add(%i, %one) : tensor<int32>
    READ
    %c = Add(%a, %b) : tensor<2xfloat32>
    WRITE
  }, cond = graph cond(%i1: tensor<int32>, %a1: tensor<2xfloat32>, %w1: tensor<[n]x2xfloat32>, %y1: tensor<[n]x2xfloat32>) -> (%t) {
    %n1 = Shape(%y1) {axes = [0], dtype = !int32} : tensor<1xint32>
    %k = constant tensor<0xint64> []
    %n2 = Reshape(%n1, %k) : tensor<int32>
    %t = Compare(%i1, %n2) {comparison_direction = "LT"} : tensor<bool>
  }} : tensor<int32>, tensor<2xfloat32>, tensor<[n]x2xfloat32>, tensor<[n]x2xfloat32>
}
"""
GATHER = "%b = Gather(%y, %i) {axis = 0, batch_dims = 0} : tensor<2xfloat32>"
SLICE = """
    %f = constant tensor<1xint64> [1]
    %i2 = Reshape(%i, %f) : tensor<1xint32>
    %j2 = Reshape(%j, %f) : tensor<1xint32>
    %z = constant tensor<1xint32> [0]
    %g = constant tensor<1xint32> [2147483647]
    %start = Concatenate(%i2, %z) {axis = 0} : tensor<2xint32>
    %end = Concatenate(%j2, %g) {axis = 0} : tensor<2xint32>
    %step = constant tensor<2xint32> [1, 1]
    %row = Slice(%y, %start, %end, %step) : tensor<1x2xfloat32>
    %two = constant tensor<1xint64> [2]
    %b = Reshape(%row, %two) : tensor<2xfloat32>"""
UPDATE = """
    %h = constant tensor<2xint64> [1, 2]
    %c2 = Reshape(%c, %h) : tensor<1x2xfloat32>
    %o = constant tensor<1xint64> [1]
    %p = Reshape(%i, %o) : tensor<1xint32>
    %only = constant tensor<2xint32> [1, 0]
    %at = Mul(%p, %only) : tensor<2xint32>
    %v = DynamicUpdateSlice(%w, %c2, %at) : tensor<[n]x2xfloat32>"""


@pytest.mark.parametrize("read", [GATHER, SLICE])
def test_a_while_over_rows_is_a_scan(read: str) -> None:
    graph = parse_graph(WHILE.replace("READ", read).replace("WRITE", UPDATE))
    inputs = [np.arange(6, dtype=np.float32).reshape(3, 2), np.ones(2, np.float32)]
    wanted = run(graph, inputs)
    for _ in range(3):
        LOOPS.apply(graph)
        LOOP_SIMPLIFICATION.apply(graph)
        simplify(graph)
    verify(graph)
    assert op_counts(graph)["Scan"] == 1
    assert op_counts(graph)["Add"] == 1
    assert sum(op_counts(graph).values()) == 2
    for got, want in zip(run(graph, inputs), wanted, strict=True):
        np.testing.assert_allclose(got, want)


def test_another_condition_stays_a_while() -> None:
    text = WHILE.replace("READ", GATHER).replace("WRITE", UPDATE).replace('"LT"', '"NE"')
    graph = parse_graph(text)
    assert not LOOPS.apply(graph)


def test_a_while_that_does_not_begin() -> None:
    text = """
    graph main(%x: tensor<2xfloat32>) -> (%y) {
      %i = constant tensor<int32> [3]
      %j, %y = While(%i, %x) {body = graph body(%a: tensor<int32>, %b: tensor<2xfloat32>) -> (%a, %d) {
        %d = Exp(%b) : tensor<2xfloat32>
      }, cond = graph cond(%e: tensor<int32>, %f: tensor<2xfloat32>) -> (%g) {
        %h = constant tensor<int32> [3]
        %g = Compare(%e, %h) {comparison_direction = "LT"} : tensor<bool>
      }} : tensor<int32>, tensor<2xfloat32>
    }
    """
    graph = parse_graph(text)
    simplify(graph)
    assert op_counts(graph) == {}


def test_what_no_round_changes_is_computed_before_the_loop() -> None:
    text = """
    graph main(%n: tensor<int32>, %s: tensor<2x3xfloat32>, %x: tensor<3x2xfloat32>) -> (%y) {
      %i = constant tensor<int32> [0]
      %j, %y, %n0, %x0 = While(%i, %s, %n, %x) {body = graph body(%a: tensor<int32>, %b: tensor<2x3xfloat32>, %c: tensor<int32>, %d: tensor<3x2xfloat32>) -> (%e, %f, %c, %d) {
        %one = constant tensor<int32> [1]
        %e = Add(%a, %one) : tensor<int32>
        %t = Transpose(%d) {permutation = [1, 0]} : tensor<2x3xfloat32>
        %u = Exp(%t) : tensor<2x3xfloat32>
        %f = Mul(%b, %u) : tensor<2x3xfloat32>
      }, cond = graph cond(%g: tensor<int32>, %h: tensor<2x3xfloat32>, %k: tensor<int32>, %l: tensor<3x2xfloat32>) -> (%m) {
        %m = Compare(%g, %k) {comparison_direction = "LT"} : tensor<bool>
      }} : tensor<int32>, tensor<2x3xfloat32>, tensor<int32>, tensor<3x2xfloat32>
    }
    """
    graph = parse_graph(text)
    inputs = [np.asarray(3, np.int32), np.ones((2, 3), np.float32), np.arange(6, dtype=np.float32).reshape(3, 2) / 6]
    wanted = run(graph, inputs)
    Patterns.of(LOOP_INVARIANTS, LOOP_SIMPLIFICATION).apply(graph)
    verify(graph)
    assert [node.op.name for node in graph.nodes] == ["Transpose", "Exp", "While"]
    assert len(next(node for node in graph.nodes if node.regions).operands) == 4
    np.testing.assert_allclose(run(graph, inputs)[0], wanted[0], rtol=1e-6)


@pytest.mark.parametrize(
    ("start", "end", "left"), [(0, 2, 0), (2, 5, 0), (2, 2147483647, 0), (0, 3, 1), (1, 2, 1), (2, 4, 1)]
)
def test_a_slice_of_one_joined_part_is_that_part(start: int, end: int, left: int) -> None:
    graph = parse_graph(f"""graph main(%x: tensor<2x4xfloat32>, %y: tensor<3x4xfloat32>) -> (%z) {{
  %j = Concatenate(%x, %y) {{axis = 0}}
  %s = constant tensor<2xint64> [{start}, 0]
  %e = constant tensor<2xint64> [{end}, 4]
  %o = constant tensor<2xint64> [1, 1]
  %z = Slice(%j, %s, %e, %o)
}}""")
    inputs = [np.arange(8, dtype=np.float32).reshape(2, 4), np.ones((3, 4), np.float32)]
    wanted = run(graph, inputs)
    LOOPS.apply(graph)
    assert op_counts(graph)["Slice"] == left
    np.testing.assert_array_equal(run(graph, inputs)[0], wanted[0])
