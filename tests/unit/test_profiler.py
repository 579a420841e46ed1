"""Time per op, as the runtimes measure it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import onnxtfl
from onnxtfl.checking.report import CheckReport
from onnxtfl.checking.session import check_models
from onnxtfl.checking.settings import Settings
from onnxtfl.op_times import kernel_names, matched
from onnxtfl.runtimes import LITERT, ONNXRUNTIME
from onnxtfl.runtimes.profiler import profile
from onnxtfl.runtimes.profiler_script import delegation, onnx_times
from onnxtfl.targets.table import op_names
from tests.unit.test_cli import onnxtfl as run
from tests.unit.tiny_models import onnx_model


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A convolution, a Sigmoid and a TopK, of which XNNPACK takes all but the last; the .tflite is beside it."""
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
    return source


@pytest.fixture(scope="module")
def report(source: Path) -> CheckReport:
    return check_models(source, source.with_suffix(".tflite"), Settings(profile=True))


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


def test_inspect_measures_the_ops_of_a_file(source: Path) -> None:
    """Those of the delegate under the names of the file, with the nodes of the source."""
    found = onnxtfl.inspect(source.with_suffix(".tflite"), profile=True).times
    assert found is not None and found.note == "" and found.milliseconds is not None and found.partitions >= 1
    by_op = {op.op: op for op in reversed(found.ops)}
    assert {"CONV_2D", "LOGISTIC", "TOPK_V2"} <= by_op.keys()
    assert by_op["CONV_2D"].kernels[0].startswith("XNNPACK Convolution") and by_op["LOGISTIC"].name == "s"
    assert by_op["TRANSPOSE"].sources == ("x",)
    of_source = onnxtfl.inspect(source, profile=True).times
    assert of_source is not None and {"Conv", "TopK"} <= {op.op for op in of_source.ops}


def test_inspect_prints_times_and_writes_them_as_json(source: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("inspect", "--summary", "--profile", source.with_suffix(".tflite")) == 0
    assert "by op" in capsys.readouterr().out
    assert run("inspect", "--summary", "--profile", "--json", source) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["times"]["ops"][0].keys() == {"name", "op", "milliseconds", "kernels", "sources"}


def test_inspect_measures_at_given_sizes(tmp_path: Path) -> None:
    path, spec = tmp_path / "m.onnx", (TensorProto.FLOAT, ["n"])
    onnx.save(onnx_model([helper.make_node("Relu", ["x"], ["y"])], [("x", *spec)], [("y", *spec)]), path)
    assert onnxtfl.inspect(path, profile=True, dims={"n": 7}).times is not None
    with pytest.raises(onnxtfl.UsageError, match="no input has a dimension 'k'"):
        onnxtfl.inspect(path, profile=True, dims={"k": 7})
    with pytest.raises(onnxtfl.UsageError, match="profile is of the file itself"):
        onnxtfl.inspect(path, "simplify", profile=True)


@pytest.mark.parametrize(
    ("kernels", "ops", "places"),
    [
        (["Convolution", "Convolution"], ["PAD", "CONV_2D", "PAD", "DEPTHWISE_CONV_2D"], [1, 3]),
        (["Copy", "Copy", "Sigmoid"], ["CONCATENATION", "LOGISTIC"], [0, 0, 1]),
        (["Static Reshape", "Copy", "Copy"], ["RESHAPE", "CONCATENATION", "TANH"], [0, 1, 1]),
        (["Fully Connected", "of another version", "Add"], ["FULLY_CONNECTED", "SIGN", "ADD"], [0, 1, 2]),
        (["Add", "Multiply"], ["MUL", "ADD"], None),
        (["Add"], [], None),
        ([], ["ADD"], None),
    ],
)
def test_kernels_and_ops_are_matched_in_order(kernels: list[str], ops: list[str], places: list[int] | None) -> None:
    assert matched(kernels, ops) == places


def test_kernels_are_of_ops_that_exist() -> None:
    assert frozenset().union(*kernel_names().values()) <= set(op_names())
