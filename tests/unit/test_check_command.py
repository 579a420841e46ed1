"""The command `onnxtfl check`: its options, exit codes and the JSON report."""

from __future__ import annotations

import io
import json
import re
import sys
from pathlib import Path

import click
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import onnxtfl
from onnxtfl import CheckReport, OutputCheck
from onnxtfl.cli.check import check_command
from onnxtfl.cli.inspect import inspect_command
from onnxtfl.cli.running import exit_code
from onnxtfl.errors import OnnxtflError
from tests.unit.tiny_models import onnx_model, onnx_scale, onnx_unknown_op, saved, tflite_scale


@pytest.fixture
def pair(tmp_path: Path) -> tuple[str, str]:
    return str(saved(onnx_scale(), tmp_path / "a.onnx")), str(saved(tflite_scale(), tmp_path / "b.tflite"))


def check(*words: object) -> int:
    """The exit code of `onnxtfl check`."""
    return exit_code(check_command, [str(word) for word in words])


def test_json_to_stdout_is_all_that_is_printed(pair: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    assert check(*pair, "--json", "-") == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["status"], report["a"], report["b"]) == ("passed", *pair)
    assert [(out["name"], out["ok"], out["max_abs"]) for out in report["outputs"]] == [("y", True, 0.0)]
    assert report["first_difference"] is None


def test_an_error_ends_with_one_code(pair: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    refused = saved(onnx_unknown_op(), Path(pair[0] + ".unknown.onnx"))
    for words in ((refused, pair[1]), (pair[0], pair[1] + ".none")):
        assert check(*words) == 1
        assert len(re.findall(r"\(E-\w+-\d+\)", capsys.readouterr().err)) == 1
    inside = OnnxtflError("no runtime for onnx; pip install onnxruntime", code="E-RUN-001")
    assert str(OnnxtflError(f"b was not checked: {inside}", code="E-CHECK-002")).endswith("onnxruntime (E-CHECK-002)")


def test_per_layer_is_advised_only_where_outputs_were_compared(
    pair: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = saved(tflite_scale(2.1), tmp_path / "wrong.tflite")
    other = saved(onnx_scale(shape=(4, 5, 6)), tmp_path / "other.onnx")
    assert check(pair[0], wrong) == check(pair[0], other) == 3
    first, second = (line for line in capsys.readouterr().err.splitlines() if line.startswith("error"))
    assert "--per-layer" in first
    assert "--per-layer" not in second and "input" in second


def test_json_to_a_file_in_a_new_folder(tmp_path: Path, pair: tuple[str, str]) -> None:
    wrong, out = saved(tflite_scale(2.1), tmp_path / "c.tflite"), tmp_path / "new" / "report.json"
    assert check(pair[0], wrong, "--json", out) == 3
    report = json.loads(out.read_text())
    assert report["status"] == "failed"
    assert not report["outputs"][0]["ok"]


def test_json_replaces_no_model(pair: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    before = Path(pair[0]).read_bytes()
    assert check(*pair, "--json", pair[0]) == 2
    assert Path(pair[0]).read_bytes() == before
    assert "is not a report of the check" in capsys.readouterr().err


def test_json_replaces_an_older_report(pair: tuple[str, str], tmp_path: Path) -> None:
    for _ in range(2):
        assert check(*pair, "--json", tmp_path / "out") == 0


def test_json_says_why_nothing_was_compared(tmp_path: Path, pair: tuple[str, str]) -> None:
    out = tmp_path / "report.json"
    assert check(pair[0], tmp_path / "none.tflite", "--json", out) == 1
    report = json.loads(out.read_text())
    assert report["status"] == "not checked"
    assert "none.tflite" in report["reason"]


def test_a_report_that_cannot_be_written(pair: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    assert check(*pair, "--json", pair[0] + "/report.json") == 1
    assert capsys.readouterr().err.startswith("error: cannot write ")


def test_json_has_no_numbers_that_json_lacks() -> None:
    report = CheckReport("failed", "", outputs=(OutputCheck("y", False, "float32", (2,), float("inf"), float("nan")),))
    text = json.dumps(report.to_json(), allow_nan=False)
    assert '"max_abs": "inf"' in text
    assert '"max_rel": "nan"' in text


def test_inputs_from_a_file(tmp_path: Path, pair: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    np.savez(tmp_path / "data.npz", x=np.ones((2, 3)))
    assert check("--data", tmp_path / "data.npz", *pair, "-v") == 0
    assert "given" in capsys.readouterr().out
    np.savez(tmp_path / "data.npz", z=np.ones((2, 3)))
    assert check(*pair, "--data", tmp_path / "data.npz") == 2
    assert "the model has no input 'z'" in capsys.readouterr().err


def test_options_under_their_former_names(tmp_path: Path, pair: tuple[str, str]) -> None:
    """They work, and are in no help."""
    np.savez(tmp_path / "data.npz", x=np.ones((2, 3)))
    assert check(*pair, "--inputs", tmp_path / "data.npz", "--steps=2", "--json", tmp_path / "report.json") == 0
    assert json.loads((tmp_path / "report.json").read_text())["inputs"][0]["values"] == "given"
    help_ = check_command.get_help(click.Context(check_command))
    assert "--steps" not in help_.split()
    assert "--inputs" not in help_.split()


def test_inputs_from_a_single_array(tmp_path: Path, pair: tuple[str, str]) -> None:
    np.save(tmp_path / "data.npy", np.ones((2, 3)))
    assert check(*pair, "--data", tmp_path / "data.npy") == 0


def test_a_path_that_is_empty(pair: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    assert check(pair[0], "") == 2
    assert "Invalid value for 'B': the path is empty" in capsys.readouterr().err


def test_random_inputs_in_a_range(pair: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    assert check(*pair, "--random", 2, "--input-range", "x:3,4", "-v") == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "2 sets of inputs" in shown
    assert "range in [3, 4)" in shown
    for words in (("--input-range", "x:4,3"), ("--input-range", "z:3,4"), ("--random", 0), ("--runtime", "none")):
        assert check(*pair, *words) == 2


def test_steps_that_quantized_outputs_may_differ_by(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a, b = (saved(quantized(offset), tmp_path / f"{offset}.onnx") for offset in (0, 3))
    assert check(a, b) == 3
    assert check(a, b, "--max-steps", 3) == 0


def test_quiet_prints_errors_only(tmp_path: Path, pair: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    assert check("-q", *pair) == 0
    assert capsys.readouterr() == ("", "")
    assert check("-q", pair[0], saved(tflite_scale(2.1), tmp_path / "c.tflite")) == 3
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: the check of ")


def test_a_model_from_standard_input(
    tmp_path: Path, pair: tuple[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    standard_input(Path(pair[0]).read_bytes(), monkeypatch)
    assert check("-", pair[1], "--report", tmp_path / "out.html") == 0
    assert f"- and {pair[1]}" in " ".join(capsys.readouterr().out.split())
    assert check(pair[0], "-") == 1  # read to its end
    assert "standard input is empty" in capsys.readouterr().err


def test_inspect_reads_standard_input(
    pair: tuple[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    standard_input(Path(pair[1]).read_bytes(), monkeypatch)
    assert exit_code(inspect_command, ["-", "--summary"]) == 0
    assert "tflite" in capsys.readouterr().out


def standard_input(data: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let ``data`` be what is read from standard input."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))


def test_a_folder_is_no_model(tmp_path: Path, pair: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    assert check(pair[0], tmp_path) == 1
    assert f"{tmp_path} is a folder; name a model file (E-FILE-002)" in capsys.readouterr().err


def test_repr_has_no_lists_of_layers(pair: tuple[str, str]) -> None:
    report = onnxtfl.check(*pair, per_layer=True)
    assert report.layers
    assert "LayerError" not in repr(report)


def quantized(offset: int) -> onnx.ModelProto:
    """``x`` in steps of 0.5, ``offset`` steps too large."""
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "scale", "zero"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "scale", "less"], ["y"]),
    ]
    constants = {"scale": np.array(0.5, np.float32), "zero": np.array(99, np.uint8)}
    constants["less"] = np.array(99 - offset, np.uint8)
    return onnx_model(nodes, [("x", TensorProto.FLOAT, [9])], [("y", TensorProto.FLOAT, [9])], constants)
