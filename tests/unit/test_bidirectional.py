"""The op of the family bidirectional: two layers, recognized and written out."""

from __future__ import annotations

import numpy as np
import onnxruntime

from onnxtfl import build_model
from onnxtfl.ir.graph import Graph
from onnxtfl.ir.interpret import run
from onnxtfl.ir.text import parse_graph
from tests.passes.helpers import op_counts, recognize

WEIGHTS = ", ".join(str(round(0.1 * (i % 7) - 0.3, 1)) for i in range(9))
LAYERS = f"""graph main(%x: tensor<5x2x3xfloat32>, %h: tensor<2x3xfloat32>) -> (%y, %m, %n) {{
  %w = constant tensor<3x3xfloat32> [{WEIGHTS}]
  %f, %m = Rnn(%x, %w, %w, _, _, %h)
  %b, %n = Rnn(%x, %w, %w, _, _, %h) {{reverse = true, activations = ["relu"], alphas = [0.0], betas = [0.0]}}
  %y = Concatenate(%f, %b) {{axis = 2}}
}}"""


def recognized(text: str) -> Graph:
    rng = np.random.default_rng(0)
    inputs = [rng.standard_normal((5, 2, 3)).astype(np.float32), rng.standard_normal((2, 3)).astype(np.float32)]
    graph = parse_graph(text)
    wanted = run(graph, inputs)
    recognize(graph)
    for a, b in zip(wanted, run(graph, inputs), strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-6)
    return graph


def test_both_directions() -> None:
    text = LAYERS.replace("_, _, %h)\n", "_, _, %h) {alphas = [0.0], betas = [0.0]}\n", 1)
    assert dict(op_counts(recognized(text))) == {"Bidirectional": 1}


def test_int64_lengths_are_converted_once_for_both_directions() -> None:
    text = LAYERS.replace("%h: tensor<2x3xfloat32>", "%h: tensor<2x3xfloat32>, %l: tensor<2xint64>")
    text = text.replace("_, _, %h)", "_, %l, %h)").replace('["relu"], alphas = [0.0], betas = [0.0]', '["relu"]')
    model = build_model(text.encode(), to="onnx", check=False)
    rng = np.random.default_rng(0)
    given = [rng.standard_normal((5, 2, 3)), rng.standard_normal((2, 3)), np.asarray([5, 3])]
    arrays = [a.astype(np.float32 if a.dtype == np.float64 else np.int64) for a in given]
    session = onnxruntime.InferenceSession(model.data)
    found = session.run(None, dict(zip("xhl", arrays, strict=True)))
    for a, b in zip(run(parse_graph(text), arrays), found, strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-5, atol=1e-6)


def test_outputs_that_are_batch_major_before_they_are_joined() -> None:
    moved = "".join(f"  %{v}t = Transpose(%{v}) {{permutation = [1, 0, 2]}}\n" for v in "fb")
    text = LAYERS.replace("  %y = Concatenate(%f, %b)", f"{moved}  %y = Concatenate(%ft, %bt)")
    assert dict(op_counts(recognized(text))) == {"Bidirectional": 1, "Transpose": 1}
    one = text.replace("%ft, %bt", "%f, %b").replace("%n)", "%n, %bt)", 1)
    assert op_counts(recognized(one))["Bidirectional"] == 0


def test_two_forward_layers_stay() -> None:
    assert op_counts(recognized(LAYERS.replace("reverse = true", "reverse = false")))["Bidirectional"] == 0


def test_an_output_with_another_use_stays() -> None:
    assert op_counts(recognized(LAYERS.replace("(%y, %m, %n)", "(%y, %m, %f)")))["Bidirectional"] == 0
