"""The demo of examples/: the accuracy of the trained network is the same in both runtimes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx

from tests.harness.workers import Worker
from tests.models.corpus import Job

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"


def test_model_size_and_test_images() -> None:
    assert (EXAMPLES / "digits.onnx").stat().st_size < 300_000
    onnx.checker.check_model(EXAMPLES / "digits.onnx", full_check=True)
    test = np.load(EXAMPLES / "digits_test.npz")
    assert test["pixels"].shape == (450, 8, 8)
    assert test["labels"].shape == (450,)


def test_demo(tmp_path: Path) -> None:
    target = tmp_path / "digits.tflite"
    convert = [sys.executable, "-c", "from onnxtfl.cli import onnx2tfl; onnx2tfl()"]
    _run([*convert, str(EXAMPLES / "digits.onnx"), "-o", str(target), "--check"])
    lines = _run([sys.executable, str(EXAMPLES / "demo.py"), str(target)]).splitlines()
    accuracies = [float(word.rstrip("%")) for line in lines for word in line.split() if word.endswith("%")]
    assert len(accuracies) == 2
    assert accuracies[0] == accuracies[1] > 97


def test_norms_and_activations_are_folded_into_the_convolutions() -> None:
    with Worker() as worker:
        outcome = worker.run("tests.models.corpus:attempt", Job("digits", EXAMPLES / "digits.onnx"), 60)
    assert outcome.kind == "done", outcome.message
    report = outcome.value
    assert report.passed, f"{report.error}{report.back_error}\n{report.detail}"
    assert not report.ops.keys() & {"MUL", "ADD", "SUB", "RELU", "TRANSPOSE", "PAD"}
    assert report.nodes_ratio <= 1.1


def _run(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
