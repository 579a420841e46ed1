"""Tests for an app with a model. Run `pytest`; run `pytest --onnxtfl-update` after the model was retrained.

pip install onnxtfl pytest
"""

import numpy as np


def test_the_app_has_the_model_that_was_trained(assert_models_agree):
    report = assert_models_agree("models/digits.onnx", "app/digits.tflite", atol=1e-3)
    assert report.max_abs < 1e-3


def test_the_model_converts_to_what_the_app_has(assert_converts):
    conversion = assert_converts("models/digits.onnx", golden="app/digits.tflite")
    assert conversion.report.size < 200_000


def test_dark_images(assert_models_agree):
    dark = np.zeros((1, 1, 8, 8), np.float32)
    assert_models_agree("models/digits.onnx", "app/digits.tflite", data={"image": dark})
