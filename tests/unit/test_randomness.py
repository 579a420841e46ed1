"""The ops of the family randomness: what they mean, how they are lifted, and what is written for them."""

from __future__ import annotations

import pytest
from onnx import TensorProto, helper

from onnxtfl.ir.op import Effect
from onnxtfl.options import Options
from onnxtfl.pipeline import inspect
from tests.unit.tiny_models import onnx_model


@pytest.mark.parametrize("opset", [1, 22])
def test_random_numbers_are_not_folded(opset: int) -> None:
    node = helper.make_node("RandomUniform", [], ["y"], shape=[2, 3], low=1.0, high=2.0, seed=4.0)
    model = onnx_model([node], [], [("y", TensorProto.FLOAT, (2, 3))], opset=opset)
    graph = inspect(model.SerializeToString(), "cleanup", Options())
    effects = [node.op.effect for node in graph.nodes]
    assert effects.count(Effect.RANDOM) == 1
    assert str(graph.outputs[0].type) == "tensor<2x3xfloat32>"
