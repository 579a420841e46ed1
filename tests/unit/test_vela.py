"""Vela in a child process: where each op of a .tflite runs, and what happens where Vela is missing or fails."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import onnxtfl
from onnxtfl.formats.tflite.outline import file_ops
from onnxtfl.runtimes import RunError, vela
from tests.unit.micro_models import cnn

needs_vela = pytest.mark.skipif(vela.command() is None, reason="needs Vela (pip install 'onnxtfl[ethos-u]')")
U55 = "ethos-u55-128"


@pytest.fixture(scope="module")
def int8_cnn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A CNN that computes on int8, with float inputs and outputs."""
    path = tmp_path_factory.mktemp("cnn") / "cnn.tflite"
    onnxtfl.onnx_to_tflite(cnn(quantized=True), path, target="micro", check=False)
    return path


@needs_vela
def test_each_op_runs_on_the_npu_or_on_the_cpu_for_a_reason(int8_cnn: Path) -> None:
    ops = file_ops(int8_cnn)
    found = vela.compile_for(int8_cnn, U55, [op.result for op in ops])
    placed = {op.op: on for op, on in zip(ops, found.ops, strict=True)}
    assert placed["CONV_2D"].on_npu and placed["CONV_2D"].cycles > 0
    assert not placed["QUANTIZE"].on_npu and "Float32" in placed["QUANTIZE"].reason
    assert placed["DEQUANTIZE"].reason == "Unsupported opType"
    left = [op.op for op in file_ops(found.model) if op.op != "ethos-u"]
    assert sorted(left) == sorted(op.op for op, on in zip(ops, found.ops, strict=True) if not on.on_npu)
    assert found.sram > 0 < found.flash
    assert found.inferences_per_second is not None and found.cycles > 0


def test_ops_of_subgraphs_have_their_own_places() -> None:
    rows = [{"id": str(i), "ext_key": key} for i, key in enumerate(["0", "2", "", "3", "0", "1"])]
    assert dict(vela._main_places(rows)) == {"0": 0, "1": 2, "3": 3}


@needs_vela
def test_what_vela_cannot_read(tmp_path: Path) -> None:
    (tmp_path / "broken.tflite").write_bytes(b"\x1c\0\0\0TFL3" + b"\xff" * 64)
    with pytest.raises(RunError) as caught:
        vela.compile_for(tmp_path / "broken.tflite", U55, [])
    assert caught.value.kind in ("unsupported", "crash")


@pytest.mark.parametrize(
    ("code", "kind", "said"),
    [
        ("import time; time.sleep(60)", "timeout", "more than 0.5 s"),
        ("import os; os.abort()", "crash", "signal 6"),
        ("print('Error: no such thing'); raise SystemExit(1)", "unsupported", "no such thing"),
        ("pass", "unsupported", "no result"),
    ],
)
def test_a_compiler_that_fails(
    code: str, kind: str, said: str, int8_cnn: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vela, "command", lambda: [sys.executable, "-c", code])
    with pytest.raises(RunError, match=said) as caught:
        vela.compile_for(int8_cnn, U55, [], time_limit=0.5 if kind == "timeout" else 20)
    assert caught.value.kind == kind


def test_without_vela(int8_cnn: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vela, "command", lambda: None)
    with pytest.raises(RunError, match=r"pip install 'onnxtfl\[ethos-u\]'") as caught:
        vela.compile_for(int8_cnn, U55, [])
    assert caught.value.kind == "unavailable"
