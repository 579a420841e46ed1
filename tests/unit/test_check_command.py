"""The command `onnxtfl check`: its options, exit codes and the JSON report."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from onnxtfl import CheckReport, OutputCheck
from onnxtfl.cli.check import check_command
from onnxtfl.cli.running import exit_code
from tests.unit.tiny_models import onnx_scale, saved, tflite_scale


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


def test_json_to_a_file_in_a_new_folder(tmp_path: Path, pair: tuple[str, str]) -> None:
    wrong, out = saved(tflite_scale(2.1), tmp_path / "c.tflite"), tmp_path / "new" / "report.json"
    assert check(pair[0], wrong, "--json", out) == 3
    report = json.loads(out.read_text())
    assert report["status"] == "failed"
    assert not report["outputs"][0]["ok"]


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
