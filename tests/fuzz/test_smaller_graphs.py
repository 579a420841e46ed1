"""Random graphs that fail are made smaller."""

from __future__ import annotations

import pytest

from tests.fuzz.graphs_onnx import Drawing
from tests.fuzz.graphs_smaller import smallest
from tests.fuzz.soaking import Found
from tests.harness.litert import run_onnx


def judged(g: Drawing) -> Found:
    """A failure where the graph has a Tanh; the graph has to run."""
    model = g.model()
    run_onnx(model.SerializeToString(), g.feeds(g.sizes, 0))
    ops = [node.op_type for node in model.graph.node]
    return Found("disagree" if "Tanh" in ops else "agree", text=" ".join(ops))


def test_nodes_that_a_failure_does_not_need_are_removed() -> None:
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    g = Drawing(1)
    (x,) = g.node("Abs", [g.new("float32", (2, 3))])
    (y,) = g.node("Tanh", [x])
    g.node("Neg", [y])
    assert smallest(g, judged) == Found("disagree", text="Tanh")
