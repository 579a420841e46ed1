"""Where ops run on the CPU: LiteRT says what its delegate computes, and where there is no LiteRT, the table says it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from onnx import TensorProto, helper

import onnxtfl
from onnxtfl import placement
from tests.unit.micro_models import cnn, recurrent
from tests.unit.tiny_models import onnx_model


@pytest.mark.parametrize("model", ["float", "quantized", "recurrent"])
def test_the_table_says_what_the_delegate_computes(model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = recurrent("LSTM") if model == "recurrent" else cnn(quantized=model == "quantized")
    path = tmp_path / "m.tflite"
    onnxtfl.onnx_to_tflite(source, path, check=False)
    asked = placement.place(path, placement.CPU)
    monkeypatch.setattr(placement, "profile", lambda *_, **__: {"note": "LiteRT is not installed"})
    known = placement.place(path, placement.CPU)
    assert (asked.note, known.note) == ("", "LiteRT is not installed")
    assert places(known) == places(asked) and "schemas/targets/xnnpack.toml" in known.by
    assert known.rows()[0].text == "not checked on cpu: LiteRT is not installed"


def places(found: placement.Placement) -> list[tuple[str, str]]:
    return [(op.op, op.where) for op in found.ops]


def test_an_op_that_is_left_to_other_kernels_has_a_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = [helper.make_node("Relu", ["x"], ["r"]), helper.make_node("LogSoftmax", ["r"], ["y"])]
    source = onnx_model(nodes, [("x", TensorProto.FLOAT, (2, 3))], [("y", TensorProto.FLOAT, None)], {}, opset=18)
    onnxtfl.onnx_to_tflite(source, tmp_path / "m.tflite", check=False)
    monkeypatch.setattr(placement, "profile", lambda *_, **__: {})
    found: Any = placement.place(tmp_path / "m.tflite", placement.CPU)
    assert [(op.op, op.where, op.reason) for op in found.ops] == [
        ("RELU", "XNNPACK", ""),
        (
            "LOG_SOFTMAX",
            "builtin kernels",
            "no form of LOG_SOFTMAX computes correct values in XNNPACK",
        ),
    ]
