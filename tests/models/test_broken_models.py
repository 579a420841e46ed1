"""Models that are broken at one node: the check fails, and `per_layer` names the node.

`tools/soak.py damages` does the same with any number, of the corpus.
"""

from pathlib import Path

import numpy as np
import onnx
import pytest

import onnxtfl
from tests.fuzz.damages_trial import Breaker, Damaged, Made, damaged, is_named
from tests.models.broken_models import Array
from tests.models.small_models import HEAD, MODELS
from tests.models.varied_inputs import differ_somewhere

CASES = [  # model, how the pair is made, kind of break, op
    ("cnn", "onnx-!onnx", "a few weights", "Conv"),
    ("cnn", "onnx-!converted", "stride", "MaxPool"),
    ("cnn", "onnx-!converted", "pads", "Conv"),
    ("cnn", "onnx-!converted", "order", "Concat"),
    ("cnn", "!onnx-tflite", "no bias", "Gemm"),
    ("cnn", "onnx-!tflite", "beta", "SOFTMAX"),
    ("cnn", "onnx-!tflite", "no activation", "CONV_2D"),
    ("cnn", "onnx-!tflite", "another activation", "LOGISTIC"),
    ("cnn", "onnx-!tflite", "stride", "MAX_POOL_2D"),
    ("cnn", "onnx-!tflite", "padding", "CONV_2D"),
    ("transformer", "onnx-!onnx", "perm", "Transpose"),
    ("transformer", "onnx-!converted", "axis", "Softmax"),
    ("transformer", "onnx-!tflite", "axis", "MEAN"),
    ("transformer", "onnx-!tflite", "a few weights", "FULLY_CONNECTED"),
    ("lstm", "onnx-!onnx", "gates", "LSTM"),
    ("lstm", "onnx-!converted", "a few weights", "LSTM"),
    ("lstm", "onnx-!tflite", "two channels exchanged", "FULLY_CONNECTED"),
    ("gru", "onnx-!converted", "gates", "GRU"),
    ("gru", "onnx-!tflite", "another activation", "TANH"),
    ("choice", "onnx-!tflite", "comparison", "GREATER"),
    ("choice", "onnx-!tflite", "branches exchanged", "IF"),
    ("choice", "onnx-!tflite", "one channel", "FULLY_CONNECTED"),
    ("table", "onnx-!tflite", "a row of a table", "GATHER"),
    ("table", "onnx-!tflite", "epsilon", "ADD"),
    ("table", "!onnx-tflite", "epsilon", "LayerNormalization"),
    ("detection", "onnx-!tflite", "threshold", "NON_MAX_SUPPRESSION_V4"),
    ("detection", "onnx-!converted", "threshold", "NonMaxSuppression"),
    ("int8", "onnx-!tflite", "a bias off by a step", "CONV_2D"),
    ("int8", "onnx-!tflite", "two channels exchanged", "CONV_2D"),
    ("int8", "onnx-!tflite", "scale", "CONV_2D"),
    ("int8", "onnx-!converted", "zero point", "QuantizeLinear"),
    ("int8", "onnx-!tflite", "scale of weights", "FULLY_CONNECTED"),
    ("int8", "onnx-!onnx", "scale", "DequantizeLinear"),
    ("int8", "onnx-!converted", "no activation", "Sigmoid"),
]


def pair(name: str, how: str, kind: str, op: str, folder: Path) -> Damaged:
    """The files of a pair, one of which is broken at the first node of this op where that can be."""

    def choose(breaker: Breaker) -> Made:
        for found, index in breaker.ways():
            made = breaker.broken(kind, index) if found == kind else None
            if made is not None and made[1].op == op:
                return made
        raise AssertionError(f"{op} cannot be broken: {kind}")

    onnx.save(MODELS[name], folder / "a.onnx")
    found = damaged(how, folder, np.random.default_rng(0), choose)
    assert found is not None
    return found


@pytest.mark.parametrize(("name", "how", "kind", "op"), CASES, ids=lambda part: str(part).replace(" ", "_"))
def test_the_broken_node_is_named(name: str, how: str, kind: str, op: str, tmp_path: Path) -> None:
    made = pair(name, how, kind, op, tmp_path)
    report = onnxtfl.check(made.a, made.b, per_layer=True)
    assert report.status == "failed", report
    first = report.first_difference
    assert first is not None
    assert is_named(made.what, report, how, made.sources), (made.what, first)
    assert first.error > 10 * first.error_in
    assert str(first) in report.notes


def weights(model: onnx.ModelProto) -> Array:
    """The first weights of a model, which may be changed."""
    return np.frombuffer(model.graph.initializer[0].raw_data, np.float32).copy()


def test_brute_force_judges_by_the_outputs(tmp_path: Path) -> None:
    """A weight that is another by less than the tolerance changes nothing; one by more does."""
    source = MODELS["transformer"]
    onnx.save(source, tmp_path / "good.onnx")
    for factor, differ in ((1 + 1e-6, False), (1.1, True)):
        wrong = onnx.ModelProto.FromString(source.SerializeToString())
        wrong.graph.initializer[0].raw_data = (weights(wrong) * np.float32(factor)).tobytes()
        onnx.save(wrong, tmp_path / "broken.onnx")
        assert differ_somewhere(tmp_path / "good.onnx", tmp_path / "broken.onnx", 20) is differ


@pytest.mark.parametrize(("zero", "differ"), [(1, False), (2, True)])
def test_one_step_of_a_quantized_output_is_within_the_tolerance(zero: int, differ: bool, tmp_path: Path) -> None:
    for name, point in (("good", 0), ("broken", zero)):
        text = f"""{HEAD} steps (float[4, 4] x) => (float[4, 4] y)
            <float s = {{0.1}}, int8 z = {{0}}, int8 p = {{{point}}}> {{
            q = QuantizeLinear (x, s, z)
            y = DequantizeLinear (q, s, p)
        }}"""
        onnx.save(onnx.parser.parse_model(text), tmp_path / f"{name}.onnx")
    assert differ_somewhere(tmp_path / "good.onnx", tmp_path / "broken.onnx", 20) is differ
