"""Models that their runtime refuses are run in other ways before a check gives up, and the report says so."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

import onnxtfl
from onnxtfl.runtimes.run_errors import brief
from tests.harness.rounds import parsed
from tests.unit.tiny_models import onnx_model, onnx_scale, onnx_unknown_op, saved, tflite_scale

FLOAT = TensorProto.FLOAT


def test_an_opset_that_onnxruntime_does_not_know_yet(tmp_path: Path) -> None:
    newer = onnx_scale()
    newer.opset_import[0].version = 1000
    paths = saved(newer, tmp_path / "a.onnx"), saved(tflite_scale(), tmp_path / "b.tflite")
    report = onnxtfl.check(*paths)
    assert report.ok
    assert any("the first model does not run by default, it was written with opset" in note for note in report.notes)
    wrong = saved(tflite_scale(2.1), tmp_path / "c.tflite")
    assert onnxtfl.check(paths[0], wrong).status == "failed"
    assert "the second model" in onnxtfl.check(saved(onnx_scale(), tmp_path / "o.onnx"), paths[0]).notes[0]


def test_an_ir_version_that_onnxruntime_does_not_know_yet(tmp_path: Path) -> None:
    newer = onnx_scale()
    newer.ir_version = 99
    report = onnxtfl.check(saved(newer, tmp_path / "a.onnx"), saved(tflite_scale(), tmp_path / "b.tflite"))
    assert report.ok
    assert "max supported IR version" in report.notes[0]


def test_an_op_that_only_the_reference_evaluator_has(tmp_path: Path) -> None:
    """ONNX Runtime has no kernel for Round on bfloat16."""
    node = helper.make_node("Round", ["x"], ["y"])
    spec = [("x", TensorProto.BFLOAT16, [3])], [("y", TensorProto.BFLOAT16, [3])]
    path = saved(onnx_model([node], *spec, opset=22), tmp_path / "a.onnx")
    report = onnxtfl.check(path, path)
    assert report.ok, report
    assert any("onnx.reference" in note for note in report.notes)


def test_results_of_types_that_numpy_lacks(tmp_path: Path) -> None:
    """ml_dtypes names some of them otherwise than ONNX."""
    text = "g (float[2, 3] x) => (float4e2m1[2, 3] y) <float s = {1}> { y = QuantizeLinear <output_dtype = 23> (x, s) }"
    path = saved(parsed(text, 23), tmp_path / "a.onnx")
    assert onnxtfl.check(path, path).ok


def test_inputs_that_both_models_refuse_are_no_failure(tmp_path: Path) -> None:
    """Sizes of parts that are drawn do not add up; onnx.reference splits by them nevertheless."""
    text = "g (float[6] x, int64[2] split) => (float[2] a, float[4] b) { a, b = Split <axis = 0> (x, split) }"
    model = parsed(text, 13)
    paths = saved(model, tmp_path / "a.onnx"), tmp_path / "b.tflite"
    onnxtfl.onnx_to_tflite(paths[0], paths[1], check=False)
    report = onnxtfl.check(*paths)
    assert report.status == "not checked" and "both models refuse these inputs" in report.reason
    given = {"x": np.arange(6, dtype=np.float32), "split": np.asarray([2, 4])}
    assert onnxtfl.check(*paths, data=given).ok


def test_a_top_k_that_need_not_sort_is_compared_in_order(tmp_path: Path) -> None:
    """Any order is right; ONNX Runtime's is that of a heap."""
    text = "g (float[4,50] x) => (float[4,9] v, int64[4,9] i) { k = Constant <value_ints = [9]> () "
    for body in ("v, i = TopK <sorted = 0> (x, k) }", "n = Neg (x) m, i = TopK <sorted = 0> (n, k) v = Neg (m) }"):
        assert onnxtfl.onnx_to_tflite(parsed(text + body, 17), tmp_path / "a.tflite", check="require").check.ok
    other = saved(parsed(text + body, 17), tmp_path / "b.onnx")
    largest = saved(parsed(text + "v, i = TopK (x, k) }", 17), tmp_path / "c.onnx")
    assert onnxtfl.check(other, largest).status == "failed"


def test_what_runs_nowhere_is_not_checked(tmp_path: Path) -> None:
    path = saved(onnx_unknown_op(), tmp_path / "a.onnx")
    report = onnxtfl.check(path, saved(tflite_scale(), tmp_path / "b.tflite"))
    assert report.status == "not checked"
    assert "unknown.domain" in report.reason
    assert "onnxruntime" in report.reason
    with pytest.raises(onnxtfl.UsageError, match="no input"):
        onnxtfl.check(path, path, data={"z": np.zeros(3)})


def test_messages_of_runtimes_are_short() -> None:
    place = "/onnxruntime_src/onnxruntime/core/graph/model.cc:256 onnxruntime::Model::Model(onnx::ModelProto&&, int) "
    told = f"[ONNXRuntimeError] : 1 : FAIL : Load model from /tmp/a.onnx failed:{place}Unsupported model IR version: 99"
    assert brief(told) == "Unsupported model IR version: 99"
    told = (
        "tflite/kernels/conv.cc:396 params->stride_height > 0 was not true.Node number 0 (CONV_2D) failed to prepare."
    )
    assert brief(told) == "params->stride_height > 0 was not true. Node number 0 (CONV_2D) failed to prepare."
    assert brief("./tflite/core/a.h:12 no shape") == "no shape"
    assert brief("no node of a name: " + "n" * 1_000_000).startswith("no node of a name: nnn")  # in less than a second
