"""The ops of the family identity: what they mean, how they are lifted, and what is written for them."""

from __future__ import annotations

import numpy as np
import pytest

from onnxtfl.errors import UnsupportedError
from onnxtfl.ir import ops
from tests.unit.lifting import lifted_onnx

X = np.linspace(-9, 9, 24).reshape(2, 3, 4).astype(np.float32)


@pytest.mark.parametrize("version", [1, 6])
def test_dropout_in_test_mode(version: int) -> None:
    np.testing.assert_array_equal(lifted_onnx("Dropout", version, [X], is_test=1), X)


def test_dropout_of_old_models_has_to_be_in_test_mode() -> None:
    with pytest.raises(UnsupportedError, match="test mode"):
        lifted_onnx("Dropout", 6, [X])


def test_nothing_is_dropped() -> None:
    (_, mask) = ops.Dropout.evaluate({"ratio": 0.5}, X)
    assert mask.dtype == bool
    assert mask.shape == X.shape
    assert mask.all()
