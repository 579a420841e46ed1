"""Masks of attention."""

from __future__ import annotations

import numpy as np
import pytest

from onnxtfl.ir.interpret import run
from onnxtfl.ir.text import parse_graph
from onnxtfl.passes.canonical.masks import MASKS
from tests.passes.helpers import op_counts, transformed


def masked(visible: str, chosen: str, low: str = "-3.4028234663852886e38", dtype: str = "float32") -> str:
    return f"""graph main(%x: tensor<2x3x5x{dtype}>, %v: tensor<{visible}xbool>) -> (%y) {{
 %l = constant tensor<{dtype}> [{low}]
 %s = Select(%v, {chosen})
 %y = Softmax(%s) {{axis = 2}}
}}"""


@pytest.mark.parametrize("low", ["-3.4028234663852886e38", "-1e30"])
@pytest.mark.parametrize("chosen", ["%x, %l", "%l, %x"])
@pytest.mark.parametrize("visible", ["3x5", "1x3x5", "2x3x1"])
def test_a_mask_that_repeats_is_added(visible: str, chosen: str, low: str) -> None:
    graph = transformed(masked(visible, chosen, low), MASKS.apply)
    assert op_counts(graph) == {"Select": 1, "Add": 1, "Softmax": 1}
    assert next(node for node in graph.nodes if node.op.name == "Select").result.shape != (2, 3, 5)


@pytest.mark.parametrize(
    "text",
    [
        masked("2x3x5", "%x, %l"),  # as many elements as the scores
        masked("3x5", "%x, %l", "-1e4"),  # what is hidden has some weight
        masked("3x5", "%x, %l", "3.4e38"),
        masked("3x5", "%x, %l", "-6e4", "float16"),
    ],
)
def test_other_choices_stay(text: str) -> None:
    assert op_counts(transformed(text, MASKS.apply))["Add"] == 0


def test_rows_without_a_visible_element_have_equal_weights() -> None:
    graph = parse_graph(masked("3x5", "%x, %l"))
    MASKS.apply(graph)
    x = np.linspace(-1e4, 1e4, 30, dtype=np.float32).reshape(2, 3, 5)
    (found,) = run(graph, [x, np.zeros((3, 5), bool)])
    np.testing.assert_array_equal(found, np.full((2, 3, 5), 0.2, np.float32))
