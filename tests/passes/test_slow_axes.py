"""Ops along an axis, or in a direction, for which kernels are slow."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
import pytest

from onnxtfl.ir.interpret import run
from onnxtfl.ir.text import parse_graph
from onnxtfl.passes.canonical.slow_axes import SLOW_AXES
from onnxtfl.targets.tflite import TfliteTarget
from tests.passes.helpers import op_counts, transformed
from tests.passes.test_strided_slices import ALL, text

STEP = partial(SLOW_AXES.apply, pays=TfliteTarget().gains)


@pytest.mark.parametrize(
    ("bounds", "counts"),
    [
        (((-1, 0), (-ALL, ALL), (-1, 1)), {"Reverse": 1}),
        (((-1, -1), (-ALL, -ALL), (-1, -1)), {"Reverse": 2}),
        (((30, 0), (5, ALL), (-1, 1)), {"Slice": 1, "Reverse": 1}),
    ],
)
def test_backward(bounds: Sequence[Sequence[int]], counts: dict[str, int]) -> None:
    written = text("tensor<40x50xfloat32>", *bounds)
    x = np.random.default_rng(0).standard_normal((40, 50), np.float32)
    graph = transformed(written, STEP)
    assert op_counts(graph) == counts
    np.testing.assert_array_equal(run(graph, [x])[0], run(parse_graph(written), [x])[0])


@pytest.mark.parametrize(
    ("shape", "bounds"),
    [
        ("40x50", ((0, 0), (30, ALL), (1, 1))),
        ("40x50", ((-1, 0), (-ALL, ALL), (-2, 1))),
        ("40x50", ((30, 0), (5, ALL), (-1, 2))),  # the other axis takes the time
        ("40x50", ((3, 0), (10, ALL), (-1, 1))),  # no element
        ("[n]x50", ((0, -1), (ALL, -ALL), (1, -1))),
    ],
)
def test_others_stay(shape: str, bounds: Sequence[Sequence[int]]) -> None:
    assert op_counts(transformed(text(f"tensor<{shape}xfloat32>", *bounds), STEP)) == {"Slice": 1}


def arg(shape: str, axis: int, op: str = "ArgMax") -> str:
    """The text of positions of extremes along `axis`."""
    attributes = f"{{axis = {axis}, keepdims = false, dtype = !int32}}"
    return f"graph main(%x: tensor<{shape}xfloat32>) -> (%y) {{\n %y = {op}(%x) {attributes}\n}}"


@pytest.mark.parametrize("op", ["ArgMax", "ArgMin"])
@pytest.mark.parametrize("axis", [0, 1, -2])
def test_positions_along_the_last_axis(op: str, axis: int) -> None:
    graph = transformed(arg("20x80x84", axis, op), STEP)
    assert op_counts(graph) == {"Transpose": 1, op: 1}
    assert {node.attr("axis") for node in graph.nodes if node.op.name == op} == {2}


@pytest.mark.parametrize(("shape", "axis"), [("20x80x84", 2), ("3x2", 0), ("[n]x80x84", 1)])
def test_other_positions_stay(shape: str, axis: int) -> None:
    assert op_counts(transformed(arg(shape, axis), STEP)) == {"ArgMax": 1}


def top(shape: str, k: int = 1, dtype: str = "float32") -> str:
    """The text of the `k` largest elements of rows."""
    lines = [f" %k = constant tensor<1xint32> [{k}]", " %v, %i = TopK(%x, %k) {axis = -1, dtype = !int32}"]
    return "\n".join([f"graph main(%x: tensor<{shape}x{dtype}>) -> (%v, %i) {{", *lines, "}"])


def test_the_largest_of_each_row() -> None:
    assert op_counts(transformed(top("20x80"), STEP)) == {"Reduce": 1, "ArgMax": 1, "Reshape": 1}
    x = np.asarray([[1, 3, 3], [-np.inf, -np.inf, -np.inf]], np.float32)
    graph = parse_graph(top("2x3"))
    STEP(graph)
    values, indices = run(graph, [x])
    np.testing.assert_array_equal(values, [[3], [-np.inf]])
    np.testing.assert_array_equal(indices, [[1], [0]])


@pytest.mark.parametrize("text", [top("20x80", 2), top("20x80", dtype="int32"), top("[n]x80")])
def test_other_tops_stay(text: str) -> None:
    assert op_counts(transformed(text, STEP)) == {"TopK": 1}
