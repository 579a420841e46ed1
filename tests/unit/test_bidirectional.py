"""The op of the family bidirectional: two layers, recognized and written out."""

from __future__ import annotations

import math

import numpy as np
import onnxruntime
import pytest

import onnxtfl
from onnxtfl import build_model
from onnxtfl.errors import UnsupportedError
from onnxtfl.ir.graph import Graph
from onnxtfl.ir.interpret import run
from onnxtfl.ir.text import parse_graph
from tests.harness.litert import run_onnx, run_tflite
from tests.passes.helpers import op_counts, recognize
from tests.unit.test_quantized_tfl import tflite

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


def _numbers(*sizes: int, stored: str = "float32") -> str:
    values = np.arange(math.prod(sizes)) % 7 - 3
    return f"constant tensor<{'x'.join(map(str, sizes))}x{stored}> {values.reshape(sizes).tolist()}"


def _hybrid_rnn(steps: int) -> bytes:
    """A time-major layer of 2 cells with int8 weights."""
    weights = "float32, quant<int8 0.1:0>"
    layers = " ".join(
        f"%w{d} = {_numbers(2, 3, stored=weights)} %r{d} = {_numbers(2, 2, stored=weights)} %b{d} = {_numbers(2)}"
        for d in "fb"
    )
    return tflite(
        f"""graph main(%x: tensor<{steps}x1x3xfloat32>) -> (%y, %z) {{
        state %hf: tensor<1x2xfloat32> -> %hf
        state %hb: tensor<1x2xfloat32> -> %hb
        {layers}
        %y, %z = tfl.BIDIRECTIONAL_SEQUENCE_RNN@2(%x, %wf, %rf, %bf, %hf, %wb, %rb, %bb, %hb, _, _, _)
          {{time_major = true, fused_activation_function = "TANH", merge_outputs = false,
            asymmetric_quantize_inputs = false}} : tensor<{steps}x1x2xfloat32>, tensor<{steps}x1x2xfloat32>
        }}"""
    )


def test_a_hybrid_layer_that_repeats_the_sequence_is_refused() -> None:
    """LiteRT's kernel goes over the sequence once for each step, and keeps the states of the previous time."""
    x = np.ones((1, 1, 3), np.float32)
    once = onnxtfl.tflite_to_onnx(_hybrid_rnn(1), check=False).data
    states = {n: np.zeros((1, 2), np.float32) for n in ("hf", "hb")}
    found = list(run_onnx(once, {"x": x, **states}).values())
    for (_, wanted), array in zip(run_tflite(_hybrid_rnn(1), [x], kernels="builtin"), found, strict=False):
        np.testing.assert_allclose(array, wanted, atol=1e-6)
    with pytest.raises(UnsupportedError, match="repeats the sequence"):
        onnxtfl.tflite_to_onnx(_hybrid_rnn(3), check=False)


@pytest.mark.parametrize("batch", [1, 2])
def test_hidden_states_that_a_kernel_reads_elsewhere_are_said(batch: int) -> None:
    gates = [(g, d) for d in "fb" for g in "ifco"]
    layers = " ".join(
        f"%w{g}{d} = {_numbers(2, 3)} %r{g}{d} = {_numbers(2, 2)} %b{g}{d} = {_numbers(2)}" for g, d in gates
    )
    weights = {d: [f"%{kind}{g}{d}" for kind in "wr" for g in "ifco"] for d in "fb"}
    biases = {d: [f"%b{g}{d}" for g in "ifco"] for d in "fb"}
    operands = [*(n for d in "fb" for n in (*weights[d], *"___", *biases[d], *"__")), "%hf", "%cf", "%hb", "%cb"]
    states = " ".join(f"state %{n}: tensor<{batch}x2xfloat32> -> %{n}" for n in ("hf", "cf", "hb", "cb"))
    data = tflite(
        f"""graph main(%x: tensor<{batch}x3x3xfloat32>) -> (%y) {{
        {states} {layers}
        %y = tfl.BIDIRECTIONAL_SEQUENCE_LSTM@1(%x, {", ".join([*operands, *"_________"])})
          {{fused_activation_function = "TANH", merge_outputs = true, time_major = false, cell_clip = 0.0,
            proj_clip = 0.0, asymmetric_quantize_inputs = false}} : tensor<{batch}x3x4xfloat32>
        }}"""
    )
    found = onnxtfl.tflite_to_onnx(data, check=False).report.assumptions
    assert ["own hidden state" in text for text in found] == [True] * (batch > 1)
