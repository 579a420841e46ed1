"""The opinion of the neutral ops: of models without a kernel, and where two runtimes disagree."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import parser

import onnxtfl
from onnxtfl.checking.models import side as sides

HEAD = '<ir_version: 8, opset_import: ["" : 17]> g (float[2, 8] x) => (float[2, 8] y) '


def written(path: Path, body: str) -> Path:
    path.write_bytes(parser.parse_model(HEAD + body).SerializeToString())
    return path


def test_models_that_differ_are_computed_by_both_runtimes(tmp_path: Path) -> None:
    a = written(tmp_path / "a.onnx", "{ y = Relu (x) }")
    b = tmp_path / "b.tflite"
    onnxtfl.onnx_to_tflite(written(tmp_path / "b.onnx", "{ y = Abs (x) }"), b, check=False)
    report = onnxtfl.check(a, b)
    assert report.status == "failed"
    assert any("the models differ: both runtimes compute it" in note for note in report.notes)


def test_a_runtime_that_deviates_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if LiteRT computed 1.5 times what the ops mean."""
    a = written(tmp_path / "a.onnx", "{ y = Relu (x) }")
    b = tmp_path / "b.tflite"
    onnxtfl.onnx_to_tflite(a, b, check=False)
    result = sides.Begun.result

    def wrong(self: sides.Begun, time_limit: float | None = None) -> list[list[np.ndarray]]:
        found = result(self, time_limit)
        is_litert = self.side.info.format == "tflite" and self.side.run_options.get("time_limit") is None
        return [[1.5 * v for v in outputs] for outputs in found] if is_litert else found

    monkeypatch.setattr(sides.Begun, "result", wrong)
    report = onnxtfl.check(a, b)
    assert report.status == "failed"
    assert any("the TFLite runtime on the second model deviates from the meaning" in note for note in report.notes)


def test_a_text_is_a_source_of_a_check(tmp_path: Path) -> None:
    graph = tmp_path / "g.ir"
    graph.write_text("graph g(%x: tensor<2x8xfloat32>) -> (%y) { %y = Relu(%x) }")
    a = written(tmp_path / "a.onnx", "{ y = Relu (x) }")
    assert onnxtfl.check(graph, a).status == "passed"
    assert onnxtfl.check(graph, written(tmp_path / "b.onnx", "{ y = Abs (x) }")).status == "failed"
