"""The ops of the family randomness: what they mean, how they are lifted, and what is written for them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from onnxtfl.evaluation import Evaluator
from onnxtfl.ir.op import OPS, Effect
from onnxtfl.options import Options
from onnxtfl.pipeline import inspect
from onnxtfl.runtimes.reference_script import run
from tests.unit.tiny_models import onnx_model


@pytest.mark.parametrize("opset", [1, 22])
def test_random_numbers_are_not_folded(opset: int) -> None:
    node = helper.make_node("RandomUniform", [], ["y"], shape=[2, 3], low=1.0, high=2.0, seed=4.0)
    model = onnx_model([node], [], [("y", TensorProto.FLOAT, (2, 3))], opset=opset)
    graph = inspect(model.SerializeToString(), "cleanup", Options())
    effects = [node.op.effect for node in graph.nodes]
    assert effects.count(Effect.RANDOM) == 1
    assert str(graph.outputs[0].type) == "tensor<2x3xfloat32>"


@pytest.mark.parametrize(
    ("name", "onnx_name", "first", "second"),
    [("RngNormal", "RandomNormal", "mean", "scale"), ("RngUniform", "RandomUniform", "low", "high")],
)
def test_a_seed_draws_the_numbers_of_the_reference(name: str, onnx_name: str, first: str, second: str) -> None:
    node = helper.make_node(onnx_name, [], ["y"], shape=[3, 5], seed=7.0, **{first: 2.0, second: 5.0})
    (wanted,) = ReferenceEvaluator(onnx_model([node], [], [("y", TensorProto.FLOAT, (3, 5))])).run(None, {})
    operands = np.float32(2), np.float32(5), np.asarray([3, 5])
    found = OPS[name].evaluate({"seed": 7}, *operands)
    assert isinstance(found, np.ndarray) and found.dtype == np.float32
    np.testing.assert_allclose(found, wanted, rtol=1e-6)
    assert not np.array_equal(*(OPS[name].evaluate({"seed": 0}, *operands) for _ in range(2)))


def test_drawn_integers_and_classes_have_their_probabilities() -> None:
    drawn = OPS["RngUniform"].evaluate({"seed": 1}, np.int32(-2), np.int32(2), np.asarray([4000]))
    np.testing.assert_allclose(np.bincount(np.asarray(drawn) + 2) / 4000, [0.25] * 4, atol=0.03)
    logits = np.log(np.asarray([[1, 1e-9, 3], [0.2, 0.2, 0.1]], np.float32))
    classes = OPS["Multinomial"].evaluate({"seed": 1}, logits, np.asarray(4000))
    assert isinstance(classes, np.ndarray) and classes.dtype == np.int32
    for row, wanted in zip(classes, [[0.25, 0, 0.75], [0.4, 0.4, 0.2]], strict=True):
        np.testing.assert_allclose(np.bincount(row, minlength=3) / 4000, wanted, atol=0.03)


def test_runs_of_a_seed_go_on_drawing(tmp_path: Path) -> None:
    """As in ONNX Runtime and LiteRT: the check compares the draws of many runs."""
    node = helper.make_node("RandomNormal", [], ["drawn"], shape=[3], seed=7.0)
    inner = helper.make_graph([node], "g", [], [helper.make_tensor_value_info("drawn", TensorProto.FLOAT, (3,))])
    branches = helper.make_node("If", ["c"], ["y"], then_branch=inner, else_branch=inner)
    model = onnx_model([branches], [("c", TensorProto.BOOL, ())], [("y", TensorProto.FLOAT, (3,))], opset=22)
    path = tmp_path / "model.onnx"
    path.write_bytes(model.SerializeToString())
    evaluator, given = Evaluator(path), [np.asarray(True)]
    for runs in ([evaluator.run(given) for _ in range(2)], run(str(path), [given, given])):
        assert not np.array_equal(*(outputs[0] for outputs in runs))
