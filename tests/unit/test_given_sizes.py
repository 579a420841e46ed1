"""Sizes that the user asks for and the model does not work with: the error is one of the option."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import onnxtfl
from onnxtfl.errors import InvalidModelError, UsageError
from tests.unit.tiny_models import onnx_model

FLOAT = TensorProto.FLOAT


def sum_with(shape: list[int | str]) -> bytes:
    """Add(x, table [1, 5, 3])."""
    node = helper.make_node("Add", ["x", "table"], ["y"])
    table = {"table": np.zeros((1, 5, 3), np.float32)}
    return onnx_model([node], [("x", FLOAT, shape)], [("y", FLOAT, None)], table).SerializeToString()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"input_shapes": {"x": (2, 4, 3)}},
            r"sizes of input_shapes .*input 'x' is \[2,4,3\], in the model \[2,seq,3\]",
        ),
        ({"dims": {"seq": 4}}, r"sizes of dims .*input 'x' is \[2,4,3\], in the model \[2,seq,3\]"),
    ],
)
def test_sizes_that_do_not_fit_are_not_a_fault_of_the_model(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message) as found:
        onnxtfl.onnx_to_tflite(sum_with([2, "seq", 3]), check=False, **options)
    assert "(input 'x' is [2,4,3], in the model [2,seq,3])" in str(found.value)
    assert "4 and 5 do not broadcast" in str(found.value)
    assert "export the model again" not in str(found.value)


@pytest.mark.parametrize("options", [{}, {"input_shapes": {"x": (2, 4, 3)}}])
def test_a_model_that_does_not_fit_by_itself(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidModelError, match=r"4 and 5 do not broadcast.*export the model again"):
        onnxtfl.onnx_to_tflite(sum_with([2, 4, 3]), check=False, **options)


def test_sizes_of_the_check_that_the_model_does_not_take() -> None:
    check = onnxtfl.onnx_to_tflite(sum_with([2, "seq", 3]), check_dims={"seq": 4}).check
    assert check is not None
    assert check.status == "not checked"
    assert "it may not take the sizes that were asked for: seq=4; give sizes that fit with --check-dim" in check.reason
