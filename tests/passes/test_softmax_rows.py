"""Softmax over few classes before a transpose is computed after it, by its formula."""

from __future__ import annotations

import numpy as np
import pytest

from onnxtfl.ir.graph import Graph
from onnxtfl.ir.interpret import run
from onnxtfl.ir.text import parse_graph
from onnxtfl.options import Options
from onnxtfl.passes.canonical.dead_code import remove_dead
from onnxtfl.passes.canonical.slow_axes import SOFTMAX_ROWS
from onnxtfl.pipeline import passes_for
from onnxtfl.targets.tflite import TfliteTarget
from tests.passes.helpers import op_counts, transformed

FORMULA = {"Transpose": 1, "Reduce": 2, "Sub": 1, "Exp": 1, "Div": 1}


def step(graph: Graph) -> None:
    """The pass, and the one after it that removes what it no longer reads."""
    SOFTMAX_ROWS.apply(graph, TfliteTarget().gains)
    remove_dead(graph)


def classes(shape: str = "1x40x40x3", order: str = "[0, 3, 1, 2]", axis: int = -1, outputs: str = "%y") -> str:
    """The text of a Softmax before a transpose."""
    lines = [f" %s = Softmax(%x) {{axis = {axis}}}", f" %y = Transpose(%s) {{permutation = {order}}}"]
    return "\n".join([f"graph main(%x: tensor<{shape}xfloat32>) -> ({outputs}) {{", *lines, "}"])


@pytest.mark.parametrize(
    ("shape", "order"), [("1x40x40x3", "[0, 3, 1, 2]"), ("900x2", "[1, 0]"), ("[n]x40x[w]x21", "[0, 3, 1, 2]")]
)
def test_few_classes(shape: str, order: str) -> None:
    assert op_counts(transformed(classes(shape, order), step)) == FORMULA


def test_a_reshape_between() -> None:
    lines = [
        "graph main(%x: tensor<1x8x20x20x3xfloat32>) -> (%y) {",
        " %n = constant tensor<3xint64> [1, 3200, 3]",
        " %s = Softmax(%x) {axis = 4}",
        " %r = Reshape(%s, %n)",
        " %y = Transpose(%r) {permutation = [0, 2, 1]}",
        "}",
    ]
    assert op_counts(transformed("\n".join(lines), step)) == {"Reshape": 1, **FORMULA}


def test_the_values() -> None:
    graph, x = parse_graph(classes()), 40 * np.random.default_rng(0).standard_normal((1, 40, 40, 3), np.float32)
    x[0, 0, 0] = [-np.inf, 1, 2]
    powers = np.exp(x - x.max(-1, keepdims=True))
    wanted = np.moveaxis(powers / powers.sum(-1, keepdims=True), 3, 1)
    step(graph)
    np.testing.assert_allclose(run(graph, [x])[0], wanted, rtol=1e-5)


@pytest.mark.parametrize(
    "text",
    [
        classes("1x2x2x3"),  # few rows
        classes("1x40x40x32"),  # many classes
        classes(order="[0, 2, 1, 3]"),  # the classes stay last
        classes(axis=1),
        classes(outputs="%y, %s"),
        classes("1x40x40x[c]"),
        classes("2x10x10x10x5x2x3", "[0, 6, 5, 4, 3, 2, 1]"),  # too many axes for kernels of sums and products
    ],
)
def test_others_stay(text: str) -> None:
    assert op_counts(transformed(text, step)) == {"Softmax": 1, "Transpose": 1}


def test_an_unknown_rank() -> None:
    graph = parse_graph("graph main(%x: tensor<*xfloat32>) -> (%y) {\n %y = Transpose(%x) {permutation = [1, 0]}\n}")
    step(graph)
    assert op_counts(graph) == {"Transpose": 1}


@pytest.mark.parametrize("is_quantized_later", [False, True])
def test_a_quantizer_finds_the_softmax(is_quantized_later: bool) -> None:
    """It would round each part of the formula."""
    passes = passes_for(TfliteTarget(), Options(is_quantized_later=is_quantized_later))
    assert ("softmax rows" in {one.name for one in passes}) is not is_quantized_later
