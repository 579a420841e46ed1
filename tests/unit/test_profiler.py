"""Time per op, as the runtimes measure it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import onnxtfl
from onnxtfl.checking.report import CheckReport
from onnxtfl.checking.session import check_models
from onnxtfl.checking.settings import Settings
from onnxtfl.runtimes import LITERT, ONNXRUNTIME
from onnxtfl.runtimes.profiler import profile
from onnxtfl.runtimes.profiler_script import delegation, onnx_times


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> CheckReport:
    """A convolution, a Relu and a TopK, of which XNNPACK takes all but the last."""
    if not (ONNXRUNTIME.available() and LITERT.available()):
        pytest.skip("ONNX Runtime or LiteRT is not installed")
    folder = tmp_path_factory.mktemp("model")
    weight = np.random.default_rng(0).normal(size=(8, 3, 3, 3)).astype(np.float32)
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"]),
        helper.make_node("Sigmoid", ["c"], ["s"]),
        helper.make_node("TopK", ["s", "k"], ["y", "i"]),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 32, 32])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    constants = [numpy_helper.from_array(weight, "w"), numpy_helper.from_array(np.array([2]), "k")]
    graph = helper.make_graph(nodes, "g", [x], [y], constants)
    source = folder / "m.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), source)
    onnxtfl.onnx_to_tflite(source, folder / "m.tflite", check=False)
    return check_models(source, folder / "m.tflite", Settings(profile=True))


def test_both_runtimes_measure_their_ops(report: CheckReport) -> None:
    onnx_profile, tflite_profile = report.profiles
    assert (onnx_profile.note, tflite_profile.note) == ("", "")
    assert {"Conv", "TopK"} <= {op.op for op in onnx_profile.ops}
    assert "TOPK_V2" in {op.op for op in tflite_profile.ops}
    assert any(op.op.startswith("XNNPACK Convolution") for op in tflite_profile.ops)
    for measured in report.profiles:
        assert measured.milliseconds is not None
        assert 0 < measured.milliseconds < 1000
        assert all(0 <= op.milliseconds < 1000 for op in measured.ops)


def test_the_share_that_a_delegate_takes(report: CheckReport) -> None:
    measured = report.profiles[1]
    assert measured.delegate == "XNNPACK"
    assert 2 <= measured.delegated < measured.total


def test_both_files_are_described(report: CheckReport) -> None:
    assert [model.format for model in report.models] == ["onnx", "tflite"]
    assert report.models[0].ops == {"Conv": 1, "Sigmoid": 1, "TopK": 1}
    assert report.models[1].size > 8 * 3 * 9 * 4


def test_a_model_that_does_not_run_is_not_measured(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(b"no model")
    found = profile(ONNXRUNTIME, tmp_path / "m.onnx", [])
    assert found["note"].startswith("not measured: ")
    assert "ops" not in found


def test_times_of_onnx_runtime_are_means_without_the_first_run() -> None:
    events = [
        {"cat": "Node", "name": "a_kernel_time", "dur": dur, "args": {"op_name": "Conv"}} for dur in (900, 20, 40)
    ]
    other = [{"cat": "Session", "name": "run"}, {"cat": "Node", "name": "a_fence_before", "dur": 5, "args": {}}]
    assert onnx_times([*other, *events]) == [("a", "Conv", 0.03)]


def test_ops_between_inputs_and_outputs_of_a_delegate_are_its_own() -> None:
    nodes = [
        {"index": 0, "op_name": "CONV_2D", "inputs": [0, 1], "outputs": [2]},
        {"index": 1, "op_name": "RELU", "inputs": [2], "outputs": [3]},
        {"index": 2, "op_name": "TOPK_V2", "inputs": [3], "outputs": [4]},
        {"index": 3, "op_name": "DELEGATE", "inputs": [0, 1], "outputs": [3]},
    ]
    assert delegation(nodes) == {"delegate": "XNNPACK", "delegated": 2, "total": 3, "partitions": 1, "replaced": [0, 1]}
    assert delegation(nodes[:3]) == {"delegate": "", "delegated": 0, "total": 3, "partitions": 0, "replaced": []}
