"""Ops of the first opsets that ONNX removed."""

from __future__ import annotations

import numpy as np
import pytest

from onnxtfl.errors import UnsupportedError
from tests.unit.lifting import lifted_onnx

_X = np.arange(2 * 3 * 5 * 6, dtype=np.float32).reshape(2, 3, 5, 6)


def test_scale_and_crop() -> None:
    np.testing.assert_array_equal(lifted_onnx("Scale", 6, [_X], scale=2.0), _X * 2)
    np.testing.assert_array_equal(lifted_onnx("Crop", 6, [_X], border=[1, 2, 0, 1]), _X[:, :, 2:4, 1:])
    np.testing.assert_array_equal(lifted_onnx("Crop", 6, [_X], border=[1, 2, 0, 0], scale=[2, 3]), _X[:, :, 2:4, 1:4])


def test_dynamic_slice() -> None:
    """Bounds and axes as operands; an end beyond the axis is its end."""
    bounds = [np.asarray(v) for v in ([1, -2], [4, 99], [2, 3])]
    np.testing.assert_array_equal(lifted_onnx("DynamicSlice", 9, [_X, *bounds]), _X[:, :, 1:4, -2:])
    np.testing.assert_array_equal(lifted_onnx("DynamicSlice", 9, [_X, *(v[:1] for v in bounds[:2])]), _X[1:4])


def test_given_tensor_fill() -> None:
    values = {"values": [1.0, 2, 3, 4, 5, 6]}
    wanted = np.asarray([[1, 2, 3], [4, 5, 6]], np.float32)
    np.testing.assert_array_equal(lifted_onnx("GivenTensorFill", 6, [], shape=[2, 3], **values), wanted)
    shape = np.asarray([2, 3])
    np.testing.assert_array_equal(lifted_onnx("GivenTensorFill", 6, [shape], input_as_shape=1, **values), wanted)
    rows = np.zeros((2,), np.float32)
    np.testing.assert_array_equal(lifted_onnx("GivenTensorFill", 6, [rows], extra_shape=[3], **values), wanted)


@pytest.mark.parametrize("op", ["ATen", "GRUUnit"])
def test_what_has_no_definition_is_refused(op: str) -> None:
    with pytest.raises(UnsupportedError, match=r"no conversion for this op: .+; export the model"):
        lifted_onnx(op, 6, [_X])
