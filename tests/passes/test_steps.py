"""Functions of one int8 element as convolutions: each of the 256 integers, and which functions are replaced."""

from __future__ import annotations

import numpy as np
import pytest

from onnxtfl.ir.interpret import run
from onnxtfl.ir.text import parse_graph
from onnxtfl.ir.verify import verify
from onnxtfl.passes.quantize.steps import write_steps
from onnxtfl.targets.tflite import TfliteTarget
from tests.passes.helpers import op_counts

X = "tensor<64x4xfloat32, quant<int8 0.03:5>>"
EVERY = np.arange(-128, 128, dtype=np.int8).reshape(64, 4)
BODIES = {
    "smooth": "%e = Erf(%a)",
    "steep": "%e = Exp(%a)",
    "with jumps": "%c = constant tensor<float32> [0.25]\n %f = Floor(%a)\n %e = Mul(%f, %c)",
    "of two paths": "%s = Sigmoid(%a)\n %e = Div(%a, %s)",
    "with a condition": "%c = constant tensor<1xfloat32> [0.5]\n %g = Compare(%a, %c) "
    '{comparison_direction = "GT"}\n %e = Select(%g, %a, %c)',
}


def function(body: str, y: str) -> str:
    text = f" %a = Convert(%x) {{dtype = !float32}} : tensor<64x4xfloat32>\n {body}\n"
    return (
        f"graph main(%x: {X}) -> (%y) {{\n{text} %y = Convert(%e) {{dtype = !float32}} : tensor<64x4xfloat32, {y}>\n}}"
    )


@pytest.mark.parametrize("y", ["quant<int8 0.02:-9>", "quant<int8 0.2:100>"])
@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_every_element_is_within_a_step(body: str, y: str) -> None:
    graph = parse_graph(function(body, y))
    (wanted,) = run(graph, [EVERY])
    write_steps(graph, TfliteTarget(table="ethos-u55"))
    verify(graph, "after")
    assert op_counts(graph)["Conv"] == 2
    assert all(node.op.name in ("Conv", "Relu", "Reshape", "Convert") for node in graph.walk() if node.result.uses)
    errors = run(graph, [EVERY])[0].astype(int) - wanted
    assert np.abs(errors).max() <= 1 and abs(errors.mean()) < 0.1
    assert (errors != 0).mean() < 0.2


@pytest.mark.parametrize(
    "body",
    [
        "%c = constant tensor<4xfloat32> [1, 2, 3, 4]\n %e = Pow(%a, %c)",
        '%c = constant tensor<1xint64> [1]\n %m = Reduce(%a, %c) {kind = "sum", keepdims = true}\n %e = Div(%a, %m)',
        "%e = Log(%a)",
    ],
)
def test_other_functions_are_left_alone(body: str) -> None:
    graph = parse_graph(function(body, "quant<int8 0.02:-9>"))
    write_steps(graph, TfliteTarget(table="ethos-u55"))
    assert "Conv" not in op_counts(graph)
