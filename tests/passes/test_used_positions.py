"""Only the positions of a tensor that are read are computed."""

from __future__ import annotations

import math

import pytest

from onnxtfl.ir.graph import Graph
from onnxtfl.ir.text import parse_graph
from onnxtfl.passes.canonical.dead_code import remove_dead
from onnxtfl.passes.canonical.merge_equal import merge_equal
from onnxtfl.passes.canonical.used_positions import compute_used_positions
from tests.passes.helpers import CONV2D, op_counts, transformed


def constant(name: str, shape: str) -> str:
    numbers = [((5 * i) % 11 - 5) / 8 for i in range(math.prod(map(int, shape.split("x"))))]
    return f" %{name} = constant tensor<{shape}xfloat32> {numbers}\n"


def narrowed(body: str, shape: str = "1x8x6") -> Graph:
    def step(graph: Graph) -> None:
        compute_used_positions(graph)
        merge_equal(graph)
        remove_dead(graph)

    return transformed(f"graph main(%x: tensor<{shape}xfloat32>) -> (%y) {{\n{body}\n}}", step)


def sizes(graph: Graph, op: str) -> list[tuple[object, ...]]:
    return [node.result.shape for node in graph.nodes if node.op.name == op]


DOT = "{lhs_contracting_dimensions = [2], rhs_contracting_dimensions = [0]}"


def test_classification_by_the_first_token_computes_this_one_only() -> None:
    graph = narrowed(
        constant("w", "6x6")
        + f" %d = DotGeneral(%x, %w) {DOT}\n %a = Add(%x, %d)\n"
        + ' %axes = constant tensor<1xint64> [2]\n %m = Reduce(%a, %axes) {kind = "mean", keepdims = true}\n'
        + " %c = Sub(%a, %m)\n"
        + f" %e = DotGeneral(%c, %w) {DOT}\n %r = Relu(%e)\n %s = Add(%a, %r)\n"
        + " %at = constant tensor<int64> [0]\n %y = Gather(%s, %at) {axis = 1}"
    )
    assert sizes(graph, "DotGeneral") == [(1, 1, 6)] * 2
    assert sizes(graph, "Slice") == [(1, 1, 6)]
    assert op_counts(graph)["Gather"] == 0


def test_attention_computes_the_keys_of_all_tokens() -> None:
    heads = (
        " %four = constant tensor<4xint64> [1, 8, 2, 3]\n %f = Reshape({0}, %four)\n"
        " %{1} = Transpose(%f) {{permutation = [0, 2, 1, 3]}}\n"
    )
    batches = "lhs_batching_dimensions = [0, 1], rhs_batching_dimensions = [0, 1], lhs_contracting_dimensions = [3]"
    graph = narrowed(
        constant("w", "6x6")
        + constant("v", "6x6")
        + f" %p = DotGeneral(%x, %w) {DOT}\n %k = DotGeneral(%x, %v) {DOT}\n"
        + heads.format("%p", "q")
        + heads.format("%k", "h").replace("%f", "%g").replace("%four", "%five")
        + f" %l = DotGeneral(%q, %h) {{{batches}, rhs_contracting_dimensions = [3]}}\n"
        + " %o = Softmax(%l) {axis = 3}\n"
        + f" %z = DotGeneral(%o, %h) {{{batches}, rhs_contracting_dimensions = [2]}}\n"
        + " %t = Transpose(%z) {permutation = [0, 2, 1, 3]}\n"
        + " %three = constant tensor<3xint64> [1, 8, 6]\n %j = Reshape(%t, %three)\n"
        + " %b = constant tensor<3xint64> [0, 7, 0]\n %n = constant tensor<3xint64> [1, 8, 6]\n"
        + " %u = constant tensor<3xint64> [1, 1, 1]\n %y = Slice(%j, %b, %n, %u)"
    )
    assert sorted(sizes(graph, "DotGeneral")) == [(1, 1, 6), (1, 2, 1, 3), (1, 2, 1, 8), (1, 8, 6)]


def test_a_part_of_an_image_is_computed_with_its_border() -> None:
    numbers = CONV2D.replace("padding = [0, 0, 0, 0]", "padding = [1, 1, 1, 1]")
    graph = narrowed(
        constant("k", "4x3x3x3")
        + f" %c = Conv(%x, %k) {{{numbers}}}\n %r = Relu(%c)\n"
        + " %b = constant tensor<4xint64> [0, 0, 0, 0]\n %n = constant tensor<4xint64> [1, 4, 3, 8]\n"
        + " %u = constant tensor<4xint64> [1, 1, 1, 1]\n %y = Slice(%r, %b, %n, %u)",
        "1x3x8x8",
    )
    assert sizes(graph, "Conv") == [(1, 4, 3, 8)]


@pytest.mark.parametrize(
    "body",
    [
        f" %d = DotGeneral(%x, %w) {DOT}\n %a = constant tensor<int64> [0]\n %g = Gather(%d, %a) {{axis = 1}}\n"
        " %c = constant tensor<int64> [1]\n %h = Gather(%d, %c) {axis = 1}\n %y = Add(%g, %h)",
        f" %d = DotGeneral(%x, %w) {DOT}\n %s = Softmax(%d) {{axis = 1}}\n %a = constant tensor<int64> [0]\n"
        " %y = Gather(%s, %a) {axis = 1}",
        " %d = Relu(%x)\n %a = constant tensor<int64> [0]\n %y = Gather(%d, %a) {axis = 1}",
    ],
    ids=["several positions", "needs all positions", "no product"],
)
def test_others_stay(body: str) -> None:
    before = op_counts(narrowed(constant("w", "6x6") + body))
    assert before["Gather"] >= 1 and before["Slice"] == 0


def test_a_part_of_a_size_known_at_run_time_stays() -> None:
    text = (
        "graph main(%x: tensor<1x8x6xfloat32>, %n: tensor<3xint64>) -> (%y) {\n"
        + constant("w", "6x6")
        + f" %d = DotGeneral(%x, %w) {DOT}\n %b = constant tensor<3xint64> [0, 0, 0]\n"
        + " %a = constant tensor<3xint64> [1, 1, 1]\n"
        + " %y = Slice(%d, %b, %n, %a)\n}"
    )
    graph = parse_graph(text)
    assert not compute_used_positions(graph)
