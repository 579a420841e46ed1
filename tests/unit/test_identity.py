"""The ops of the family identity: what they mean, how they are lifted, and what is written for them."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

import onnxtfl
from onnxtfl.errors import UnsupportedError
from onnxtfl.ir import ops
from tests.harness.litert import run_onnx, run_tflite
from tests.unit.lifting import lifted_onnx
from tests.unit.tiny_models import onnx_model

X = np.linspace(-9, 9, 24).reshape(2, 3, 4).astype(np.float32)


@pytest.mark.parametrize("version", [1, 6])
def test_dropout_in_test_mode(version: int) -> None:
    np.testing.assert_array_equal(lifted_onnx("Dropout", version, [X], is_test=1), X)


def test_dropout_of_old_models_has_to_be_in_test_mode() -> None:
    with pytest.raises(UnsupportedError, match="training mode"):
        lifted_onnx("Dropout", 6, [X])


def test_nothing_is_dropped() -> None:
    (_, mask) = ops.Dropout.evaluate({"ratio": 0.5}, X)
    assert mask.dtype == bool
    assert mask.shape == X.shape
    assert mask.all()


@pytest.mark.parametrize("opset", [7, 10, 12, 13])
def test_the_mask_of_what_is_not_dropped(opset: int) -> None:
    """ONNX Runtime's kernel for opsets before 12 clears it."""
    kind = TensorProto.BOOL if opset > 7 else TensorProto.FLOAT
    node = helper.make_node("Dropout", ["x"], ["y", "mask"])
    outputs = [("y", TensorProto.FLOAT, X.shape), ("mask", kind, X.shape)]
    model = onnx_model([node], [("x", TensorProto.FLOAT, X.shape)], outputs, opset=opset).SerializeToString()
    found = run_tflite(onnxtfl.onnx_to_tflite(model, check=False).data or b"", {"x": X})
    for wanted, (_, got) in zip(run_onnx(model, {"x": X}).values(), found, strict=True):
        np.testing.assert_array_equal(got, wanted)
