"""Concatenations between reshapes have few axes."""

from __future__ import annotations

import pytest

from onnxtfl.ir.graph import Graph
from onnxtfl.passes.canonical.dead_code import remove_dead
from onnxtfl.passes.canonical.few_axes import leave_out_unit_axes
from tests.passes.helpers import only_node, transformed


def joined(shape: str, inner: str, axis: int, outer: str) -> tuple[int, ...]:
    def step(graph: Graph) -> None:
        leave_out_unit_axes(graph)
        remove_dead(graph)

    rank, after = inner.count(",") + 1, outer.count(",") + 1
    graph = transformed(
        f"graph main(%x: tensor<{shape}xfloat32>, %z: tensor<{shape}xfloat32>) -> (%y) {{\n"
        f" %i = constant tensor<{rank}xint64> [{inner}]\n %o = constant tensor<{after}xint64> [{outer}]\n"
        " %a = Reshape(%x, %i)\n %b = Reshape(%z, %i)\n"
        f" %c = Concatenate(%a, %b) {{axis = {axis}}}\n %y = Reshape(%c, %o)\n}}",
        step,
    )
    node = only_node(graph, "Concatenate")
    return node.result.shape


@pytest.mark.parametrize(
    ("shape", "inner", "axis", "outer", "left"),
    [
        ("1x4x3x2", "4, 1, 3, 2", 1, "1, 8, 3, 2", (4, 2, 3, 2)),
        ("1x4x3x2", "1, 4, 1, 3, 2", 2, "1, 8, 3, 2", (1, 4, 6, 2)),
        ("5x4x3x2", "5, 4, 1, 3, 2", 2, "5, 8, 3, 2", (5, 4, 6, 2)),
        ("1x4x3x2", "1, 4, 3, 1, 2", 1, "1, 8, 3, 2", (8, 3, 1, 2)),
        ("5x4x3x2", "5, 4, 3, 2, 1", 4, "5, 4, 3, 4", (5, 4, 3, 2, 2)),
    ],
    ids=["four axes", "one sample", "several samples", "another axis", "no next axis"],
)
def test_unit_axes_are_left_out(shape: str, inner: str, axis: int, outer: str, left: tuple[int, ...]) -> None:
    assert joined(shape, inner, axis, outer) == left
